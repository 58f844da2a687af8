"""Rotation: new passwords for the users of a secured cluster, while it serves.

Invariants: passwords are written into ZooKeeper first and into the files then, and both again by
the next rotation, so one that is cut short locks no one out; brokers take a second name, with which
all of them are restarted one by one, before the first one loses its password: at each moment every
broker can connect to every other.
"""

from collections.abc import Callable, Sequence

from ottla.local import brokers, secure
from ottla.local.cluster_dir import ClusterDir, LocalCluster
from ottla.local.secure import ADMIN, APPLICATION, Passwords
from ottla.model.errors import OttlaError

BROKERS = "brokers"
"""Stands for the user that brokers are to each other."""
ZOOKEEPER = "zookeeper"
"""Stands for the user that brokers are to ZooKeeper."""
NAMES = (ADMIN, APPLICATION, BROKERS)
"""Those of `--all`."""


def cluster_with_users(folder: ClusterDir) -> LocalCluster:
    """Return the cluster of a folder; OttlaError unless it is secured and its ZooKeeper runs."""
    cluster = folder.existing()
    if not cluster.has_users:
        raise OttlaError(f"the cluster in {folder} has no users of `ottla up --secure`")
    problem = folder.zookeeper_problem()
    if problem is not None:
        raise OttlaError(problem)
    return cluster


def rotate(
    folder: ClusterDir, names: Sequence[str], timeout_s: float, tell: Callable[[str], None]
) -> None:
    """Give users new passwords. For brokers: waits `timeout_s` at most for each to be in sync."""
    cluster = cluster_with_users(folder)
    known = secure.load_passwords(folder)
    clients = {name: secure.new_password() for name in names if name != BROKERS}
    if clients:
        with folder.locked():
            secure.put_passwords(folder.zookeeper(cluster), clients)
            known.users.update(clients)
            secure.save_passwords(folder, known)
            secure.write_client_files(folder, cluster, known)
        for name in clients:
            tell(f"user {name} has a new password, which the files in {folder.clients_dir} have")
    if BROKERS in names:
        _rotate_brokers(folder, cluster, known, timeout_s, tell)


def rotate_stopped(folder: ClusterDir) -> None:
    """Give brokers a new password for ZooKeeper; OttlaError while one of them runs.

    ZooKeeper and brokers read it at their start, and ZooKeeper knows one password for each user.
    """
    cluster = folder.existing()
    if not folder.zookeeper_jaas.exists():
        raise OttlaError(f"the ZooKeeper of {folder} has no users of `ottla up --secure`")
    with folder.locked():
        if cluster.processes():
            raise OttlaError(
                "zookeeper: it and the brokers read this password when they start; stop them "
                "first: ottla down"
            )
        known = secure.load_passwords(folder)
        known.zookeeper = secure.new_password()
        secure.save_passwords(folder, known)
        secure.write_jaas_file(folder, known)


def _rotate_brokers(
    folder: ClusterDir,
    cluster: LocalCluster,
    known: Passwords,
    timeout_s: float,
    tell: Callable[[str], None],
) -> None:
    if known.former_broker_user is None:  # else a rotation that was cut short goes on
        fresh = {known.other_broker_user: secure.new_password()}
        with folder.locked():
            secure.put_passwords(folder.zookeeper(cluster), fresh)
            known.users.update(fresh)
            known.broker_user = known.other_broker_user
            secure.save_passwords(folder, known)
    former = known.former_broker_user
    assert former is not None, "brokers have two names now"
    tell(f"brokers are restarted one by one as user {known.broker_user}")
    brokers.restart(folder, brokers.restart_order(folder, []), timeout_s, tell)
    secure.remove_password(folder.zookeeper(cluster), former)
    del known.users[former]
    secure.save_passwords(folder, known)
    tell(f"user {former} has no password any more")
