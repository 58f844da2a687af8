"""`ottla up` today, a ZooKeeper of one's own tomorrow: a cluster's znodes move there, and back."""

import json
import os
import subprocess

import pytest

from ottla.zookeeper.embedded import start_zookeeper
from ottla.zookeeper.jars import find_jars, find_java
from support import command_line
from support.cluster import free_ports, free_row
from support.own_zookeeper import OwnZooKeeper, kazoo, whole_tree

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(180)]


def run(*arguments, stdin: str = "", code: int = 0) -> str:
    done = command_line.ottla(*arguments, stdin=stdin)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_znodes_move_to_a_real_zookeeper_and_back(tmp_path):
    folder, theirs = tmp_path / "cluster", tmp_path / "real"
    here = ("--dir", folder)
    data = folder / "zookeeper" / "data"
    (port,) = free_ports(1)
    real = f"127.0.0.1:{port}"
    zookeeper = None

    def up(*more, code=0):
        return run("up", *here, *more, code=code)

    def address() -> str:
        return json.loads((folder / "cluster.json").read_text())["zookeeper"]["address"]

    def states(address):
        """Return versions and zxids of all partition states, with their content."""
        with kazoo(address) as client:
            found = whole_tree(client)
        return {path: znode for path, znode in found.items() if path.endswith("/state")}

    try:
        up("-n", 1, "--port-base", free_row(2))
        run("topics", "create", "t", "--partitions", 3, *here)
        run("produce", "t", *here, stdin="first\n")
        assert "stop it first: ottla down" in up("--zookeeper", real, code=1)
        kept = states(address())
        assert len(kept) == 3
        run("down", *here)

        # A server without the cluster's znodes is refused, with the step that brings them.
        zookeeper = start_zookeeper(theirs, port, heap_mb=96)
        step = f"ottla zookeeper copy {data} ITS-DATADIR"
        assert step in (said := up("--zookeeper", real, code=1))
        assert "has no znodes of a cluster" in said
        with kazoo(real) as client:
            assert client.get_children("/") == ["zookeeper"], "nothing was written there"
        zookeeper.kill()
        (theirs / "data").rename(tmp_path / "empty")

        said = run("zookeeper", "copy", data, theirs / "data")
        assert "copied " in said
        assert ", cluster " in said
        assert "has znodes already" in run("zookeeper", "copy", data, theirs / "data", code=1)
        zookeeper = start_zookeeper(theirs, port, heap_mb=96)
        assert states(real) == kept
        assert "lives in ZooKeeper" in up("--zookeeper", real)
        run("produce", "t", *here, stdin="second\n")
        assert not data.exists()
        assert "stop it first: ottla down" in up("--zookeeper", "own", code=1)
        run("down", *here)
        kept = states(real)
        assert f"ottla zookeeper copy DATADIR {data}" in up("--zookeeper", "own", code=1)
        zookeeper.stop()

        run("zookeeper", "copy", theirs / "data", data)
        up("--zookeeper", "own")
        assert states(address()) == kept
        found = run("consume", "t", "--from-beginning", "--max-messages", 2, *here)
        assert {"first", "second"} <= set(found.splitlines())
        run("down", *here)

        # What was left behind there is older than what the cluster lives in now.
        zookeeper = start_zookeeper(theirs, port, heap_mb=96)
        said = up("--zookeeper", real, code=1)
        assert "are older (controller epoch 2, zxid" in said
        assert step in said
    finally:
        run("down", *here)
        if zookeeper is not None:
            zookeeper.kill()


ENSEMBLE_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@pytest.mark.alone
def test_an_ensemble_begins_with_the_same_copy_on_each_server(tmp_path):
    data, ports = tmp_path / "data", free_ports(9)
    with OwnZooKeeper(data) as own, kazoo(own.connect_string) as client:
        client.create("/a", b"1")
        client.set("/a", b"2")
        client.create("/a/b", b"")
        before = whole_tree(client)
        client.stop()
        assert own.stop() == 0
    members = range(1, 4)
    servers = "".join(
        f"server.{n}=127.0.0.1:{ports[3 * n - 3]}:{ports[3 * n - 2]}\n" for n in members
    )
    processes = []
    try:
        for n in members:
            home = tmp_path / f"server-{n}"
            run("zookeeper", "copy", data, home)
            (home / "myid").write_text(f"{n}\n")
            config = home / "zoo.cfg"
            config.write_text(
                f"dataDir={home}\nclientPort={ports[3 * n - 1]}\nclientPortAddress=127.0.0.1\n"
                "tickTime=500\ninitLimit=20\nsyncLimit=10\nadmin.enableServer=false\n"
                f"{servers}"
            )
            command = [
                str(find_java()), "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                os.pathsep.join(map(str, find_jars())), ENSEMBLE_MAIN, str(config),
            ]  # fmt: skip
            with (home / "out").open("wb") as out:
                processes.append(subprocess.Popen(command, stdout=out, stderr=out))
        addresses = [f"127.0.0.1:{ports[3 * n - 1]}" for n in members]
        with kazoo(",".join(addresses)) as client:
            assert whole_tree(client) == before
            client.create("/c", b"3")
        for address in addresses:  # each member has what the copy had, and what came since
            with kazoo(address) as client:
                client.sync("/")
                assert set(client.get_children("/")) == {"a", "c", "zookeeper"}
                assert client.get("/a")[0] == b"2"
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
