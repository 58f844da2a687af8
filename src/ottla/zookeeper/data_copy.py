"""A copy of a server's znodes for another server: from our files to a real ZooKeeper's, and back.

Invariants: the source is only read, by a server that has stopped; the target gets one snapshot of
exactly the last state, with each znode's versions and zxids, under its name only once it is
durable; a target that has znodes is refused. Sessions go along, so ephemeral znodes of a server
that did not stop in order end as usual. ZooKeeper: `FileTxnSnapLog.restore`.
"""

from typing import NamedTuple

from ottla.model.errors import StartupError
from ottla.model.ports import Files, World
from ottla.zookeeper import snapshot_file, txn_log, znodes
from ottla.zookeeper.database import READ_BYTES, Database
from ottla.zookeeper.errors import MalformedZnodeError
from ottla.zookeeper.snapshot_file import Snapshot

VERSION_DIR = "version-2"
_SCRATCH = "ottla-copy.tmp"


class Contents(NamedTuple):
    """What a server's files hold; the last two: of Kafka's cluster, "" and 0 if there is none."""

    zxid: int
    znodes: int
    sessions: int
    cluster_id: str
    controller_epoch: int


def has_znodes(files: Files, data_dir: str) -> bool:
    """Return whether a dataDir holds files of a server."""
    folder = f"{data_dir}/{VERSION_DIR}"
    return files.is_dir(folder) and bool(_names(files, folder))


def contents(world: World, data_dir: str) -> Contents:
    """Open a dataDir of our own as a server does; StartupError where it cannot be used."""
    database = Database(world, data_dir)
    database.open()
    database.release()
    return _contents(database)


def copy(world: World, source: str, target: str) -> Contents:
    """Copy the znodes of one dataDir into another; StartupError in one line if that cannot be."""
    files = world.files
    try:
        if not has_znodes(files, source):
            raise StartupError(
                f"{source} is no dataDir of a ZooKeeper server: there is nothing in its "
                f"{VERSION_DIR}"
            )
        if has_znodes(files, target):
            raise StartupError(f"{target} has znodes already; move it away, or name another folder")
        files.make_dirs(target)
        # Our server leaves this file; a real one's folder is not written to.
        lock = files.lock(f"{source}/.lock") if files.exists(f"{source}/.lock") else None
        try:
            return _copy(world, source, target)
        finally:
            if lock is not None:
                lock.release()
    except BlockingIOError:
        raise StartupError(f"{source} is in use by another server; stop it first") from None
    except OSError as error:
        raise StartupError(f"{error.filename or target}: {error.strerror}") from None


def _copy(world: World, source: str, target: str) -> Contents:
    files, scratch = world.files, f"{target}/{_SCRATCH}"
    _remove_folder(files, scratch)
    files.make_dirs(f"{scratch}/{VERSION_DIR}")
    try:
        for name in _names(files, f"{source}/{VERSION_DIR}"):
            _copy_file(files, f"{source}/{VERSION_DIR}/{name}", f"{scratch}/{VERSION_DIR}/{name}")
        database = Database(world, scratch)
        database.open()
        database.release()
        snapshot = Snapshot(database.tree, database.sessions)
        copied = f"{scratch}/copied"
        files.make_dirs(copied)
        name = snapshot_file.name_of(snapshot.zxid)
        files.write_durable(f"{copied}/{name}", b"".join(snapshot.slices()))
        files.fsync_dir(copied)
        _remove_folder(files, f"{target}/{VERSION_DIR}")  # it has no znodes
        files.rename(copied, f"{target}/{VERSION_DIR}")
        files.fsync_dir(target)
    finally:
        _remove_folder(files, scratch)
    return _contents(database)


def _contents(database: Database) -> Contents:
    tree = database.tree
    cluster, epoch = (tree.nodes.get(p) for p in (znodes.CLUSTER_ID, znodes.CONTROLLER_EPOCH))
    try:
        cluster_id = "" if cluster is None else znodes.decode_cluster_id(cluster.data or b"")
        number = 0 if epoch is None else znodes.decode_controller_epoch(epoch.data or b"")
    except MalformedZnodeError:
        cluster_id, number = "", 0  # of another program
    return Contents(tree.zxid, len(tree.nodes), len(database.sessions), cluster_id, number)


def _names(files: Files, folder: str) -> list[str]:
    """Return the logs and snapshots of a folder, also compressed ones."""
    return [
        name
        for name in files.listdir(folder)
        if name.startswith(f"{snapshot_file.PREFIX}.") or txn_log.zxid_of(name, "log") is not None
    ]


def _remove_folder(files: Files, folder: str) -> None:
    while files.is_dir(folder) and not files.remove_some(folder):
        pass


def _copy_file(files: Files, source: str, target: str) -> None:
    reading, writing = files.open(source), files.open(target, create=True)
    try:
        position = 0
        while part := reading.pread(READ_BYTES, position):
            if part.count(0) < len(part):  # a log's zeros were taken in advance
                writing.pwrite([part], position)
            position += len(part)
    finally:
        reading.close()
        writing.close()
