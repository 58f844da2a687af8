"""A local cluster goes on with another ZooKeeper: one that runs elsewhere, or one of its own again.

Invariants: nothing runs; the other server has the cluster's znodes (its cluster id), and none that
are older than those it lives in now, for a leader of an older epoch would lose records; what the
cluster leaves is moved away, so that no later `up` goes back to it by mistake. The znodes come by
`ottla zookeeper copy`.
"""

from collections.abc import Callable
from pathlib import Path

from ottla.local.cluster_dir import ClusterDir, LocalCluster, LocalZooKeeper
from ottla.local.zookeeper_session import ZooKeeper, asked
from ottla.log.checkpoints import META_PROPERTIES, CheckpointError, decode_meta_properties
from ottla.log.files import OsFiles
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
