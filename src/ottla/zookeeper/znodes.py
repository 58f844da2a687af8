"""Kafka's znodes: every path, and its JSON to typed values and back.

Invariants: what we write has the bytes that the JVM of 3.9 writes; older versions are read, unknown
keys are ignored; anything else raises MalformedZnodeError naming path and reason, so that one bad
znode never takes more than itself down (fault F41). Kafka: `ZkData`.

Kafka builds its JSON from Scala and Java hash maps; which key comes first is decided by hashes and
table sizes. Order carries no meaning, but equal bytes make znodes comparable across a mixed cluster
(scala.collection.{mutable,immutable}.HashMap of 2.13, java.util.concurrent.ConcurrentHashMap under
`Properties`).
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from ottla.model.cluster import (
    RECOVERED,
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_text, uuid_to_text
from ottla.zookeeper.errors import MalformedZnodeError

# --- paths ------------------------------------------------------------------------------------

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
CONSUMERS = "/consumers"
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"  # noqa: S105 - a path # nosec B105
MIGRATION = "/migration"

CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY = "<default>"

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)
"""What every broker creates at its start if it is not there, in Kafka's order."""


V = TypeVar("V")
_LOAD_FACTOR = 0.75


def java_hash(text: str) -> int:
    """Return `String.hashCode` as an unsigned 32-bit number."""
    result = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(raw), 2):
        result = (31 * result + (raw[i] << 8 | raw[i + 1])) & 0xFFFFFFFF
    return result


def _spread(text: str) -> int:
    h = java_hash(text)
    return h ^ h >> 16


def _power_of_two(at_least: int) -> int:
    return 1 << max(4, at_least - 1).bit_length() if at_least > 4 else 4


def scala_mutable(
    entries: Mapping[str, V], *, built_with: int = 0, key: Callable[[str], str] = str
) -> dict[str, V]:
    """Order as a Scala mutable map made of `built_with` entries, the others added one by one."""
    size = _power_of_two(int((built_with + 1) / _LOAD_FACTOR)) if built_with else 16
    while len(entries) >= int(size * _LOAD_FACTOR):
        size *= 2

    def place(item: tuple[str, V]) -> tuple[int, int]:
        h = _spread(key(item[0]))
        return h & (size - 1), h - (1 << 32) if h >> 31 else h

    return dict(sorted(entries.items(), key=place))


def scala_immutable(entries: Mapping[str, V]) -> dict[str, V]:
    """Order as a Scala immutable map: as given up to four entries, a hash trie beyond."""
    if len(entries) <= 4:
        return dict(entries)
    hashes = {name: _improve(java_hash(name)) for name in entries}
    return {name: entries[name] for name in _trie_order(list(entries), hashes, 0)}


def _improve(h: int) -> int:
    h = (h + ~(h << 9)) & 0xFFFFFFFF
    h ^= h >> 14
    h = (h + (h << 4)) & 0xFFFFFFFF
    return h ^ h >> 10


def _trie_order(names: Collection[str], hashes: Mapping[str, int], shift: int) -> list[str]:
    if shift > 30:
        return list(names)  # equal hashes: in the order added
    slots: dict[int, list[str]] = {}
    for name in names:
        slots.setdefault(hashes[name] >> shift & 31, []).append(name)
    order = [slots[slot][0] for slot in sorted(slots) if len(slots[slot]) == 1]
    for slot in sorted(slots):
        if len(slots[slot]) > 1:
            order += _trie_order(slots[slot], hashes, shift + 5)
    return order


def java_properties(entries: Mapping[str, V]) -> dict[str, V]:
    """Order as a java.util.Properties that had 16 slots at first and doubles when 3/4 full."""
    size = 16
    while len(entries) >= size - (size >> 2):
        size *= 2
    return dict(sorted(entries.items(), key=lambda item: _spread(item[0]) & (size - 1)))


def with_parents(paths: Iterable[str]) -> list[str]:
    """Return the paths and all that they are below, each once, parents before their children."""
    found: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")
        found |= dict.fromkeys("/".join(parts[:n]) for n in range(2, len(parts) + 1))
    return list(found)


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(tp: TopicPartition) -> str:
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}"


def state_path(tp: TopicPartition) -> str:
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}/state"


def config_path(entity_type: str, entity_name: str) -> str:
    """Path of an entity's settings; the name is sanitized already (or `<default>`)."""
    return f"{CONFIG}/{entity_type}/{entity_name}"


def consumer_offset_path(group: str, tp: TopicPartition) -> str:
    """Path of an offset that a consumer older than Kafka 0.9 committed."""
    return f"{CONSUMERS}/{group}/offsets/{tp.topic}/{tp.partition}"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")


def sanitize(name: str) -> str:
    """Return an entity name as a path may hold it (Kafka's `Sanitizer`)."""
    return "".join(chr(b) if b in _KEPT else f"%{b:02X}" for b in name.encode())


def desanitize(name: str) -> str:
    if "%" not in name:
        return name
    from urllib.parse import unquote  # with `ipaddress` 0.6 MB, for few names

    return unquote(name)


# --- reading and writing JSON -----------------------------------------------------------------

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
T = TypeVar("T")
_encode = msgspec.json.encode


def decode_json(kind: type[T], path: str, data: bytes) -> T:
    return decode_with(msgspec.json.Decoder(kind), path, data)


def decode_with(decoder: "msgspec.json.Decoder[T]", path: str, data: bytes) -> T:
    if not data:
        raise MalformedZnodeError(path, "it is empty")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedZnodeError(path, str(error)) from None
    except RecursionError:
        raise MalformedZnodeError(path, "it is nested too deeply") from None


def _number(path: str, what: str, text: str, bits: int = 32) -> int:
    """Parse decimal text as the JVM's toInt or toLong would."""
    if len(text) < 10 and text.isascii() and text.isdigit():
        return int(text)
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text, re.ASCII) and -(1 << bits - 1) <= (
        number := int(text)
    ) < (1 << bits - 1):
        return number
    raise MalformedZnodeError(path, f"{what} {text[:40]!r} is no {bits}-bit number")


# --- cluster, controller ----------------------------------------------------------------------


class _ClusterId(Struct):
    id: str


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return decode_json(_ClusterId, CLUSTER_ID, data).id


class ControllerRegistration(NamedTuple):
    """Who `/controller` names; `kraft_epoch` above 0 only during a migration to KRaft."""

    broker_id: int
    kraft_epoch: int
    zk_version: int = -1


class _Controller(Struct, rename="camel"):
    brokerid: Int32
    kraft_controller_epoch: Int32 | None = None


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return (
        f'{{"version":2,"brokerid":{broker_id},"timestamp":"{timestamp_ms}",'
        f'"kraftControllerEpoch":-1}}'
    ).encode()


def decode_controller(data: bytes, zk_version: int = -1) -> ControllerRegistration:
    found = decode_json(_Controller, CONTROLLER, data)
    epoch = found.kraft_controller_epoch
    return ControllerRegistration(found.brokerid, -1 if epoch is None else epoch, zk_version)


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    return _number(CONTROLLER_EPOCH, "epoch", data.decode("utf-8", "replace"))


# --- brokers ----------------------------------------------------------------------------------

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,10})")


class _Broker(Struct):
    version: Int32
    jmx_port: Int32
    host: str | None = None
    port: Int32 | None = None
    endpoints: list[str] | None = None
    rack: str | None = None
    listener_security_protocol_map: dict[str, str] | None = None
    features: dict[str, dict[str, Int32]] | None = None


def encode_broker(info: BrokerInfo, timestamp_ms: int, *, version: int = 5) -> bytes:
    """Return a registration; version 5 from inter.broker.protocol.version 2.7 on, else 4."""
    plain = next((e for e in info.endpoints if e.protocol == "PLAINTEXT"), None)
    fields: dict[str, Any] = {
        "version": version,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "endpoints": [str(e) for e in info.endpoints],
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
    }
    if info.rack is not None:
        fields["rack"] = info.rack
    protocols = {e.listener: e.protocol for e in info.endpoints}
    fields["listener_security_protocol_map"] = scala_immutable(protocols)
    if version >= 5:
        fields["features"] = {
            name: {"min_version": low, "max_version": high}
            for name, (low, high) in info.features.items()
        }
    return _encode(scala_mutable(fields, built_with=6))


def decode_broker(broker_id: int, data: bytes, czxid: int = -1) -> BrokerInfo:
    """Return a registration; `czxid` of its znode becomes the broker's epoch."""
    path = broker_path(broker_id)
    found = decode_json(_Broker, path, data)
    if found.version < 1:
        raise MalformedZnodeError(path, f"version {found.version} is not known")
    if found.version == 1:
        if found.host is None or found.port is None:
            raise MalformedZnodeError(path, "version 1 without host or port")
        endpoints: tuple[Endpoint, ...] = (Endpoint(found.host, found.port),)
    else:
        if found.endpoints is None:
            raise MalformedZnodeError(path, "no endpoints")
        protocols = found.listener_security_protocol_map
        endpoints = tuple(_endpoint(path, text, protocols) for text in found.endpoints)
    features = {
        name: (levels.get("min_version", 0), levels.get("max_version", 0))
        for name, levels in (found.features or {}).items()
    }
    return BrokerInfo(broker_id, endpoints, found.rack, czxid, features)


def _endpoint(path: str, text: str, protocols: Mapping[str, str] | None) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise MalformedZnodeError(path, f"{text[:80]!r} is no endpoint")
    listener, host, port = match[1].upper(), match[2], int(match[3])
    protocol = listener
    if protocols is not None:
        by_name = {name.upper(): value for name, value in protocols.items()}
        if listener not in by_name:
            raise MalformedZnodeError(path, f"no security protocol for listener {listener}")
        protocol = by_name[listener].upper()
    if not -1 <= port <= 65535:
        raise MalformedZnodeError(path, f"port {port} in {text[:80]!r}")
    return Endpoint(host, port, listener, protocol)


# --- topics and partitions --------------------------------------------------------------------


class _Topic(Struct):
    partitions: dict[str, list[Int32]] = {}
    adding_replicas: dict[str, list[Int32]] = {}
    removing_replicas: dict[str, list[Int32]] = {}
    topic_id: str | None = None


_topic_decoder = msgspec.json.Decoder(_Topic)


def encode_topic(info: TopicInfo) -> bytes:
    def written(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
        return scala_mutable({str(p): list(r) for p, r in replicas.items()})

    fields: dict[str, Any] = {
        "version": 3,
        "partitions": written({p: a.replicas for p, a in info.assignment.items()}),
        "adding_replicas": written({p: a.adding for p, a in info.assignment.items() if a.adding}),
        "removing_replicas": written(
            {p: a.removing for p, a in info.assignment.items() if a.removing}
        ),
    }
    if info.topic_id is not None:
        fields["topic_id"] = uuid_to_text(info.topic_id)
    return _encode(scala_mutable(fields, built_with=4))


def decode_topic(topic: str, data: bytes) -> TopicInfo:
    """Return a topic of version 1, 2 or 3; partitions in ascending order.

    An id that cannot be read is as one that is not there: the controller knows the topic's.
    """
    path = topic_path(topic)
    found = decode_with(_topic_decoder, path, data)
    topic_id = None
    if found.topic_id is not None:
        with contextlib.suppress(ValueError):
            topic_id = uuid_from_text(found.topic_id)
        if topic_id == ZERO_UUID:
            topic_id = None
    assignment = {}
    for text, replicas in found.partitions.items():
        partition = _number(path, "partition", text)
        if partition < 0:
            raise MalformedZnodeError(path, f"partition {partition}")
        assignment[partition] = ReplicaAssignment(
            tuple(replicas),
            tuple(found.adding_replicas.get(text, ())),
            tuple(found.removing_replicas.get(text, ())),
        )
    return TopicInfo(topic, topic_id, dict(sorted(assignment.items())))


class _State(Struct):
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    controller_epoch: Int32
    leader_recovery_state: Int32 = RECOVERED


_state_decoder = msgspec.json.Decoder(_State)


def encode_state(state: LeaderAndIsr, controller_epoch: int) -> bytes:
    recovery = ""
    if state.recovery_state != RECOVERED:
        recovery = f'"leader_recovery_state":{state.recovery_state},'
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{state.leader},"version":1,{recovery}'
        f'"leader_epoch":{state.leader_epoch},"isr":[{",".join(map(str, state.isr))}]}}'
    ).encode()


def decode_state(tp: TopicPartition, data: bytes, zk_version: int) -> LeaderIsrAndControllerEpoch:
    found = decode_with(_state_decoder, state_path(tp), data)
    if found.leader_recovery_state not in (0, 1):
        raise MalformedZnodeError(
            state_path(tp), f"leader_recovery_state {found.leader_recovery_state}"
        )
    state = LeaderAndIsr(
        found.leader, found.leader_epoch, tuple(found.isr), zk_version, found.leader_recovery_state
    )
    return LeaderIsrAndControllerEpoch(state, found.controller_epoch)


# --- what people and brokers ask the controller -----------------------------------------------


class _Partition(Struct):
    topic: str
    partition: Int32


class _Partitions(Struct):
    partitions: list[_Partition]


class _Reassigned(Struct):
    topic: str
    partition: Int32
    replicas: list[Int32]


class _Reassignment(Struct):
    partitions: list[_Reassigned]


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    listed = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    return _encode({"version": 1, "partitions": listed})


def _decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    found = decode_json(_Partitions, path, data).partitions
    return list(dict.fromkeys(TopicPartition(p.topic, p.partition) for p in found))


encode_isr_change = _encode_partitions
encode_preferred_election = _encode_partitions


def decode_isr_change(name: str, data: bytes) -> list[TopicPartition]:
    return _decode_partitions(f"{ISR_CHANGES}/{name}", data)


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    return _decode_partitions(PREFERRED_REPLICA_ELECTION, data)


def encode_reassignment(reassignment: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    listed = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in reassignment.items()
    ]
    return _encode({"version": 1, "partitions": listed})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    found = decode_json(_Reassignment, REASSIGN_PARTITIONS, data).partitions
    return {TopicPartition(p.topic, p.partition): tuple(p.replicas) for p in found}


class _LogDirEvent(Struct):
    broker: Int32


def encode_log_dir_event(broker_id: int) -> bytes:
    return f'{{"version":1,"broker":{broker_id},"event":1}}'.encode()


def decode_log_dir_event(name: str, data: bytes) -> int:
    return decode_json(_LogDirEvent, f"{LOG_DIR_EVENTS}/{name}", data).broker


# --- settings ---------------------------------------------------------------------------------


class _Config(Struct):
    config: dict[str, str] = {}


class _ConfigChange(Struct):
    version: Int32
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None


def encode_config(config: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": java_properties(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Return an entity's settings; an empty znode has none."""
    return dict(decode_json(_Config, path, data).config) if data else {}


def encode_config_change(entity_path: str) -> bytes:
    return _encode({"version": 2, "entity_path": entity_path})


def decode_config_change(name: str, data: bytes) -> str:
    """Return the changed entity's path below /config, such as `topics/T`."""
    path = f"{CONFIG_CHANGES}/{name}"
    found = decode_json(_ConfigChange, path, data)
    if found.version == 1 and found.entity_type in ("topics", "clients") and found.entity_name:
        return f"{found.entity_type}/{found.entity_name}"
    if found.version == 2 and found.entity_path and found.entity_path.partition("/")[2]:
        return found.entity_path
    raise MalformedZnodeError(path, f"no entity in version {found.version}")


# --- producer ids, features -------------------------------------------------------------------


class ProducerIdBlock(NamedTuple):
    """Producer ids `first` to `last`, given to a broker."""

    broker_id: int
    first: int
    last: int


class _Block(Struct):
    broker: Int32
    block_start: str
    block_end: str


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return (
        f'{{"version":1,"broker":{block.broker_id},'
        f'"block_start":"{block.first}","block_end":"{block.last}"}}'
    ).encode()


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    found = decode_json(_Block, PRODUCER_ID_BLOCK, data)
    first = _number(PRODUCER_ID_BLOCK, "block_start", found.block_start, 64)
    last = _number(PRODUCER_ID_BLOCK, "block_end", found.block_end, 64)
    if not 0 <= first <= last:
        raise MalformedZnodeError(PRODUCER_ID_BLOCK, f"the block {first} to {last}")
    return ProducerIdBlock(found.broker, first, last)


class Features(NamedTuple):
    """Finalized features. `enabled` from inter.broker.protocol.version 2.7 on."""

    enabled: bool
    levels: Mapping[str, int]
    version: int = 2


class _Feature(Struct):
    version: Int32
    status: Int32
    features: dict[str, dict[str, Int32]]


def encode_features(features: Features) -> bytes:
    levels = {
        name: {"max_version_level": level, "min_version_level": level}
        if features.version == 1
        else {"max_version_level": level}
        for name, level in features.levels.items()
    }
    fields = {
        "version": features.version,
        "status": int(features.enabled),
        "features": scala_immutable(levels),
    }
    return _encode(scala_mutable(fields, built_with=3))


def decode_features(data: bytes) -> Features:
    found = decode_json(_Feature, FEATURE, data)
    if found.version not in (1, 2) or found.status not in (0, 1):
        raise MalformedZnodeError(FEATURE, f"version {found.version}, status {found.status}")
    levels = {}
    for name, level in found.features.items():
        top = level.get("max_version_level", 0)
        bottom = level.get("min_version_level", 0) if found.version == 1 else 1
        if not 1 <= bottom <= top:
            raise MalformedZnodeError(FEATURE, f"feature {name!r} has the levels {level}")
        levels[name] = top
    return Features(bool(found.status), levels, found.version)
