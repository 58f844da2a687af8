"""Our ZooKeeper server as a process, and the whole tree of any server, read by kazoo."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient
from kazoo.security import ACL

PROGRAM = (sys.executable, "-m", "ottla", "zookeeper", "run")


class OwnZooKeeper:
    """`ottla zookeeper run` on a data folder; `kill` is kill -9."""

    def __init__(
        self, data_dir: Path, port: int = 0, *options: str, command: Sequence[str] = PROGRAM
    ) -> None:
        self.log = data_dir.parent / f"{data_dir.name}.log"
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [
                *command, "--data-dir", str(data_dir), "--client-port", str(port),
                "--log-file", str(self.log), *options,
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        self.connect_string = self._wait_started()
        self.port = int(self.connect_string.rpartition(":")[2])

    def _wait_started(self) -> str:
        give_up_s = time.monotonic() + 60
        while time.monotonic() < give_up_s:
            text = self.log.read_text() if self.log.exists() else ""
            if found := re.search(r"server started address=(\S+)", text):
                return found[1]
            if self.process.poll() is not None:
                raise RuntimeError(self.process.stderr.read().decode())
            time.sleep(0.005)
        self.kill()
        raise RuntimeError(f"not started in time: {text}")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            self.kill()
        self.process.stderr.close()


@contextlib.contextmanager
def kazoo(connect_string: str, **settings):
    client = KazooClient(connect_string, timeout=10, **settings)
    client.start(60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def whole_tree(client: KazooClient) -> dict[str, tuple[bytes, tuple, list[ACL]]]:
    """Return data, stat and ACL of every znode but /zookeeper's own."""
    found, todo = {}, ["/"]
    while todo:
        path = todo.pop()
        data, stat = client.get(path)
        found[path] = (data, tuple(stat), client.get_acls(path)[0])
        todo += [f"{path.rstrip('/')}/{c}" for c in client.get_children(path) if c != "zookeeper"]
    return found
