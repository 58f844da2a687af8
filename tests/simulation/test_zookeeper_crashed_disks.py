"""Our ZooKeeper server crashes at each of its file operations: a real one opens what is left.

A server of ours runs through a history on a simulated disk, with every kind of transaction, rolls
of log and snapshot, an expired session, kills, power losses and fsyncs that drop their pages. For
each of its file operations the disk is written out as each kind of crash leaves it. ZooKeeper's
own classes restore these folders untouched by us (`RestoredTrees.java`), and once more what our
server makes of them: znodes with data, stat and ACL, sessions and the digest have to be those that
we open, and no less than what clients had heard of.
"""

import asyncio
import hashlib
import logging
import os
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.log.files import OsFiles
from ottla.model.ports import World
from ottla.net.runtime import real_world
from ottla.sim.world import Simulation
from ottla.zookeeper import database as database_module
from ottla.zookeeper import jute, txn_log
from ottla.zookeeper.database import Database
from ottla.zookeeper.errors import ZooKeeperError
from ottla.zookeeper.jars import JARS_VARIABLE, find_jars, find_java
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.operations import Check, Create, Delete, Set
from ottla.zookeeper.session import Session
from support import kafka_tools
from support.crashed_disks import Files, Recorder

PROGRAM = Path(__file__).parents[1] / "support" / "RestoredTrees.java"
PORT = 2181
ROUNDS = 12
FEW_BYTES = 16 << 10
"""Taken in advance for a log here, so that thousands of disks are quickly written."""
ADMINS = jute.INT.pack(1) + jute.INT.pack(31) + jute.string("digest") + jute.string("admin:abc=")


class History:
    """A server and what its clients do; `recorder` has the disk at each operation."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.recorder = Recorder()
        self.simulation = Simulation(f"crashed-disks-{seed}")
        self.node = self.simulation.node("zk")
        self.client = self.simulation.node("client")
        self.sessions: list[Session] = []

    def record(self) -> Recorder:
        with self.simulation:
            self.node.boot(self._serve)
            self.client.call(self._play(), within_s=900)
        self.recorder.record()
        return self.recorder

    async def _serve(self, world) -> None:
        self.recorder.watch(world.files)
        database = Database(world, "/data", snapshot_transactions=25)
        database.open()
        server = MemoryZooKeeper(world, tick_ms=1000, database=database)
        ended = asyncio.Event()
        server.on_failure = lambda _: ended.set()
        await server.start("zk", PORT)
        await ended.wait()

    async def _connect(self, timeout_ms: int = 20_000) -> Session:
        session = await Session.connect(self.client.world, f"zk:{PORT}", timeout_ms, 60_000)
        self.sessions.append(session)
        return session

    async def _do(self, session: Session, call) -> None:
        """Do something once; what becomes of it when the server dies is left open."""
        try:
            await session.wait_connected()
            await call()
        except ZooKeeperError:
            pass
        self.recorder.note = max(s.last_zxid for s in self.sessions)

    async def _keep_booted(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self.node.boot_if_down()

    async def _play(self) -> None:
        booting = asyncio.create_task(self._keep_booted())
        session = await self._connect()
        for path in ("/n", "/r", "/t"):
            await self._do(session, lambda p=path: session.create(p, b"0"))
        for number in range(ROUNDS):
            if number % 4 == 3:
                operations = self.rng.randrange(1, 12)
                self.node.crash_at_operation(operations, power_loss=number % 8 == 3)
            elif number % 4 == 1:  # the server exits and is started again on the same machine
                self.node.disk.fail("/data/version-2/log", ("fsync",), times=1, drops=True)
            await self._round(session, number)
        booting.cancel()

    async def _round(self, session: Session, number: int) -> None:
        """Do each kind of change once, alone; then many at once, which are one batch."""
        rng, path = self.rng, f"/n/{number}"
        big = rng.randbytes(rng.choice([3000, 5000, 14_000]))
        multi = [Create(f"{path}-m", b"m" * 700), Set("/r", b"%d" % number), Check("/n", -1)]
        fails = [Create(f"{path}-f"), Delete("/none"), Check("/n", -1)]
        acl = jute.string("/t") + ADMINS + jute.INT.pack(-1)
        container = jute.create_body(f"{path}-c", b"", jute.CONTAINER)
        other = await self._connect(4000)
        for call in (
            lambda: session.create(path, b"small"),
            lambda: session.create(f"{path}-big", big),
            lambda: session.create("/n/s-", b"s", sequence=True),
            lambda: session.create(f"{path}-e", ephemeral=True),
            lambda: session.set("/r", big[:1000]),
            lambda: session.multi(multi),
            lambda: session.multi(fails),
            lambda: session._send(jute.SET_ACL, acl, lambda *_: None, "/t"),
            lambda: session._send(jute.CREATE_CONTAINER, container, lambda *_: None, path),
            lambda: session.delete(path),
            lambda: session.delete(path),
        ):
            await self._do(session, call)
        await self._do(other, lambda: other.create(f"{path}-o", b"o" * 2000, ephemeral=True))
        if number % 3:
            await self._do(other, other.close)
        else:
            other._become_dead("left alone: its session expires")
        sizes = [rng.choice([10, 900, 2500]) for _ in range(rng.randrange(2, 9))]
        calls = [
            lambda i=i, size=size: session.create(f"{path}-{i}", b"p" * size)
            for i, size in enumerate(sizes)
        ]
        await asyncio.gather(*[self._do(session, call) for call in calls])


@dataclass
class Case:
    """One folder that a crash leaves; what clients have heard of; which crashes leave it."""

    files: Files
    acknowledged: int
    kinds: list[str]

    def write(self, folder: Path) -> None:
        inside = folder / "version-2"
        inside.mkdir(parents=True)
        for path, data in self.files.items():
            with (inside / path.rpartition("/")[2]).open("wb") as file:
                file.write(data.rstrip(b"\0"))
                file.truncate(len(data))


def digest_of(files: Files) -> bytes:
    digest = hashlib.blake2b()
    for path, data in sorted(files.items()):
        digest.update(f"{path} {len(data)} ".encode() + data)
    return digest.digest()


def cases_of(seeds, drawn: int) -> list[Case]:
    """Return every different folder of some histories; `drawn`: power losses of each operation."""
    found: dict[bytes, Case] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(txn_log, "PREALLOCATED_BYTES", FEW_BYTES)
        for seed in seeds:
            recorder = History(seed).record()
            assert recorder.operations > 400
            for point in recorder.points:
                for kind, files in point.left(drawn):
                    case = found.setdefault(digest_of(files), Case(files, 0, []))
                    case.acknowledged = max(case.acknowledged, point.note)
                    case.kinds.append(f"{seed}: {point.number} {kind}")
    return list(found.values())


def jars_of(version: str, monkeypatch) -> list[Path]:
    """Return the jars of either version: those of pyspark, those of Kafka."""
    if version == "3.8":
        problem = kafka_tools.why_not()
        if problem:
            pytest.skip(problem)
        monkeypatch.setenv(JARS_VARIABLE, str(kafka_tools.libs()))
    jars = find_jars()
    assert any(jar.name.startswith(f"zookeeper-{version}.") for jar in jars), jars
    return jars


def restored(jars, folders: list[Path]) -> list[list[str]]:
    """Return the lines that ZooKeeper's classes tell of each folder."""
    done = subprocess.run(
        [
            str(find_java()), "-Xmx256m", *kafka_tools.QUICK_JVM,
            "-Dzookeeper.preAllocSize=4", "-cp", os.pathsep.join(map(str, jars)), str(PROGRAM),
        ],
        input="".join(f"{folder}\n" for folder in folders),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[str]] = [[]]
    for line in done.stdout.splitlines():
        if line == "end":
            found.append([])
        else:
            found[-1].append(line)
    assert len(found) == len(folders) + 1
    return [sorted(lines) for lines in found[:-1]]


def told(database: Database) -> list[str]:
    """Return the same lines of an open database of ours."""
    tree = database.tree
    lines = [f"zxid\t{tree.zxid}\t{database._digest()}"]
    lines += [f"session\t{number}\t{ms}" for number, ms in database.sessions.items()]
    for path, node in tree.nodes.items():
        data = "null" if node.data is None else node.data.hex()
        lines.append("\t".join(map(str, ["znode", path, data, *node.stat(), node.acl.hex()])))
    return sorted(lines)


def opened_by_us(world: World, folder: Path) -> list[str]:
    database = Database(world, str(folder))
    database.open()
    database.release()
    return told(database)


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("version", "seeds", "drawn"),
    [
        ("3.9", [1], 4),
        pytest.param("3.9", range(2, 6), 20, marks=pytest.mark.alone),
        pytest.param("3.8", range(6, 10), 20, marks=pytest.mark.alone),
    ],
)
def test_a_real_zookeeper_opens_what_any_crash_leaves(version, seeds, drawn, tmp_path, monkeypatch):
    cases = cases_of(seeds, drawn)
    jars = jars_of(version, monkeypatch)
    monkeypatch.setattr(logging.getLogger(database_module.__name__), "disabled", True)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power is lost here
    untouched = [tmp_path / f"untouched-{number}" for number in range(len(cases))]
    mended = [tmp_path / f"mended-{number}" for number in range(len(cases))]
    for number, case in enumerate(cases):
        case.write(untouched[number])
        case.write(mended[number])
    world = real_world(OsFiles())
    ours = [opened_by_us(world, folder) for folder in mended]
    theirs = restored(jars, untouched + mended)
    for number, case in enumerate(cases):
        where = f"{case.kinds[:3]}: {tmp_path}/*-{number}"
        zxid = next(int(line.split("\t")[1]) for line in ours[number] if line.startswith("zxid"))
        assert zxid >= case.acknowledged, f"{where}: acknowledged to {case.acknowledged}"
        assert theirs[len(cases) + number] == ours[number], f"{where}, opened by us before"
        assert theirs[number] == ours[number], where
    assert len(cases) > 400 * len(seeds)
