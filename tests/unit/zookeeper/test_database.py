"""The files of our ZooKeeper server: what is torn is cut, what is damaged is refused."""

import asyncio
import contextlib
import random
from types import SimpleNamespace

import pytest

from ottla.model.errors import StartupError
from ottla.sim.files import DiedError, SimDisk, SimFiles
from ottla.sim.world import simulate
from ottla.zookeeper import jute, snapshot_file, txn_log
from ottla.zookeeper.database import Database
from ottla.zookeeper.embedded import start_zookeeper
from ottla.zookeeper.errors import ConnectionLossError, ZooKeeperError
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.operations import Create, Set
from ottla.zookeeper.server_connection import Connection
from ottla.zookeeper.session import Session
from support.cluster import free_ports
from support.kept_znodes import Only, opened, picture, written

FOLDER = "/data/version-2"
LOG = f"{FOLDER}/log.1"


def entries(disk: SimDisk):
    return txn_log.read(bytes(disk.inodes[LOG].data), LOG).entries


def damage(disk: SimDisk, position: int) -> None:
    disk.flip_bit(LOG, position, 3)


def test_what_is_opened_is_what_was_written():
    disk, pictures = written(3, 4)
    assert picture(opened(disk)) == pictures[-1]


def test_a_file_cut_anywhere_is_a_prefix():
    disk, _ = written(2, 3)
    whole = bytes(disk.inodes[LOG].data)
    ends = [16] + [e.end for e in entries(disk)]
    for size in [0, 3, 16, 17, *range(20, ends[-1] + 5, 97), ends[-1]]:
        disk.inodes[LOG].data = bytearray(whole[:size])
        disk.inodes[LOG].durable = bytearray(whole[:size])
        database = opened(disk)
        kept = sum(end <= size for end in ends[1:])
        assert database.tree.zxid == kept
        if LOG not in disk.inodes:  # nothing whole was in it
            assert not kept
            disk.add(LOG)
        else:
            assert len(disk.inodes[LOG].data) in (size, ends[kept])


@pytest.mark.parametrize("seed", range(30))
def test_damage_before_the_last_batch_is_refused(seed):
    disk, _ = written(3, 3)
    last = entries(disk)[6].position
    rng = random.Random(seed)
    position = rng.randrange(16, last)
    damage(disk, position)
    with pytest.raises(StartupError, match=r"damage at position|unknown type") as caught:
        opened(disk)
    assert LOG in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entry", [6, 7, 8])
def test_a_torn_last_batch_is_cut_off_wherever_it_is_torn(entry):
    """Also where a later transaction of the batch is whole: none of them was acknowledged."""
    disk, _ = written(3, 3)
    found = entries(disk)
    assert [e.batch_start for e in found[6:]] == [found[6].position] * 3
    damage(disk, found[entry].position + 30)
    database = opened(disk)
    assert database.tree.zxid == entry
    assert picture(opened(disk)) == picture(database)


def test_what_failed_fsyncs_dropped_is_written_again():
    """Also the cut of a torn batch, which would come back behind what is written later."""
    disk, _ = written(3, 3)
    disk.inodes[LOG].durable[entries(disk)[5].position + 30] ^= 8  # it is whole only in memory
    damage(disk, entries(disk)[8].position + 30)
    disk.fail(FOLDER, ("fsync",), times=2, drops=True)
    for _ in range(2):
        with pytest.raises(StartupError, match=f"{LOG}: Input/output error"):
            opened(disk)
    found = picture(opened(disk))
    disk.power_loss(random.Random(0))
    assert len(disk.inodes[LOG].data) == entries(disk)[-1].end
    assert picture(opened(disk)) == found


def test_what_an_unknown_writer_left_is_refused_where_something_valid_follows():
    disk, _ = written(1, 3)
    data = disk.inodes[LOG].data
    foreign = bytearray(data[:16])
    for e in entries(disk):  # as ZooKeeper writes them: nothing after the digest
        body = bytes(data[e.position + 12 : e.end - 1 - 4])
        foreign += txn_log._FRAME.pack(txn_log.adler32(body), len(body)) + body + b"B"
    disk.inodes[LOG].data = foreign
    assert opened(disk).tree.zxid == 3
    damage(disk, 40)
    with pytest.raises(StartupError, match="damage at position 16"):
        opened(disk)


def test_a_missing_log_is_refused():
    disk, _ = written(5, 3, snapshot_transactions=3)
    names = SimFiles(disk).listdir(FOLDER)
    logs = [n for n in names if n.startswith("log.")]
    snapshots = [n for n in names if n.startswith("snapshot.")]
    assert len(snapshots) == 3
    assert len(logs) >= 2
    for name in snapshots[-2:]:
        del disk.inodes[f"{FOLDER}/{name}"]
    del disk.inodes[f"{FOLDER}/{sorted(logs, key=lambda n: int(n[4:], 16))[-2]}"]
    with pytest.raises(StartupError, match="are missing"):
        opened(disk)


def accepting(disk: SimDisk) -> Database:
    database = Database(Only(disk), "/data", accept_loss=True)
    database.open()
    database.release()
    return database


@pytest.mark.parametrize("kind", ["damage", "missing"])
def test_a_loss_is_accepted_only_on_demand_and_every_file_stays(kind, caplog):
    disk, pictures = written(12, 3, snapshot_transactions=6)
    (kept, _), *later = txn_log.numbered(SimFiles(disk), FOLDER, "snapshot")
    for _, path in later:
        disk.flip_bit(path, len(disk.inodes[path].data) // 2)
    logs = [(z, p) for z, p in txn_log.numbered(SimFiles(disk), FOLDER, "log") if z > kept]
    assert len(logs) > 1
    if kind == "missing":  # the first of them
        disk.remove(logs.pop(0)[1])
        last = kept
    else:  # in the first batch of the second one
        logs = logs[1:]
        disk.flip_bit(logs[0][1], 16 + 12 + 5)
        last = logs[0][0] - 1
    before = {p: bytes(i.data) for p, i in disk.inodes.items()}
    with pytest.raises(StartupError, match=f"loses every change after zxid {last:#x}") as caught:
        opened(disk)
    assert "start once with --accept-data-loss" in str(caught.value)
    assert {p: bytes(i.data) for p, i in disk.inodes.items() if p in before} == before
    database = accepting(disk)
    assert database.tree.zxid == last
    for path in [p for _, p in logs] + [p for number, p in later if number > last]:
        aside = f"{FOLDER}/damaged.{path.rpartition('/')[2]}"
        assert bytes(disk.inodes[aside].data) == before[path]
        assert f"file set aside zxid={last:#x} path={aside}" in caplog.text
    assert picture(database) == picture(opened(disk)) == pictures[last // 3 - 1]
    caplog.clear()
    assert picture(accepting(disk)) == picture(database)
    assert "set aside" not in caplog.text


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_while_a_loss_is_accepted_loses_no_more(power_loss):
    expected, operation, died = None, -1, True
    while died:
        operation += 1
        disk, _ = written(8, 3, snapshot_transactions=3)
        logs = txn_log.numbered(SimFiles(disk), FOLDER, "log")
        disk.remove(logs[-2][1])
        for zxid, path in txn_log.numbered(SimFiles(disk), FOLDER, "snapshot"):
            if zxid >= logs[-2][0]:
                disk.flip_bit(path, len(disk.inodes[path].data) // 2)
        disk.commit()
        if expected is None:
            expected = picture(accepting(disk))
            continue
        files = SimFiles(disk)
        files.last_operations = operation
        died = False
        try:
            Database(SimpleNamespace(files=files), "/data", accept_loss=True).open()
        except DiedError:
            died = True
        files.kill()
        if power_loss:
            disk.power_loss(random.Random(operation))
        assert picture(accepting(disk)) == expected
    assert operation > 8


def test_a_damaged_snapshot_is_passed_over_and_nothing_is_lost():
    disk, pictures = written(6, 3, snapshot_transactions=3)
    snapshots = txn_log.numbered(SimFiles(disk), FOLDER, "snapshot")
    assert len(snapshots) == 3
    rng = random.Random(1)
    for _, path in reversed(snapshots):
        assert picture(opened(disk)) == pictures[-1]
        disk.flip_bit(path, rng.randrange(len(disk.inodes[path].data)), 2)
    with pytest.raises(StartupError, match="none of its snapshots is whole"):
        opened(disk)


def test_a_folder_is_of_one_server():
    disk, _ = written(1, 1)
    one = Database(Only(disk), "/data")
    one.open()
    with pytest.raises(StartupError, match="in use by another server"):
        Database(Only(disk), "/data").open()
    one.release()
    opened(disk)


def test_a_snapshot_is_the_tree_of_its_moment_while_it_goes_on_changing():
    async def main(simulation, node):
        database = Database(node.world, "/data", snapshot_transactions=400)
        database.open()
        server = MemoryZooKeeper(node.world, tick_ms=1000, database=database)
        await server.start("here", 2181)
        session = await Session.connect(node.world, "here:2181", 10_000, 10_000)
        rng = random.Random(2)
        for i in range(1200):
            path = f"/{rng.randrange(700)}"
            calls = [
                lambda p=path: session.create(p, b"c"),
                lambda p=path, v=i: session.set(p, str(v).encode()),
                lambda p=path: session.delete(p),
                lambda p=path: session.multi([Create(f"{p}/x"), Set(p, b"m")]),
            ]
            future = rng.choice(calls)()
            future.add_done_callback(lambda f: f.exception())
            if i % 50 == 0:
                await asyncio.wait([future])
        await session.sync()
        server.stop()
        await database.close()
        return database, node.disk

    database, disk = simulate("snapshots", main)
    assert len(txn_log.numbered(SimFiles(disk), FOLDER, "snapshot")) > 1
    again = opened(disk)
    assert picture(again) == picture(database)
    assert again.tree.digest == database.tree.digest
    again.tree.as_kept()
    assert again.tree.digest == database.tree.digest


def test_an_fsync_that_fails_acknowledges_nothing_and_ends_the_server():
    async def main(simulation, node):
        database = Database(node.world, "/data")
        database.open()
        server = MemoryZooKeeper(node.world, tick_ms=1000, database=database)
        failed = []
        server.on_failure = failed.append
        await server.start("here", 2181)
        session = await Session.connect(node.world, "here:2181", 10_000, 10_000)
        await session.create("/kept")
        node.disk.fail(FOLDER, ["fsync"])
        with pytest.raises(ConnectionLossError):
            await session.create("/lost")
        with pytest.raises(ZooKeeperError):
            await session.get("/kept")
        assert failed
        assert not server.connections

    simulate("fsync", main)


def test_a_reader_waits_for_what_it_reads_to_be_durable():
    async def main(simulation, node):
        database = Database(node.world, "/data")
        database.open()
        server = MemoryZooKeeper(node.world, tick_ms=1000, database=database)
        await server.start("here", 2181)
        writer = await Session.connect(node.world, "here:2181", 10_000, 10_000)
        reader = await Session.connect(node.world, "here:2181", 10_000, 10_000)
        await writer.create("/a", b"0")
        held = asyncio.Event()
        run = node.world.workers.run

        async def wait_first(function, *arguments):
            await held.wait()
            return await run(function, *arguments)

        object.__setattr__(node.world.workers, "run", wait_first)
        seen = []
        await reader.exists("/a", seen.append)
        write = writer.set("/a", b"1")
        await asyncio.sleep(1)
        read = reader.get("/a")
        await asyncio.sleep(1)
        assert not write.done()
        assert not read.done()
        assert not seen
        held.set()
        assert (await read)[0] == b"1"
        await write
        assert len(seen) == 1

    simulate("reader", main)


class NoTransport(asyncio.Transport):
    """Takes everything; for a connection that is spoken to directly."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    def write(self, data) -> None:
        self.sent += len(data)

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None: ...

    def close(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def valid_requests(rng: random.Random):
    """Yield operation codes and bodies, most of them valid."""
    digest = jute.INT.pack(31) + jute.string("digest") + jute.string("a:b")
    acls = [jute.OPEN_ACL, jute.READ_ACL, jute.INT.pack(1) + digest]
    while True:
        path = "/" + "/".join(rng.choice("abc") for _ in range(rng.randint(1, 3)))
        data, acl = rng.choice([b"", b"xy", None]), rng.choice(acls)
        flags = jute.INT.pack(rng.choice([0, 0, 0, 1, 2, 3]))
        made = jute.string(path) + jute.buffer(data) + acl
        version = rng.choice([-1, -1, -1, 0, 1])
        parts = [
            (jute.CREATE, made + flags),
            (jute.CREATE2, made + flags),
            (jute.CREATE_CONTAINER, made + jute.INT.pack(4)),
            (jute.SET_DATA, jute.set_data_body(path, data, version)),
            (jute.DELETE, jute.delete_body(path, version)),
            (jute.CHECK, jute.delete_body(path, version)),
        ]
        lone = [
            (jute.SET_ACL, jute.string(path) + acl + jute.INT.pack(version)),
            (jute.ADD_WATCH, jute.string(path) + jute.INT.pack(rng.randrange(2))),
            (jute.GET_DATA, jute.path_watch_body(path, True)),
            (jute.GET_CHILDREN2, jute.path_watch_body(path, True)),
            (jute.GET_ACL, jute.string(path)),
            (jute.AUTH, jute.INT.pack(0) + jute.string("digest") + jute.buffer(b"u:p")),
        ]
        if rng.random() < 0.4:
            chosen = rng.choices(parts, k=rng.randint(1, 4))
            heads = [jute.MULTI_HEADER.pack(op, False, -1) + body for op, body in chosen]
            yield jute.MULTI, b"".join(heads) + jute.MULTI_END
        else:
            yield rng.choice(parts + lone)


def asked(seed: int):
    """Ask a server all kinds of things, damaged at random, too; return its database and disk."""

    async def main(simulation, node):
        database = Database(node.world, "/data", snapshot_transactions=300)
        database.open()
        server = MemoryZooKeeper(node.world, tick_ms=1000, database=database)
        await server.start("here", 2181)
        rng = random.Random(seed)
        requests = valid_requests(rng)

        def connected() -> Connection:
            connection = Connection(server)
            connection.connection_made(NoTransport())
            server.open_session(connection, jute.ConnectRequest(0, 10_000, 0, bytes(16)))
            return connection

        connections = [connected() for _ in range(3)]
        for i in range(1500):
            number = rng.randrange(3)
            connection = connections[number]
            if connection.session.connection is not connection:  # bad credentials ended it
                connection = connections[number] = connected()
            op, body = next(requests)
            frame = bytearray(jute.request(i + 1, op, body))
            if rng.random() < 0.3:
                for _ in range(rng.randint(1, 3)):
                    frame[rng.randrange(12, len(frame))] = rng.randrange(256)
            if rng.random() < 0.05:
                del frame[rng.randrange(12, len(frame)) :]
                frame[:4] = jute.INT.pack(len(frame) - 4)
            connection.data_received(bytes(frame))
            if i % 97 == 0:
                await asyncio.sleep(0.01)
        server.stop()
        await database.close()
        assert database.tree.zxid > 600
        return database, node.disk

    return simulate(f"asked-{seed}", main)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_asked_the_files_have_what_the_tree_has(seed):
    """A request is done whole and logged, or not done."""
    database, disk = asked(seed)
    again = opened(disk)
    assert again.tree.zxid == database.tree.zxid
    assert picture(again) == picture(database)
    assert again.tree.digest == database.tree.digest
    assert again.tree.ephemerals == database.tree.ephemerals
    assert again.tree.containers.keys() == database.tree.containers.keys()
    assert again.sessions == database.sessions


@pytest.mark.java
@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_is_asked_a_real_zookeeper_opens_the_files(seed, tmp_path):
    database, disk = asked(seed)
    folder = tmp_path / "data/version-2"
    folder.mkdir(parents=True)
    for name in SimFiles(disk).listdir(FOLDER):
        (folder / name).write_bytes(disk.inodes[f"{FOLDER}/{name}"].data)
    real = start_zookeeper(tmp_path, free_ports(1)[0], heap_mb=96)
    real.stop()
    # It wrote a snapshot of what it had read.
    snapshots = sorted(folder.glob("snapshot.*"), key=lambda f: int(f.suffix[1:], 16))
    taken = [f for f in snapshots if int(f.suffix[1:], 16) == database.tree.zxid]
    assert taken, snapshots
    tree, sessions, _ = snapshot_file.read(taken[0].read_bytes(), database.tree.zxid, "its")
    assert {p: (n.data or b"", n.stat(), n.acl) for p, n in tree.nodes.items()} == {
        p: (n.data or b"", n.stat(), n.acl) for p, n in database.tree.nodes.items()
    }
    assert sessions == database.sessions
    assert tree.digest == database.tree.digest


def test_an_orderly_end_acknowledges_what_it_has_taken():
    async def main(simulation, node):
        database = Database(node.world, "/data")
        database.open()
        server = MemoryZooKeeper(node.world, tick_ms=1000, database=database)
        await server.start("here", 2181)
        session = await Session.connect(node.world, "here:2181", 10_000, 10_000)
        writes = [session.create(f"/{i}", b"x") for i in range(50)]
        while not database.appended > database.durable:
            await asyncio.sleep(0.0001)
        taken = len(database.tree.nodes)
        await server.shut_down()
        found = await asyncio.gather(*writes, return_exceptions=True)
        acknowledged = [f for f in found if not isinstance(f, Exception)]
        assert len(acknowledged) == taken - 4 > 0
        return node.disk

    disk = simulate("end", main)
    assert opened(disk).tree.zxid >= 51


ENDS = {
    "worker": lambda server: fails_after(server.world.workers, "run", 3),
    "write": lambda server: fails_after(server.database._writer, "write", 3),
    "release": lambda server: fails_after(server.database, "on_durable", 3),
    "tick": lambda server: fails_after(server, "_delete_empty_containers", 0),
    "log": lambda server: fails_after(server.database, "append", 3),
}
"""What fails, and is no OSError: in the flush, in the tick, between the tree and its log."""


def fails_after(owner, name: str, count: int) -> None:
    real = getattr(owner, name)

    def call(*args):
        nonlocal count
        count -= 1
        if count < 0:
            raise RuntimeError("can't start new thread")
        return real(*args)

    setattr(owner, name, call)


@pytest.mark.parametrize("end", ENDS)
def test_whatever_ends_the_server_is_told_once_and_nothing_more_is_acknowledged(end, caplog):
    disk, told, acknowledged = SimDisk(), [], []

    async def main(simulation, node):
        node.disk = node.world.files.disk = disk
        database = Database(node.world, "/data")
        database.open()
        server = MemoryZooKeeper(node.world, tick_ms=1000, database=database)
        server.on_failure = told.append
        await server.start("here", 2181)
        session = await Session.connect(node.world, "here:2181", 10_000, 10_000)
        body = jute.create_body("/container", b"", jute.CONTAINER)
        await session._send(jute.CREATE_CONTAINER, body, lambda *_: None, "/container")
        ENDS[end](server)
        with contextlib.suppress(ZooKeeperError):
            while True:
                number = len(acknowledged)
                await asyncio.gather(*[session.create(f"/{number}-{i}") for i in range(3)])
                acknowledged.append(number)
                await asyncio.sleep(0.3)
        await asyncio.sleep(5)
        assert [type(error) for error in told] == [RuntimeError]
        assert server._listener is None
        assert not server.connections
        database.release()

    simulate("ends", main)
    tree = opened(disk).tree
    assert {f"/{n}-{i}" for n in acknowledged for i in range(3)} <= set(tree.nodes)
    assert acknowledged
    assert "CRITICAL" in caplog.text
