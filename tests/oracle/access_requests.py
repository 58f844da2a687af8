"""For each API a request that names what a client may have a permission for, and what it has none for.

The topic `read`, the group `g` and the transactional id `t` are what permissions are given for; of
`other`, `h` and `u` no client has any. What a request would change is stale, only validated, or not
there: whether it was allowed is seen by its error.
"""

# ruff: noqa: E501 - a row of a table is a line

from typing import Any

from differential_tables import STAMP, batch

TRANSACTIONAL, PRODUCER = 0x10, 7


def _topics(*, name: str = "name", **partition: Any) -> list[dict[str, Any]]:
    inner = {"partitions": [partition]}
    return [{name: "read", **inner}, {name: "other", **inner}]


def _numbered(field: str = "partition_indexes", name: str = "name") -> list[dict[str, Any]]:
    return [{name: t, field: [0]} for t in ("read", "other")]


def _configs(configs: Any) -> list[dict[str, Any]]:
    key = "configuration_keys" if configs and isinstance(configs[0], str) else "configs"
    kinds = ((2, "read"), (2, "other"), (4, "0"), (8, "0"))
    # AlterConfigs refuses a request with loggers (8) as a whole; here their levels are not altered.
    kinds = kinds if key == "configuration_keys" else kinds[:3]
    return [{"resource_type": t, "resource_name": n, key: configs} for t, n in kinds]


def produce(version: int, *, transactional: bool = False, acks: int = 1) -> dict[str, Any]:
    records = batch(b"v", stamp=STAMP)
    if transactional:
        records = batch(
            b"v",
            stamp=STAMP,
            is_transactional=True,
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=0,
        )
    parts = [{"index": 9, "records": records}]
    topics = [{"name": "read", "partition_data": parts}, {"name": "other", "partition_data": parts}]
    request = {"acks": acks, "timeout_ms": 1000, "topic_data": topics}
    return {**request, "transactional_id": "t"} if version >= 3 and transactional else request


def fetch(version: int, ids: dict[str, bytes], replica: int = -1) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = []
    for name in ("read", "other", "nope"):
        if version >= 13:
            topics.append({"topic_id": ids.get(name, b"\7" * 16), "partitions": [part]})
        else:
            topics.append({"topic": name, "partitions": [part]})
    who = {"replica_state": {"replica_id": replica}} if version >= 15 else {"replica_id": replica}
    return {**who, "max_wait_ms": 0, "min_bytes": 0, "topics": topics}


def _metadata(version: int, **more: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "topics": [{"name": n} for n in ("read", "other", "nope")[: 3 if version >= 4 else 2]]
    }
    if version >= 4:
        wanted["allow_auto_topic_creation"] = False
    if version >= 8:
        wanted["include_topic_authorized_operations"] = True
    if 8 <= version <= 10:
        wanted["include_cluster_authorized_operations"] = True
    return {**wanted, **more}


def _create_topics(version: int) -> dict[str, Any]:
    one = {"num_partitions": 1, "replication_factor": 1}
    topics = [{"name": n, **one} for n in ("read", "other", "new", "__cluster_metadata")]
    bad = {"num_partitions": 0} if version == 0 else {}  # which creates nothing in version 0
    return {"topics": [{**t, **bad} for t in topics], "timeout_ms": 5000,
            **({"validate_only": True} if version else {})}  # fmt: skip


def _delete_topics(version: int, ids: dict[str, bytes]) -> dict[str, Any]:
    names = ["gone", "other"]
    if version < 6:
        return {"topic_names": names, "timeout_ms": 1000}
    topics: list[dict[str, Any]] = [{"name": n} for n in names]
    topics += [{"name": None, "topic_id": ids["other"]}, {"name": None, "topic_id": b"\7" * 16}]
    return {"topics": topics, "timeout_ms": 1000}


def _stale(version: int, lists: str, since: int) -> dict[str, Any]:
    """An order of a controller that there has not been: refused, but by its epochs."""
    return {"controller_id": 0, "controller_epoch": 0, lists: [],
            **({"broker_epoch": 1} if version >= since else {})}  # fmt: skip


def _offset_fetch(version: int, *, every: bool = False) -> dict[str, Any]:
    topics = None if every and version >= 2 else _numbered()
    if version >= 8:
        return {"groups": [{"group_id": g, "topics": topics} for g in ("g", "h")]}
    return {"group_id": "g", "topics": topics}


def _add_partitions(version: int) -> dict[str, Any]:
    names = _numbered("partitions")
    if version < 4:
        return {"v3_and_below_transactional_id": "t", "v3_and_below_producer_id": PRODUCER,
                "v3_and_below_producer_epoch": 0, "v3_and_below_topics": names}  # fmt: skip
    return {"transactions": [{"transactional_id": "t", "producer_id": PRODUCER, "producer_epoch": 0,
                              "verify_only": True, "topics": names}]}  # fmt: skip


def _acl_filter() -> dict[str, Any]:
    return {"resource_type_filter": 2, "resource_name_filter": "unknown", "pattern_type_filter": 3,
            "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip


Row = tuple[str, dict[str, Any]]


def requests(key: int, version: int, ids: dict[str, bytes]) -> list[Row]:
    """Return an API's requests with their names; several where an API has several ways."""
    group = {"group_id": "g", "member_id": "stranger"}
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    producer = {"transactional_id": "t", "producer_id": PRODUCER, "producer_epoch": 0}
    many = {"timeout_ms": 1000}
    both = {"topics": _numbered("partitions")}
    table: dict[int, list[Row]] = {
        0: [("plain", produce(version)), *([("transactional", produce(version, transactional=True))] if version >= 3 else [])],
        1: [("consumer", fetch(version, ids)), ("follower", fetch(version, ids, 1))],
        2: [("offsets", {"replica_id": -1, "topics": _topics(partition_index=0, timestamp=-2)})],
        3: [("named", _metadata(version)), *([("every", _metadata(version, topics=None))] if version else []), *([("made", _metadata(version, allow_auto_topic_creation=True, topics=[{"name": "read"}, {"name": "b d"}, {"name": "nope d"}]))] if version >= 4 else []),
            *([("by id", _metadata(version, topics=[{"topic_id": ids[n], "name": None} for n in ("read", "other")]))] if version >= 12 else [])],
        4: [("order", _stale(version, "live_leaders", 2))],
        5: [("order", {k: v for k, v in _stale(version, "", 1).items() if k})],
        6: [("order", _stale(version, "live_brokers", 5))],
        7: [("shutdown", {"broker_id": 0, "broker_epoch": 1} if version >= 2 else {"broker_id": 99})],
        8: [("commit", {"group_id": "g", "topics": _topics(**offset), **({"member_id": "stranger", "generation_id_or_member_epoch": 3} if version else {})})],
        9: [("named", _offset_fetch(version)), *([("every", _offset_fetch(version, every=True))] if version >= 2 else [])],
        10: [(name, {**({"coordinator_keys": [mine, theirs]} if version >= 4 else {"key": mine}), **({"key_type": kind} if version else {})})
             for kind, mine, theirs, name in ((0, "g", "h", "group"), (1, "t", "u", "transaction"))[: 2 if version else 1]],
        11: [("join", {**group, "protocol_type": "consumer", "session_timeout_ms": 10_000, "protocols": [{"name": "range", "metadata": b""}], **({"rebalance_timeout_ms": 1000} if version else {})})],
        12: [("heartbeat", group)],
        13: [("leave", {"group_id": "g", **({"members": [{"member_id": "stranger"}]} if version >= 3 else {"member_id": "stranger"})})],
        14: [("sync", {**group, "generation_id": 1, **({"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {})})],
        15: [("groups", {"groups": ["g", "h"], **({"include_authorized_operations": True} if version >= 3 else {})})],
        16: [("list", {})],
        17: [("handshake", {"mechanism": "PLAIN"})],
        18: [("versions", {"client_software_name": "d", "client_software_version": "1"} if version >= 3 else {})],
        19: [("topics", _create_topics(version))],
        20: [("topics", _delete_topics(version, ids))],
        21: [("records", {**many, "topics": _topics(partition_index=0, offset=0)})],
        22: [("transactional", {"transactional_id": "t", "transaction_timeout_ms": -1}), ("idempotent", {"transactional_id": None, "transaction_timeout_ms": 1000})],
        23: [("epochs", {"topics": _topics(name="topic", partition=0, leader_epoch=0), **({"replica_id": -1} if version >= 3 else {})})],
        24: [("partitions", _add_partitions(version))],
        25: [("offsets", {**producer, "group_id": "g"})],
        26: [("end", {**producer, "committed": True})],
        27: [("markers", {"markers": []})],
        28: [("commit", {**producer, "group_id": "g", "topics": _topics(**offset), **({"member_id": "stranger", "generation_id": 3} if version >= 3 else {})})],
        29: [("acls", _acl_filter())],
        30: [("acls", {"creations": [{"resource_type": 2, "resource_name": "", "principal": "User:x", "host": "*", "operation": 3, "permission_type": 3}]})],
        31: [("acls", {"filters": [_acl_filter()]})],
        32: [("configs", {"resources": _configs(["retention.ms", "log.retention.hours", "nonsense"])})],
        33: [("configs", {"resources": _configs([]), "validate_only": True})],
        34: [("dirs", {"dirs": [{"path": "/nowhere", "topics": _numbered("partitions")}]})],
        35: [("dirs", {"topics": _numbered("partitions", "topic")})],
        36: [("authenticate", {"auth_bytes": b""})],
        38: [("token", {"renewers": [], "max_lifetime_ms": -1})],
        39: [("token", {"hmac": b"none", "renew_period_ms": -1})],
        40: [("token", {"hmac": b"none", "expiry_time_period_ms": -1})],
        41: [("tokens", {"owners": None})],
        37: [("partitions", {**many, "topics": [{"name": n, "count": 2, "assignments": None} for n in ("read", "other")], "validate_only": True})],
        42: [("groups", {"groups_names": ["g", "h"]})],
        43: [("leaders", {**many, "topic_partitions": _numbered("partitions", "topic")})],
        44: [("configs", {"resources": _configs([{"name": "nonsense", "config_operation": 0, "value": "1"}]), "validate_only": True})],
        45: [("moves", {**many, "topics": []})],
        46: [("moves", {**many, "topics": None})],
        47: [("offsets", {"group_id": "g", "topics": _topics(partition_index=0)})],
        48: [("quotas", {"components": [], "strict": False})],
        49: [("quotas", {"entries": [], "validate_only": True})],
        50: [("users", {"users": [{"name": "nobody"}]})],
        51: [("users", {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []})],
        56: [("partition", {"broker_id": 99, "broker_epoch": 1, "topics": []})],
        57: [("features", {"timeout_ms": 1000, "feature_updates": []})],
        60: [("cluster", {"include_cluster_authorized_operations": True})],
        61: [("producers", both | {"topics": _numbered()})],
        65: [("transactions", {"transactional_ids": ["t", "u"]})],
        66: [("transactions", {})],
        67: [("ids", {"broker_id": 99, "broker_epoch": 1})],
    }  # fmt: skip
    return table[key]
