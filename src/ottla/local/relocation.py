"""A local cluster that has moved: into another ZooKeeper, or as a copied folder (`--adopt`).

Invariants, another ZooKeeper: nothing runs; the other server has the cluster's znodes (its cluster
id), and none that are older than those it lives in now, for a leader of an older epoch would lose
records; what the cluster leaves is moved away, so that no later `up` goes back to it by mistake.
The znodes come by `ottla zookeeper copy`.

A copied folder: the original is not touched. A copy of a running cluster holds what is true of the
original's processes alone: registrations of its brokers and controller in the copy of ZooKeeper's
data, which last until their sessions expire there (a controller of the copy would send its requests
to the original's brokers), and marks in the log dirs of what their writer knew of ZooKeeper, which
the copy of ZooKeeper may be older than.
"""

from collections.abc import Callable
from pathlib import Path

from ottla.local.cluster_dir import ClusterDir, LocalCluster, LocalZooKeeper
from ottla.local.zookeeper_session import ZooKeeper, asked
from ottla.log.boot_ids import BOOT_ID_FILE
from ottla.log.checkpoints import META_PROPERTIES, CheckpointError, decode_meta_properties
from ottla.log.files import OsFiles
from ottla.log.lives import LIFE_FILE
from ottla.model.errors import OttlaError, StartupError
from ottla.net.runtime import real_world
from ottla.zookeeper import data_copy, znodes
from ottla.zookeeper.data_copy import Contents
from ottla.zookeeper.errors import NoNodeError
from ottla.zookeeper.session import Session


def go_on_with(
    folder: ClusterDir, cluster: LocalCluster, other: LocalZooKeeper, tell: Callable[[str], None]
) -> None:
    """Let the cluster live in another ZooKeeper; OttlaError with the way out if it cannot."""
    data = folder.zookeeper_dir / "data"
    ours = _cluster_id(folder, cluster)
    if other.external:
        settings = {**folder.zookeeper_settings(), **cluster.settings}
        _leave_own(data, ours, ZooKeeper(other.address, settings), tell)
    else:
        _return_to_own(data, ours, other.server)
    cluster.zookeeper = other
    folder.save(cluster)


def _leave_own(data: Path, ours: str, other: ZooKeeper, tell: Callable[[str], None]) -> None:
    address = other.address
    copy = f"copy them while that server is stopped: ottla zookeeper copy {data} ITS-DATADIR"
    left = _contents(data)
    there, epoch, zxid = asked(other, _found_there)
    if there != ours:
        what = f"those of cluster {there}" if there else "no znodes of a cluster"
        raise StartupError(
            f"ZooKeeper at {address} has {what}, not those of this one ({ours}); {copy}"
        )
    if left is None:
        return
    # Each start of the cluster elects a controller; sessions alone let the zxid grow, too.
    if epoch < left.controller_epoch or zxid < left.zxid:
        raise StartupError(
            f"the znodes of this cluster at {address} are older (controller epoch {epoch}, zxid "
            f"{zxid:#x}) than those in {data} ({left.controller_epoch}, {left.zxid:#x}); {copy}"
        )
    kept = data.with_name(f"data.left-at-{left.zxid:x}")
    data.rename(kept)
    tell(f"this cluster lives in ZooKeeper {address} from now on; its former znodes are in {kept}")


def _return_to_own(data: Path, ours: str, kind: str) -> None:
    copy = f"copy them: ottla zookeeper copy DATADIR {data}"
    found = _contents(data)
    if found is None:
        raise StartupError(
            f"--zookeeper {kind}: stop the ZooKeeper that this cluster lives in, which has its "
            f"znodes, and {copy}"
        )
    if found.cluster_id != ours:
        raise StartupError(
            f"the znodes in {data} are those of cluster {found.cluster_id or '(none)'}, not of "
            f"this one ({ours}); move them away and {copy}"
        )


def _contents(data: Path) -> Contents | None:
    world = real_world(OsFiles())
    if not data_copy.has_znodes(world.files, str(data)):
        return None
    return data_copy.contents(world, str(data))


def _cluster_id(folder: ClusterDir, cluster: LocalCluster) -> str:
    """Return the id that is written in the brokers' log dirs."""
    for broker in cluster.brokers:
        try:
            file = folder.data_dir(broker.id) / META_PROPERTIES
            found = decode_meta_properties(file.read_bytes()).cluster_id
            if found is not None:
                return found
        except (OSError, CheckpointError):
            continue
    raise OttlaError(f"no broker of {folder} has ever started; use another --dir")


async def _found_there(session: Session) -> tuple[str, int, int]:
    """Return cluster id and controller epoch of a ZooKeeper ("" and 0: none), and its zxid."""
    try:
        cluster, _ = await session.get(znodes.CLUSTER_ID)
        epoch, _ = await session.get(znodes.CONTROLLER_EPOCH)
    except NoNodeError:
        return "", 0, session.last_zxid
    return (
        znodes.decode_cluster_id(cluster or b""),
        znodes.decode_controller_epoch(epoch or b""),
        session.last_zxid,
    )


def remove_marks(folder: ClusterDir, cluster: LocalCluster) -> None:
    """Remove the log dirs' notes of the boot and the life in which they were written."""
    for broker in cluster.brokers:
        for name in (BOOT_ID_FILE, LIFE_FILE):
            for path in folder.broker_dir(broker.id).glob(f"*/{name}"):
                path.unlink()


def remove_registrations(zookeeper: ZooKeeper) -> None:
    """Delete the registrations of brokers and controller from the copy of ZooKeeper's data."""
    asked(zookeeper, _remove_registrations)


async def _remove_registrations(session: Session) -> None:
    try:
        registered = [znodes.broker_path(int(n)) for n in await session.children(znodes.BROKER_IDS)]
    except NoNodeError:
        registered = []  # it was copied before its first broker started
    for path in [*registered, znodes.CONTROLLER]:
        try:
            await session.delete(path)
        except NoNodeError:
            continue  # its session expired meanwhile
