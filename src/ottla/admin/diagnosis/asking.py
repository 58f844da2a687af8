"""Asking a cluster for the facts that rules judge: over the wire, from ZooKeeper, of this machine.

Invariants: nothing changes; any Kafka is asked; what does not respond is named in
`Facts.not_asked`, and all else is asked all the same; the time is bounded by `watch_s` and a
timeout for each request.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.admin.diagnosis.clients import REBALANCING
from ottla.admin.diagnosis.facts import (
    Descriptors,
    Facts,
    GroupFacts,
    LogDirFacts,
    OpenTransaction,
    PartitionFacts,
    Registration,
    Stray,
    Throttle,
    TopicSettings,
    View,
)
from ottla.admin.session import world
from ottla.client import (
    cluster_snapshot,
    configs,
    groups,
    left_over_throttles,
    log_dirs,
    offsets,
    reassignments,
    transactions,
)
from ottla.client.client import Client, partitions_of
from ottla.client.groups import SHARE
from ottla.local import processes
from ottla.local.cluster_dir import disk_problem
from ottla.local.zookeeper_session import ZooKeeper, opened
from ottla.log import damage, lives
from ottla.log.log_dir import STRAY
from ottla.log.stray_folders import NEVER, STRAY_NOTE, StrayNote, decode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.model.printable import plural
from ottla.model.protocol import EARLIEST, LATEST
from ottla.model.waits import waiting
from ottla.wire.messages.cluster import MetadataRequest, MetadataResponse
from ottla.zookeeper.addresses import ConnectString
from ottla.zookeeper.errors import NoNodeError, OperationTimeoutError

if TYPE_CHECKING:
    from ottla.zookeeper.session import Session

LOOK_EVERY_S = 0.5
MOST_GROUPS = 1000
BROKER_TIMEOUT_S = 5.0
ZOOKEEPER_CONNECT = "zookeeper.connect"
PROCESS_ROLES = "process.roles"
"""Set on brokers of KRaft, and on no others."""
RETENTION = "ottla.stray.retention.ms"
LOOPBACK = ("127.", "::1", "localhost")


class Asked(NamedTuple):
    """What to ask. `zookeeper`: another address than that of the brokers' settings."""

    watch_s: float
    older_than_ms: int
    zookeeper: str | None = None
    zookeeper_settings: Mapping[str, str] = MappingProxyType({})
    """How to connect to it, as brokers have it."""
    only_if_unsettled: bool = False
    """Do not watch a cluster whose replicas are in sync, whose brokers agree and whose groups do
    not rebalance: nothing of it would change."""
    made_here: bool = False
    """Whether `ottla up` made the cluster, ZooKeeper included, on one machine."""


class _GroupLook(NamedTuple):
    state: str
    members: int
    committed: dict[TopicPartition, int]


async def ask(client: Client, asked: Asked) -> Facts:
    """Return the facts of a cluster."""
    response = await client.metadata(None)
    facts = Facts(
        response.controller_id,
        {b.node_id: b.rack for b in sorted(response.brokers, key=lambda b: b.node_id)},
        made_here=asked.made_here,
    )
    addresses = {b.node_id: (b.host, b.port) for b in response.brokers}

    async def part(what: str, asking: Callable[[], Awaitable[None]]) -> None:
        try:
            await asking()
        except OttlaError as error:
            facts.not_asked.append(f"{what}: {error}")

    first_groups: dict[str, _GroupLook] = {}
    first_views = await _views(client, facts)

    async def look_at_groups() -> None:
        first_groups.update(await _look_at_groups(client, facts))

    await part("groups", look_at_groups)
    began_s = time.monotonic()
    facts.partitions = _partitions(response)
    watch_s = asked.watch_s
    if asked.only_if_unsettled and _settled(facts, first_views, first_groups):
        watch_s = 0.0
    with waiting(f"ISRs are watched for {watch_s:g} s (--for)"):
        await _watch(client, facts, watch_s)
    await part("settings of topics", lambda: _topic_settings(client, facts))
    await part("reassignments", lambda: _moves(client, facts))
    await part("log dirs", lambda: _log_dirs(client, facts, addresses))
    await part("strays", lambda: _strays(client, facts, addresses))
    await part("throttles", lambda: _throttles(client, facts))
    await part("transactions", lambda: _hanging(client, facts, asked.older_than_ms))
    await part("settings of brokers", lambda: _zookeeper_connects(client, facts))
    await part("ZooKeeper", lambda: _zookeeper(facts, asked))
    await part("descriptors", lambda: _descriptors(facts, addresses))
    await part("groups", lambda: _groups(client, facts, first_groups, began_s))
    last_views = await _views(client, facts)
    facts.silent = [b for b in facts.brokers if b not in first_views and b not in last_views]
    facts.not_asked = list(dict.fromkeys(facts.not_asked))
    for broker, view in last_views.items():
        # What differs twice, so long apart, is no change that is on its way.
        facts.views[broker] = {
            tp: state for tp, state in view.items() if first_views.get(broker, {}).get(tp) == state
        }
    return facts


# --- metadata -----------------------------------------------------------------------------------


async def _views(client: Client, facts: Facts) -> dict[int, View]:
    """Return each broker's own metadata."""
    views: dict[int, View] = {}
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    for broker in facts.brokers:
        try:
            response = await client.call(request, broker, timeout_s=BROKER_TIMEOUT_S)
        except OttlaError as error:
            facts.not_asked.append(f"metadata of broker {broker}: {error}")
            continue
        views[broker] = {tp: (p.leader, p.leader_epoch) for tp, p in _partitions(response).items()}
    return views


def _partitions(response: MetadataResponse) -> dict[TopicPartition, PartitionFacts]:
    return {
        tp: PartitionFacts(p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes))
        for tp, p in sorted(partitions_of(response), key=lambda found: found[0])
        if p.replica_nodes
    }


def _settled(facts: Facts, views: dict[int, View], groups: dict[str, _GroupLook]) -> bool:
    """Return whether nothing that was seen would be seen otherwise in a few seconds."""
    return (
        views.keys() == facts.brokers.keys()
        and all(view == views[min(views)] for view in views.values())
        and all(set(p.isr) == set(p.replicas) for p in facts.partitions.values())
        and not any(look.state in REBALANCING for look in groups.values())
    )


async def _watch(client: Client, facts: Facts, watch_s: float) -> None:
    """Look at the ISRs again and again, and count their changes."""
    began_s = time.monotonic()
    while True:
        now = _partitions(await client.metadata(None))
        for tp, partition in now.items():
            before = facts.partitions.get(tp)
            if before is not None and set(before.isr) != set(partition.isr):
                facts.isr_changes[tp] = facts.isr_changes.get(tp, 0) + 1
        facts.partitions = now
        facts.watched_s = time.monotonic() - began_s
        if facts.watched_s >= watch_s:
            return
        await asyncio.sleep(min(LOOK_EVERY_S, watch_s - facts.watched_s))


# --- settings, moves, disks ---------------------------------------------------------------------


async def _topic_settings(client: Client, facts: Facts) -> None:
    names = list(dict.fromkeys(tp.topic for tp in facts.partitions))
    async for name, found in cluster_snapshot.topic_settings(client, names):
        facts.settings[name] = TopicSettings(*found)


async def _moves(client: Client, facts: Facts) -> None:
    facts.moves = {
        tp: move.adding for tp, move in (await reassignments.in_progress(client)).items()
    }


async def _log_dirs(client: Client, facts: Facts, addresses: dict[int, tuple[str, int]]) -> None:
    described = await log_dirs.describe(client, facts.brokers)
    largest: dict[tuple[int, str], int] = {}
    for replica in described.replicas:
        where = replica.broker, replica.path
        largest[where] = max(replica.size, largest.get(where, 0))
    facts.moving_log_dirs = log_dirs.moving(described)
    here = {b for b, (host, _) in addresses.items() if host.startswith(LOOPBACK)}
    facts.log_dirs = [
        LogDirFacts(
            *found,
            largest.get((found.broker, found.path), 0),
            (disk_problem(found.path) or "") if found.broker in here else "",
        )
        for found in described.dirs
    ]


async def _strays(client: Client, facts: Facts, addresses: dict[int, tuple[str, int]]) -> None:
    """Look into the log dirs of brokers that listen on this machine: no request tells of strays."""
    here = {b for b, (host, _) in addresses.items() if host.startswith(LOOPBACK)}
    for log_dir in facts.log_dirs:
        broker, path = log_dir.broker, log_dir.path
        if broker in here and in_folder(broker, path, -1):
            settings = await configs.settings(
                client, configs.BROKER, str(broker), [RETENTION], timeout_s=BROKER_TIMEOUT_S
            )  # of a JVM broker it has no value
            retention_ms = next((int(s.value) for s in settings if s.value), -1)
            facts.strays += in_folder(broker, path, retention_ms)


async def _throttles(client: Client, facts: Facts) -> None:
    facts.throttles = [
        Throttle(found.kind, found.name, found.settings)
        for found in await left_over_throttles.forgotten(client, facts.moving_log_dirs)
    ]


async def _zookeeper_connects(client: Client, facts: Facts) -> None:
    for broker in facts.brokers:
        found = await configs.settings(
            client,
            configs.BROKER,
            str(broker),
            [ZOOKEEPER_CONNECT, PROCESS_ROLES],
            timeout_s=BROKER_TIMEOUT_S,
        )
        for setting in found:
            facts.kraft |= setting.key == PROCESS_ROLES and bool(setting.value)
            if setting.key == ZOOKEEPER_CONNECT and setting.value:
                facts.zookeepers[broker] = setting.value


async def _hanging(client: Client, facts: Facts, older_than_ms: int) -> None:
    now_ms = int(time.time() * 1000)
    facts.hanging = [
        OpenTransaction(
            TopicPartition(h.topic, h.partition),
            h.producer_id,
            h.start_offset,
            (now_ms - h.last_timestamp) / 1000,
        )
        for h in await transactions.hanging(client, None, older_than_ms, now_ms, facts.not_asked)
    ]


# --- ZooKeeper, this machine --------------------------------------------------------------------


async def _zookeeper(facts: Facts, asked: Asked) -> None:
    address = asked.zookeeper or next(iter(facts.zookeepers.values()), None)
    if address is None and facts.kraft:
        return
    if address is None:
        raise OttlaError("no broker names its zookeeper.connect; write --zookeeper HOST:PORT")
    try:
        session = await opened(ZooKeeper(address, asked.zookeeper_settings))
    except OperationTimeoutError:
        if await _refuses(address):
            facts.refusing_zookeeper = address
        raise
    try:
        facts.deleting = await _deleting(session)
        for broker in facts.brokers:
            try:
                data, stat = await session.get(f"/brokers/ids/{broker}")
                facts.registrations[broker] = Registration(
                    int(json.loads(data)["timestamp"]), stat.mtime
                )
                said, stated = await session.get(f"/ottla/brokers/{broker}")
                if stated.mzxid == stat.czxid:  # of this registration
                    reason = json.loads(said).get("zookeeper_went_back")
                    facts.went_back |= {broker: str(reason)} if reason else {}
            except (NoNodeError, ValueError, KeyError, TypeError, AttributeError):
                continue  # it has just gone, or its registration is none of Kafka's, or not ours
    finally:
        await session.close()


async def _refuses(address: str) -> bool:
    """Return whether every server of a connect string refuses connections."""
    refuses = world().network.refuses
    servers = ConnectString.parse(address).hosts
    return all([await refuses(*server, timeout_s=BROKER_TIMEOUT_S) for server in servers])


async def _deleting(session: "Session") -> dict[str, tuple[int, ...]]:
    try:
        topics = sorted(await session.children("/admin/delete_topics"))
    except NoNodeError:
        return {}
    found: dict[str, tuple[int, ...]] = {}
    for topic in topics:
        try:
            partitions = json.loads((await session.get(f"/brokers/topics/{topic}"))[0])[
                "partitions"
            ]
            found[topic] = tuple(sorted({int(b) for p in partitions.values() for b in p}))
        except (NoNodeError, ValueError, KeyError, TypeError, AttributeError):
            continue  # it has just gone, or is none of Kafka's
    return found


async def _descriptors(facts: Facts, addresses: dict[int, tuple[str, int]]) -> None:
    """Look at the processes of brokers that listen on this machine."""
    ports = {port: b for b, (host, port) in addresses.items() if host.startswith(LOOPBACK)}
    for port, pid in processes.listening(set(ports)).items():
        found = processes.descriptors(pid)
        if found is not None:
            facts.descriptors[ports[port]] = Descriptors(*found)


# --- groups -------------------------------------------------------------------------------------


async def _look_at_groups(client: Client, facts: Facts) -> dict[str, _GroupLook]:
    every = await groups.list_groups(client, facts.not_asked)
    listed = [g for g in every if g.protocol_type in groups.WITH_OFFSETS and g.type != SHARE]
    if len(listed) > MOST_GROUPS:
        facts.not_asked.append(f"{len(listed) - MOST_GROUPS:,} of {plural(len(listed), 'group')}")
    found: dict[str, _GroupLook] = {}
    for group in listed[:MOST_GROUPS]:
        try:
            described = await groups.describe(client, group.group)
            committed = await groups.committed_offsets(client, group.group)
        except OttlaError:
            continue  # it has just gone, or its coordinator moves: the next look has it
        found[group.group] = _GroupLook(
            described.state, len(described.members), {tp: c.offset for tp, c in committed.items()}
        )
    return found


async def _groups(
    client: Client, facts: Facts, before: dict[str, _GroupLook], began_s: float
) -> None:
    now = await _look_at_groups(client, facts)
    watched_s = time.monotonic() - began_s
    wanted = {tp for look in now.values() for tp in look.committed} & facts.partitions.keys()
    starts = await offsets.log_offsets(client, wanted, EARLIEST, problems=facts.not_asked)
    ends = await offsets.log_offsets(client, wanted, LATEST, problems=facts.not_asked)
    for name, look in now.items():
        first = before.get(name, look)
        facts.groups[name] = GroupFacts(
            (first.state, look.state) if name in before else (look.state,),
            look.members,
            {
                tp: (offset, starts[tp], ends[tp])
                for tp, offset in look.committed.items()
                if tp in starts and tp in ends
            },
            first.committed != look.committed,
            watched_s,
        )


def in_folder(broker: int, log_dir: str, retention_ms: int) -> list[Stray]:
    """Return the strays of a log dir, by name; `retention_ms`: how long its broker keeps them."""
    found = []
    try:
        if _zookeeper_went_back(log_dir):
            retention_ms = NEVER
        folders = sorted(Path(log_dir).glob(f"*{STRAY}"))
        for folder in folders:
            if not folder.is_dir() or (folder / damage.DAMAGE_FILE).exists():
                continue
            note = _note(folder)
            found.append(
                Stray(
                    broker,
                    str(folder),
                    str(note.tp) if note else folder.name.rpartition(".")[0],
                    uuid_to_text(note.topic_id) if note else "unknown",
                    sum(path.stat().st_size for path in folder.iterdir()),
                    _time(note.since_ms) if note else "",
                    _time(note.since_ms + retention_ms) if note and retention_ms != NEVER else "",
                )
            )
    except OSError:
        return found
    return found


def _zookeeper_went_back(log_dir: str) -> bool:
    note = Path(log_dir) / lives.LIFE_FILE
    return note.exists() and lives.decode(note.read_bytes()).zookeeper_went_back


def _note(folder: Path) -> StrayNote | None:
    try:
        return decode((folder / STRAY_NOTE).read_bytes())
    except FileNotFoundError:
        return None


def _time(wall_ms: int) -> str:
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%F %T} UTC"
