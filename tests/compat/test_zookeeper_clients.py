"""ZooKeeper's own Java clients of 3.4 to 3.7, on our server and on a real one: the same lines.

Maven brings the clients to the cache, once. Each is run by a script of sessions, znodes, watches,
multis and ACLs (`ClientScript.java`), in which the server is killed and started again.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from ottla.zookeeper.embedded import start_own_zookeeper, start_zookeeper
from support import kafka_tools
from support.cluster import free_ports

pytestmark = [
    pytest.mark.alone,
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="no mvn: install Maven"),
]
SUPPORT = Path(__file__).parents[1] / "support"
VERSIONS = ("3.4.14", "3.5.10", "3.6.4", "3.7.2")
# What it prints when all goes well; the rest is compared with what a real server is told.
CERTAIN = (
    "again: NODEEXISTS /own",
    "ephemeral sequential: /own/s-0000000002",
    "set an old version: BADVERSION /own",
    "heard: [NodeCreated /own/w, NodeChildrenChanged /own]",
    "a stranger reads: NOAUTH /own/a",
    "the same session: true",
    "heard of data: [NodeDataChanged /own/e]",
    "heard of a new one: [NodeCreated /own/later]",
)


def client_jars(version: str) -> Path:
    """Return the folder of a client's jars; Maven brings what is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "ottla" / "zookeeper-clients" / version
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        subprocess.run(
            [
                "mvn", "-q", "-B", "-f", str(SUPPORT / "zookeeper-client-pom.xml"),
                "dependency:copy-dependencies", "-DincludeScope=runtime",
                f"-Dzookeeper.version={version}", f"-DoutputDirectory={scratch}/jars",
            ],
            check=True,
            timeout=300,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        (Path(scratch) / "jars").rename(folder)
    return folder


def hosts_file(folder: Path) -> Path:
    """Return a file of names for Java in which clients before 3.5.8 find 127.0.0.1.

    They ask for `127.0.0.1/<unresolved>`, as Java since 14 prints it (ZOOKEEPER-3779).
    """
    file = folder / "hosts"
    file.write_text("127.0.0.1 127.0.0.1/<unresolved> localhost\n")
    return file


def lines_of(version: str, start, folder: Path) -> list[str]:
    """Run the script of a client's version on a server; return what it printed."""
    port = free_ports(1)[0]
    server = start(folder, port)
    command = [
        kafka_tools.java() or "java", "-Xmx256m", *kafka_tools.QUICK_JVM,
        *((f"-Djdk.net.hosts.file={hosts_file(folder)}",) if version < "3.5" else ()),
        "-cp", f"{client_jars(version)}/*", str(SUPPORT / "ClientScript.java"), f"127.0.0.1:{port}",
    ]  # fmt: skip
    with (folder / "client.log").open("wb") as log:
        client = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    timer = threading.Timer(200, client.kill)
    timer.start()
    lines = []
    try:
        for line in client.stdout:
            lines.append(line.rstrip("\n"))
            if lines[-1] == "restart":
                server.kill()
                server = start(folder, port)
                client.stdin.write("started\n")
                client.stdin.flush()
        code = client.wait(20)
        assert code == 0, "\n".join([*lines, (folder / "client.log").read_text()[-3000:]])
    finally:
        timer.cancel()
        client.kill()
        client.wait(10)
        client.stdin.close()
        client.stdout.close()
        server.kill()
    return lines


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_is_told_the_same_by_our_server_and_a_real_one(version, tmp_path):
    ours, theirs = (
        lines_of(version, start, tmp_path / start.__name__)
        for start in (start_own_zookeeper, start_zookeeper)
    )
    assert ours == theirs
    assert not set(CERTAIN) - set(ours), "\n".join(ours)
    assert not [line for line in ours if "java." in line or "[null" in line]
