"""Scenarios of three brokers: asked of the leader, a follower, a stranger to the partition, the
controller and others; and flows in which leaders move, replicas are reassigned and a broker dies.

Broker 0 is the controller on both sides. Replicas are where `differential_side.PLACED` puts them, so
that both sides have the same leaders, in sync with the same followers, in the same epochs.
"""

# ruff: noqa: E501 - a row of a table is a line

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from differential_side import PLACED, contents
from differential_tables import Flow, Scenario, batch, fetch, produce

CONTROLLER, OTHER = 0, 1
EVERYBODY = (0, 1, 2)
LEADER, FOLLOWER, STRANGER = 0, 1, 2
"""Of the topic `read`, which has replicas on two brokers."""
ROLES = {LEADER: "the leader", FOLLOWER: "a follower", STRANGER: "a stranger"}
SESSION = "session_id: drawn by chance"
TEXT = "responses[].partition_responses[].error_message: ours says what is wrong, Kafka sends null"
NEW_ID = "topics[].topic_id: a new topic's id is random"
DROPPED = (
    "responses[].partitions[].error_code: ours refuses to leave fewer in sync than "
    "min.insync.replicas (R14), Kafka drops them: docs/COMPATIBILITY.md"
)
GROUP, TRANSACTION = "a", "t"


def listing(topic: str, timestamp: int = -1, **part: Any) -> dict[str, Any]:
    parts = [{"partition_index": 0, "timestamp": timestamp, **part}]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": parts}]}


def ending(topic: str, leader_epoch: int = 0, replica: int = -1, **part: int) -> dict[str, Any]:
    parts = [{"partition": 0, "leader_epoch": leader_epoch, **part}]
    return {"replica_id": replica, "topics": [{"topic": topic, "partitions": parts}]}


def partitions(at: int) -> Iterator[Scenario]:
    """Yield what is asked of partitions, at the one who leads and at others."""

    def row(
        key: int, name: str, request: Any, low: int = 0, high: int = 99, **more: Any
    ) -> Scenario:
        return Scenario(key, f"{name}, of {ROLES[at]}", request, low, high, at=at, **more)

    good = batch(b"a", b"b")
    if at != LEADER:
        for acks in (1, -1):
            yield row(0, f"acks {acks}", produce("read", good, acks=acks), 3)
        yield row(0, "acks 0", produce("read", good, acks=0), 3, unanswered=True)
    for name, part in {
        "from the start": {},
        "at the end": {"fetch_offset": 10},
        "beyond the end": {"fetch_offset": 11},
        "in the epoch": {"current_leader_epoch": 0},
        "in an epoch to come": {"current_leader_epoch": 3},
    }.items():
        for level in (0, 1):
            yield row(1, f"{name}, level {level}",
                      lambda s, part=part, level=level: fetch(s, part=part, isolation_level=level),
                      4, masks=(SESSION,))  # fmt: skip
        for rack in ("rack-0", "rack-1", "rack-2", "elsewhere"):
            yield row(1, f"{name}, from {rack}",
                      lambda s, part=part, rack=rack: fetch(s, part=part, rack_id=rack),
                      11, masks=(SESSION,))  # fmt: skip
    yield row(1, "as a replica", lambda s: fetch(s, replica_id=STRANGER), 4, 14, masks=(SESSION,))
    yield row(1, "as a replica, by its state", lambda s: fetch(
        s, replica_state={"replica_id": STRANGER, "replica_epoch": -1}), 15, masks=(SESSION,))  # fmt: skip
    yield row(1, "as a debugger", lambda s: fetch(s, replica_id=-2), 4, 14, masks=(SESSION,))
    yield row(1, "where nobody is at home", lambda s: fetch(s, "lonely"), 4, masks=(SESSION,))
    for name, timestamp in {"latest": -1, "earliest": -2, "highest": -3, "by time": 0}.items():
        yield row(2, name, listing("read", timestamp))
    for epoch in (0, 4):
        yield row(2, f"latest in epoch {epoch}", listing("read", current_leader_epoch=epoch), 4)
    yield row(2, "as a debugger", {**listing("read"), "replica_id": -2})
    yield row(2, "as a replica", {**listing("read"), "replica_id": 1})
    for epoch in (0, 1):
        yield row(23, f"the end of epoch {epoch}", ending("read", epoch))
        yield row(23, f"fenced in epoch {epoch}", ending("read", current_leader_epoch=epoch), 2)
    yield row(23, "as a replica", ending("read", replica=1), 3)
    yield row(61, "producers", {"topics": [{"name": "read", "partition_indexes": [0]}]})
    trimmed = [{"name": "read", "partitions": [{"partition_index": 0, "offset": 2}]}]
    yield row(21, "records to delete", {"timeout_ms": 5000, "topics": trimmed})


def cluster(at: int) -> Iterator[Scenario]:
    """Yield what any broker answers, in its own way."""

    def row(
        key: int, name: str, request: Any, low: int = 0, high: int = 99, **more: Any
    ) -> Scenario:
        return Scenario(key, f"{name}, of {at}", request, low, high, at=at, **more)

    known = [{"name": n} for n in PLACED]
    quiet = {"allow_auto_topic_creation": False}
    yield row(3, "all topics", {"topics": known, **quiet})
    yield row(3, "no topics", {"topics": []}, 1)
    yield row(3, "by id", lambda s: {"topics": [{"topic_id": s.ids["spread"], "name": None}]}, 12)
    yield row(60, "brokers", {})
    sizes = ("results[].total_bytes: the disk's", "results[].usable_bytes: the disk's")
    spread = [{"topic": "spread", "partitions": [0, 1, 2]}, {"topic": "lonely", "partitions": [0]}]
    yield row(35, "folders", {"topics": spread}, masks=sizes)
    yield row(18, "versions", {"client_software_name": "d", "client_software_version": "1"})
    for kind in (0, 1):
        for key in ("a", "b", "c", "d"):
            yield row(10, f"{key} of kind {kind}", {"key": key, "key_type": kind}, 1, 3)
        keys = {"coordinator_keys": ["a", "b", "c", "d"], "key_type": kind}
        yield row(10, f"four of kind {kind}", keys, 4)
    keys = ["log.retention.ms", "broker.rack", "replica.selector.class", "broker.id"]
    for broker in ("", *map(str, EVERYBODY)):
        one = {"resource_type": 4, "resource_name": broker, "configuration_keys": keys}
        yield row(32, f"settings of broker {broker!r}", {"resources": [one]})
        new = {"resource_type": 4, "resource_name": broker, "configs": [
            {"name": "log.retention.ms", "value": "100000"}]}  # fmt: skip
        for key in (33, 44):
            yield row(
                key,
                f"new settings of broker {broker!r}",
                {"resources": [new], "validate_only": True},
            )
    one = {
        "resource_type": 2,
        "resource_name": "guarded",
        "configuration_keys": ["min.insync.replicas"],
    }
    yield row(32, "settings of a topic", {"resources": [one]})
    yield row(48, "quotas", {"components": []})


def coordinators(at: int) -> Iterator[Scenario]:
    """Yield requests to a broker that coordinates some of four groups and ids, and not the others."""
    for group in ("a", "b", "c", "d"):

        def row(key: int, name: str, request: Any, low: int = 0, high: int = 99) -> Scenario:
            return Scenario(key, f"{name} {group}, of {at}", request, low, high, at=at)  # noqa: B023

        part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
        topics = [{"name": "read", "partitions": [part]}]
        member = {"group_id": group, "generation_id": 1, "member_id": "m"}
        yield row(8, "commit in", {"group_id": group, "topics": topics, "member_id": "m",
                                   "generation_id_or_member_epoch": 1}, 1)  # fmt: skip
        one = [{"name": "read", "partition_indexes": [0]}]
        yield row(9, "offsets of", {"group_id": group, "topics": one}, 1, 7)
        yield row(9, "offsets of", {"groups": [{"group_id": group, "topics": one}]}, 8)
        yield row(11, "join", {"group_id": group, "session_timeout_ms": 10_000, "member_id": "m",
            "rebalance_timeout_ms": 10_000, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"x"}]})  # fmt: skip
        yield row(12, "heartbeat in", member)
        yield row(14, "sync in", member)
        yield row(13, "leave", {"group_id": group, "member_id": "m"}, 0, 2)
        yield row(13, "leave", {"group_id": group, "members": [{"member_id": "m"}]}, 3)
        yield row(15, "describe", {"groups": [group]})
        yield row(42, "delete", {"groups_names": [group]})
        gone = [{"name": "read", "partitions": [{"partition_index": 0}]}]
        yield row(47, "delete offsets of", {"group_id": group, "topics": gone})
        who = {"transactional_id": group, "producer_id": 5, "producer_epoch": 0}
        old = {f"v3_and_below_{k}": v for k, v in who.items()}
        ledger = [{"name": "read", "partitions": [0]}]
        yield row(24, "add a partition to", {**old, "v3_and_below_topics": ledger}, 0, 3)
        yield row(24, "add and verify a partition of", {"transactions": [
            {**who, "verify_only": True, "topics": ledger}]}, 4)  # fmt: skip
        yield row(25, "add offsets to", {**who, "group_id": group})
        yield row(26, "end", {**who, "committed": True})
        yield row(28, "commit offsets in", {**who, "group_id": group, "topics": topics})
        yield row(65, "describe transaction", {"transactional_ids": [group]})
    yield Scenario(16, f"groups of {at}", {}, at=at)
    yield Scenario(66, f"transactions of {at}", {}, at=at)
    if at != 0:
        yield Scenario(22, f"init where another coordinates, of {at}", lambda s: {
            "transactional_id": coordinated_elsewhere(s, at), "transaction_timeout_ms": 60_000}, at=at)  # fmt: skip


def coordinated_elsewhere(side: Any, at: int) -> str:
    """Return a transactional id that another broker coordinates."""
    names = ["a", "b", "c", "d", "e", "f"]
    found = side.ask(10, 4, {"coordinator_keys": names, "key_type": 1})["coordinators"]
    return str(next(c["key"] for c in found if c["node_id"] != at))


def controllers(at: int) -> Iterator[Scenario]:
    """Yield what only the controller does, asked of another; of itself only where nothing changes."""

    def row(
        key: int, name: str, request: Any, low: int = 0, high: int = 99, **more: Any
    ) -> Scenario:
        return Scenario(key, f"{name}, of {at}", request, low, high, at=at, **more)

    for factor in (1, 3, 4):
        new = {"name": "new", "num_partitions": 2, "replication_factor": factor}
        yield row(19, f"topics with {factor} replicas", {"topics": [new], "timeout_ms": 900,
            "validate_only": True}, 1, masks=(NEW_ID,))  # fmt: skip
    yield row(37, "more partitions", {"timeout_ms": 900, "validate_only": True, "topics": [
        {"name": "spread", "count": 5, "assignments": None}]})  # fmt: skip
    yield row(37, "more partitions, assigned", {"timeout_ms": 900, "validate_only": True, "topics": [
        {"name": "spread", "count": 4, "assignments": [{"broker_ids": [2, 1, 0]}]}]})  # fmt: skip
    for kind in (0, 1):
        yield row(43, f"elections of kind {kind}", {"election_type": kind, "timeout_ms": 900,
            "topic_partitions": [{"topic": "spread", "partitions": [0, 1, 2]}]}, kind)  # fmt: skip
    yield row(43, "all elections", {"topic_partitions": None, "timeout_ms": 900})
    yield row(45, "reassignment to where it is", {"timeout_ms": 900, "topics": [
        {"name": "spread", "partitions": [{"partition_index": 0, "replicas": [0, 1, 2]}]}]})  # fmt: skip
    yield row(45, "reassignment to a stranger", {"timeout_ms": 900, "topics": [
        {"name": "spread", "partitions": [{"partition_index": 0, "replicas": [0, 7]}]}]})  # fmt: skip
    yield row(46, "reassignments", {"timeout_ms": 900, "topics": None})
    yield row(57, "features", {"feature_updates": [{"feature": "f", "max_version_level": 1}]})
    yield row(67, "producer ids", {"broker_id": 2, "broker_epoch": 1})
    if at != CONTROLLER:
        yield row(20, "topics to delete", {"topic_names": ["moved"], "timeout_ms": 900}, 0, 5)
        yield row(20, "topics to delete", {"topics": [{"name": "moved"}], "timeout_ms": 900}, 6)


def placed() -> list[Scenario]:
    """Return all that changes nothing."""
    return [
        scenario
        for at in EVERYBODY
        for kind in (partitions, cluster, coordinators, controllers)
        for scenario in kind(at)
    ]


# Flows -----------------------------------------------------------------------------------


def settled(**wanted: list[int]) -> Any:
    """Return what waits until every live broker knows these replicas, the first one leading."""

    def wait(side: Any) -> None:
        for at in side.live():
            side.await_replicas({topic: [ids] for topic, ids in wanted.items()}, at)
        for topic, ids in wanted.items():
            side.until(lambda t=topic, r=ids: len({mark(side, t, b) for b in r}) == 1, "watermarks")

    return wait


def in_sync(topic: str, *isr: int) -> Any:
    """Return what waits until these replicas of a partition are in sync, whoever leads."""
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}

    def wait(side: Any) -> None:
        def found() -> bool:
            parts = side.ask(3, 12, asked)["topics"][0]["partitions"]
            return [sorted(p["isr_nodes"]) for p in parts] == [list(isr)]

        side.until(found, f"{topic} is in sync on {isr}")

    return wait


def mark(side: Any, topic: str, at: int) -> int:
    """Return the high watermark of a replica: followers hear of it later."""
    answer = side.ask(1, 12, fetch(side, topic), at)
    return int(answer["responses"][0]["partitions"][0]["high_watermark"])


def looks(
    when: str, topic: str, brokers: tuple[int, ...] = EVERYBODY, before: Any = None
) -> Iterator[Scenario]:
    """Yield everything that shows who leads a partition, and in which epoch."""
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    for at in brokers:

        def row(key: int, name: str, request: Any, low: int, **more: Any) -> Scenario:
            return Scenario(key, f"{when}, {name}, of {at}", request, low, at=at, **more)  # noqa: B023

        yield row(3, "metadata", asked, 4, before=before)
        before = None
        for epoch in (-1, 0, 1, 2, 3):
            part = {"current_leader_epoch": epoch}
            yield row(1, f"read in epoch {epoch}", lambda s, part=part: fetch(s, topic, part=part), 9,
                      masks=(SESSION,), seen=contents)  # fmt: skip
            yield row(2, f"the end in epoch {epoch}", listing(topic, current_leader_epoch=epoch), 4)
            yield row(23, f"where epoch {epoch} ends", ending(topic, epoch), 2)
            yield row(23, f"fenced in epoch {epoch}", ending(topic, current_leader_epoch=epoch), 2)
        yield row(1, "after another epoch", lambda s: fetch(
            s, topic, part={"fetch_offset": 12, "last_fetched_epoch": 0}), 12, masks=(SESSION,), seen=contents)  # fmt: skip
        yield row(0, "write", produce(topic, batch(b"w"), acks=-1), 7, masks=(TEXT,))
        yield row(2, "the end", listing(topic), 1)


def reassign(name: str, topic: str, replicas: list[int] | None) -> Scenario:
    parts = [{"partition_index": 0, "replicas": replicas}]
    return Scenario(
        45, name, {"timeout_ms": 20_000, "topics": [{"name": topic, "partitions": parts}]}
    )


def replaced(topic: str, target: list[int], masks: tuple[str, ...] = ()) -> Iterator[Scenario]:
    """Yield a reassignment that the dead broker 2 holds up, and one to broker 2 alone in its place.

    The first one adds broker 1, which the second one drops again: whether it may be dropped depends
    on the ISR, so broker 1 has to be in it on both sides before the second is asked for.
    """
    first = reassign("to the dead", topic, target)
    second = reassign("to the dead alone", topic, [2])
    yield replace(first, name=f"{first.name}, {topic}")
    yield replace(second, name=f"{second.name}, {topic}", before=in_sync(topic, 0, 1), masks=masks)


def elect(name: str, topic: str, kind: int = 0) -> Scenario:
    return Scenario(43, name, {"election_type": kind, "timeout_ms": 20_000,
        "topic_partitions": [{"topic": topic, "partitions": [0]}]}, 1)  # fmt: skip


def moves() -> Iterator[Flow]:
    under_way = Scenario(46, "what is under way", {"timeout_ms": 9000, "topics": None})
    yield Flow("moved", (
        reassign("give it another order", "moved", [1, 0]),
        elect("elect the preferred one", "moved"),
        elect("elect it again", "moved"),
        *looks("elected", "moved", before=settled(moved=[1, 0])),
        reassign("move it", "moved", [2, 0]),
        *looks("reassigned", "moved", before=settled(moved=[2, 0])),
        under_way,
        reassign("cancel nothing", "moved", None),
        Scenario(35, "what is left where it was", {"topics": [{"topic": "moved", "partitions": [0]}]},
                 masks=("results[].total_bytes: the disk's", "results[].usable_bytes: the disk's")),
    ))  # fmt: skip
    yield Flow("a broker dies", (
        *looks("dead", "guarded", (0, 1), before=without(2)),
        *looks("dead", "lonely", (0, 1)),
        Scenario(3, "all metadata", {"topics": [{"name": n} for n in PLACED],
                                     "allow_auto_topic_creation": False}),
        Scenario(60, "brokers", {}),
        elect("a preferred leader that is dead", "lonely"),
        elect("anybody at all", "lonely", 1),
        elect("one that leads", "guarded", 1),
        *replaced("moved", [2, 0, 1]),
        *replaced("guarded", [0, 2, 1], (DROPPED,)),
        *(Scenario(19, f"{n} replicas among two", {"topics": [{"name": f"among-{n}", "num_partitions": 1,
            "replication_factor": n}], "timeout_ms": 9000, "validate_only": True}, 1, masks=(NEW_ID,))
          for n in (2, 3)),
        Scenario(10, "coordinators", {"coordinator_keys": ["a", "b", "c", "d"]}, 4),
        Scenario(20, "a topic of the dead", {"topics": [{"name": "lonely"}], "timeout_ms": 500}, 6),
        Scenario(3, "metadata of what is to go", {"topics": [{"name": "lonely"}],
                                                  "allow_auto_topic_creation": False}, 4),
    ))  # fmt: skip


def without(broker: int) -> Any:
    """Return what kills a broker and waits until the others know it, in metadata and in sync."""

    def kill(side: Any) -> None:
        side.cluster.kill(broker)
        left = [b for b in side.brokers if b != broker]
        asked = {"topics": [{"name": n} for n in PLACED], "allow_auto_topic_creation": False}

        def forgotten(at: int) -> bool:
            answer = side.ask(3, 12, asked, at)
            parts = [p for t in answer["topics"] for p in t["partitions"]]
            alone = [p for p in parts if p["replica_nodes"] == [broker]]
            return (
                broker not in [b["node_id"] for b in answer["brokers"]]
                and all(broker not in p["isr_nodes"] for p in parts if p not in alone)
                and all(p["leader_id"] == -1 for p in alone)
            )

        for at in left:
            side.until(lambda at=at: forgotten(at), f"{at} does not hear of the death")

    return kill
