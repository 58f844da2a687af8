"""Adoption: a copied folder becomes a cluster of its own.

Invariants: the original is not touched. A copy of a running cluster holds what is true of the
original's processes alone: registrations of its brokers and controller in the copy of ZooKeeper's
data, which last until their sessions expire there (a controller of the copy would send its requests
to the original's brokers), and marks in the log dirs of what their writer knew of ZooKeeper, which
the copy of ZooKeeper may be older than.
"""

from ottla.local.cluster_dir import ClusterDir, LocalCluster
from ottla.local.zookeeper_session import ZooKeeper, asked
from ottla.log.boot_ids import BOOT_ID_FILE
from ottla.log.lives import LIFE_FILE
from ottla.zookeeper import znodes
from ottla.zookeeper.errors import NoNodeError
from ottla.zookeeper.session import Session


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
