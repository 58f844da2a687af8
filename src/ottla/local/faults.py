"""Cuts: brokers of the cluster on this machine are separated from each other and from ZooKeeper.

Invariants: what is cut is what the brokers say is, not what was asked for; a cut is in both
brokers, since each opens connections to the other; nothing gets through in either direction, and no
error says so; it ends after LASTS_S. Clients can still reach the brokers.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ottla.local.cluster_dir import ClusterDir, LocalBroker, LocalCluster
from ottla.model.errors import OttlaError
from ottla.model.ports import address_text
from ottla.model.printable import plural
from ottla.net import fault_socket
from ottla.net.fault_socket import FaultRequest, FaultResponse
from ottla.net.faults import Link
from ottla.zookeeper.addresses import ConnectString

Tell = Callable[[str], None]

LASTS_S = 1800.0
ASK_S = 5.0
LOOK_S = 0.5
TARGETS = ("all", "brokers", "zookeeper")
"""What a broker can be cut from, besides single brokers by id."""


def targets(broker_id: int, from_: str, ids: Collection[int]) -> tuple[list[int], bool]:
    """Return the brokers that `from_` names, and whether it names ZooKeeper, too."""
    others = [i for i in ids if i != broker_id]
    if from_ == "all":
        return others, True
    if from_ == "brokers":
        return others, False
    if from_ == "zookeeper":
        return [], True
    if from_.isascii() and from_.isdigit() and int(from_) in others:
        return [int(from_)], False
    known = ", ".join([*TARGETS, *map(str, others)])
    raise OttlaError(f"cut broker {broker_id} from {from_[:40]}: there are {known}")


def cut(folder: ClusterDir, broker_id: int, from_: str, tell: Tell) -> None:
    """Cut a broker from others, until `heal` or for LASTS_S; other cuts stay.

    OttlaError, and nothing is cut, if it does not run or one of them is paused.
    """
    cluster = folder.existing()
    with folder.locked():
        ids, zookeeper = targets(broker_id, from_, [b.id for b in cluster.brokers])
        ours = cluster.broker(broker_id)
        if not ours.running:
            raise OttlaError(f"broker {broker_id} is not running: {folder.why_down(ours)}")
        others = [cluster.broker(i) for i in ids]
        for broker in (ours, *others):
            if broker.running and broker.paused:
                raise OttlaError(
                    f"broker {broker.id} is paused; resume it with `ottla broker resume "
                    f"{broker.id}`"
                )
        for broker in others:
            if not broker.running:
                tell(f"broker {broker.id} is not running: it is not cut from broker {broker_id}")
        others = [b for b in others if b.running]
        added = {broker.id: [ours.address] for broker in others}
        added[ours.id] = [b.address for b in others]
        added[ours.id] += _zookeeper(cluster) if zookeeper else []
        for broker in (ours, *others):
            links = dict(_ask(folder, broker, FaultRequest()).links)
            links |= dict.fromkeys(added[broker.id], Link("drop"))
            _ask(folder, broker, FaultRequest(links, LASTS_S))
        tell(f"broker {broker_id} is cut from {_words([b.id for b in others], zookeeper)}")


def heal(folder: ClusterDir, tell: Tell) -> list[int]:
    """End all cuts; return the brokers where none is left.

    One that is paused is named; OttlaError for one that does not respond, after all the others.
    """
    cluster = folder.existing()
    with folder.locked():
        healed: list[int] = []
        silent: list[int] = []
        for broker in cluster.brokers:
            if broker.paused:
                tell(f"broker {broker.id} is paused: resume it, then run heal again")
            elif broker.running and _has_socket(folder, broker):
                try:
                    _ask(folder, broker, FaultRequest({}))
                except OttlaError:
                    silent.append(broker.id)
                else:
                    healed.append(broker.id)
        if silent:
            ids = " ".join(map(str, silent))
            raise OttlaError(
                f"broker {ids} did not respond, so that its cuts stay until it restarts (`ottla "
                f"broker restart {ids}`); all others are healed"
            )
        tell(f"healed: nothing is cut any more at {plural(len(healed), 'broker')}")
    return healed


def end_all(folder: ClusterDir, brokers: Collection[LocalBroker]) -> None:
    """End the cuts in these brokers before they are stopped: each hands over then."""
    for broker in brokers:
        if broker.running and not broker.paused and _has_socket(folder, broker):
            with contextlib.suppress(OSError):
                fault_socket.ask(_path(folder, broker), FaultRequest({}), LOOK_S)


def in_force(folder: ClusterDir) -> dict[int, str]:
    """Return what each broker is cut from, in words; without those that cannot be asked."""
    found: dict[int, str] = {}
    cluster = folder.load()
    for broker in () if cluster is None else cluster.brokers:
        if not broker.running or broker.paused:
            continue
        try:
            now = fault_socket.ask(_path(folder, broker), FaultRequest(), LOOK_S)
        except OSError:
            continue
        if now.links and cluster is not None:
            found[broker.id] = _from_whom(cluster, now)
    return found


def described(cuts: Mapping[int, str]) -> str:
    """Return in words which brokers are cut from what, and what ends it."""
    named = "; ".join(f"broker {broker} is cut from {whom}" for broker, whom in cuts.items())
    return f"{named} (`ottla broker heal` ends it)"


def _from_whom(cluster: LocalCluster, now: FaultResponse) -> str:
    others = [b.id for b in cluster.brokers if b.address in now.links]
    zookeeper = any(address in now.links for address in _zookeeper(cluster))
    return f"{_words(others, zookeeper)}, for {now.left_s / 60:.0f} min more at most"


def _words(ids: Collection[int], zookeeper: bool) -> str:
    named = [f"broker {i}" for i in ids] + (["ZooKeeper"] if zookeeper else [])
    return ", ".join(named) or "no other broker"


def _zookeeper(cluster: LocalCluster) -> list[str]:
    hosts = ConnectString.parse(cluster.zookeeper.address).hosts
    return [address_text(host, port) for host, port in hosts]


def _path(folder: ClusterDir, broker: LocalBroker) -> str:
    return str(folder.faults_socket(broker.id))


def _has_socket(folder: ClusterDir, broker: LocalBroker) -> bool:
    return Path(_path(folder, broker)).exists()


def _ask(folder: ClusterDir, broker: LocalBroker, request: FaultRequest) -> FaultResponse:
    if not _has_socket(folder, broker):
        raise OttlaError(
            f"broker {broker.id} was started by a version that knows no cuts; restart it: `ottla "
            f"broker restart {broker.id}`"
        )
    try:
        now = fault_socket.ask(_path(folder, broker), request, ASK_S)
    except OSError as error:
        raise OttlaError(
            f"broker {broker.id} did not take the cut: {error.strerror or error}; end those of "
            "other brokers with `ottla broker heal`, or Heal in the console"
        ) from error
    if now.problem:
        raise OttlaError(f"broker {broker.id} did not take the cut: {now.problem}")
    return now
