"""Scenarios of administration: topics, partitions, configs, elections, reassignments, quotas."""

from collections.abc import Iterator
from typing import Any

from differential_tables import Scenario

NEW_ID = "topics[].topic_id: a new topic's id is random"


def create_topics() -> Iterator[Scenario]:
    def row(
        name: str,
        low: int = 0,
        high: int = 99,
        /,
        *,
        timeout: int = 9000,
        dry: bool = True,
        **topic: Any,
    ) -> Scenario:
        def request(side: Any) -> dict[str, Any]:
            kind = "dry" if dry and side.version else "made"
            given = {
                "name": f"{kind}-{side.version}",
                "num_partitions": 1,
                "replication_factor": 1,
                **topic,
            }
            return {
                "topics": [given],
                "timeout_ms": timeout,
                "validate_only": dry and side.version > 0,
            }

        return Scenario(19, name, request, low, high, masks=(NEW_ID,))

    def config(name: str, **pairs: str | None) -> Scenario:
        rows = [{"name": k.replace("_", "."), "value": v} for k, v in pairs.items()]
        return row(name, 1, configs=rows)

    yield row("validated only", 1)
    yield row("created", dry=False)
    yield row("that exists", name="read")
    yield row("zero partitions", num_partitions=0)
    yield row("negative partitions", num_partitions=-2)
    yield row("default partitions", 1, num_partitions=-1)
    yield row("too many replicas", replication_factor=2)
    yield row("zero replicas", replication_factor=0)
    yield row("default replicas", 1, replication_factor=-1)
    yield row("negative replicas", replication_factor=-3)
    for name in ("", ".", "..", "a/b", "ä", "x" * 250, "a b"):
        yield row(f"name {name[:5]!r} of {len(name)}", name=name)
    yield row("a dot where an underscore is", 1, name="a.b")
    yield row("an internal name", 1, name="__transaction_state")
    manual = {"num_partitions": -1, "replication_factor": -1}

    def assigned(title: str, *lists: list[int], first: int = 0, **more: Any) -> Scenario:
        rows = [{"partition_index": first + i, "broker_ids": ids} for i, ids in enumerate(lists)]
        return row(title, 1, **{**manual, "assignments": rows, **more})

    yield assigned("assigned", [0])
    yield assigned("assigned, with a count", [0], num_partitions=1)
    yield assigned("assigned, with a factor", [0], replication_factor=1)
    yield assigned("assigned twice to one", [0, 0])
    yield assigned("assigned to nobody", [])
    yield assigned("assigned to a stranger", [5])
    yield assigned("assigned to a negative", [-1])
    yield assigned("assigned unevenly", [0], [0, 1])
    yield assigned("assigned from 1", [0], first=1)
    yield assigned("assigned from -1", [0], first=-1)
    yield row(
        "assigned one partition twice",
        1,
        **manual,
        assignments=[
            {"partition_index": 0, "broker_ids": [0]},
            {"partition_index": 0, "broker_ids": [0]},
        ],
    )
    yield config("config", retention_ms="1000")
    yield config("config unknown", nonsense="1")
    yield config("config no number", retention_ms="soon")
    yield config("config out of range", segment_bytes="3")
    yield config("config null", retention_ms=None)
    yield config("config bad choice", cleanup_policy="burn")
    yield config("config bad list", cleanup_policy="delete,compact,x")
    yield config("config bad flag", preallocate="maybe")
    yield config("config bad ratio", min_cleanable_dirty_ratio="7")
    yield config("config compression", compression_type="lzma")
    yield config("config throttled", leader_replication_throttled_replicas="0:0,x")
    yield config("config min isr 0", min_insync_replicas="0")
    yield config("config too large", retention_ms="99999999999999999999")
    yield config("config remote", remote_storage_enable="true")
    yield row("config twice", 1, configs=[{"name": "retention.ms", "value": "1"}] * 2)
    yield row("timeout 0", timeout=0, dry=False, name="late")
    yield row("timeout negative, dry", 1, timeout=-1)
    yield Scenario(19, "none", {"topics": []})
    yield Scenario(
        19, "twice", {"topics": [{"name": "t2", "num_partitions": 1, "replication_factor": 1}] * 2}
    )
    yield Scenario(
        19,
        "validate only in version 0",
        {
            "topics": [{"name": "read", "num_partitions": 1, "replication_factor": 1}],
            "validate_only": True,
        },
        0,
        0,
    )


def delete_topics() -> Iterator[Scenario]:
    def names(name: str, *topics: str, timeout: int = 9000) -> Iterator[Scenario]:
        masks = (
            ("responses[].topic_id: told of topics made here",) if topics[:1] == ("made",) else ()
        )
        yield Scenario(
            20,
            name,
            lambda s: {
                "topic_names": [t if t != "made" else f"made-{s.version}" for t in topics],
                "timeout_ms": timeout,
            },
            0,
            5,
            masks,
        )
        yield Scenario(
            20,
            name,
            lambda s: {
                "topics": [{"name": t if t != "made" else f"made-{s.version}"} for t in topics],
                "timeout_ms": timeout,
            },
            6,
            99,
            masks,
        )

    yield from names("one", "made")
    yield from names("unknown", "nope")
    yield from names("none")
    yield from names("invalid", "a/b")
    yield from names("unknown twice", "nope", "nope")
    yield from names("unknown, no time", "nope", timeout=0)
    yield Scenario(20, "by unknown id", {"topics": [{"name": None, "topic_id": b"\3" * 16}]}, 6)
    yield Scenario(20, "by zero id", {"topics": [{"name": None}]}, 6)
    yield Scenario(
        20, "by name and id", lambda s: {"topics": [{"name": "read", "topic_id": s.ids["read"]}]}, 6
    )
    yield Scenario(
        20, "by unknown name and id", {"topics": [{"name": "nope", "topic_id": b"\3" * 16}]}, 6
    )


def create_partitions() -> Iterator[Scenario]:
    def row(
        name: str,
        count: int,
        lists: list[list[int]] | None = None,
        topic: str = "three",
        *,
        dry: bool = True,
        timeout: int = 9000,
    ) -> Scenario:
        rows = None if lists is None else [{"broker_ids": ids} for ids in lists]
        topics = [{"name": topic, "count": count, "assignments": rows}]
        return Scenario(37, name, {"topics": topics, "timeout_ms": timeout, "validate_only": dry})

    yield row("to 4, validated", 4)
    yield row("to as many", 3)
    yield row("to fewer", 2)
    yield row("to none", 0)
    yield row("to a negative count", -1)
    yield row("assigned", 4, [[0]])
    yield row("assigned too few", 5, [[0]])
    yield row("assigned too many", 4, [[0], [0]])
    yield row("assigned none", 4, [])
    yield row("assigned to nobody", 4, [[]])
    yield row("assigned twice to one", 4, [[0, 0]])
    yield row("assigned to a stranger", 4, [[7]])
    yield row("assigned to a negative", 4, [[-7]])
    yield row("assigned with another factor", 4, [[0, 1]])
    yield row("assigned unevenly", 5, [[0], [0, 1]])
    yield row("unknown", 4, topic="nope")
    yield row("invalid name", 4, topic="a/b")
    yield row("timeout 0, validated", 4, timeout=0)
    yield row("timeout negative, validated", 4, timeout=-1)
    yield Scenario(
        37,
        "twice",
        {"topics": [{"name": "three", "count": 4, "assignments": None}] * 2, "timeout_ms": 99},
    )
    yield Scenario(
        37,
        "grown",
        lambda s: {
            "timeout_ms": 9000,
            "topics": [{"name": "configured", "count": 2 + s.version, "assignments": None}],
        },
    )


TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def describe_configs() -> Iterator[Scenario]:
    def row(
        name: str,
        kind: int,
        resource: str,
        keys: list[str] | None = None,
        low: int = 0,
        **more: Any,
    ) -> Scenario:
        resources = [{"resource_type": kind, "resource_name": resource, "configuration_keys": keys}]
        return Scenario(32, name, {"resources": resources, **more}, low)

    few = ["retention.ms", "cleanup.policy", "min.insync.replicas", "nonsense"]
    yield row("a topic", TOPIC, "configured", few)
    yield row("a topic's all", TOPIC, "configured")
    yield row("a topic's, with synonyms", TOPIC, "configured", few, 1, include_synonyms=True)
    yield row("a topic's all, with synonyms", TOPIC, "configured", None, 1, include_synonyms=True)
    yield row("an unknown topic", TOPIC, "nope", few)
    yield row("an invalid topic", TOPIC, "a/b", few)
    yield row("an unnamed topic", TOPIC, "", few)
    yield row("no keys", TOPIC, "configured", [])
    some = [
        "log.retention.ms",
        "num.io.threads",
        "auto.create.topics.enable",
        "min.insync.replicas",
    ]
    yield row("a broker", BROKER, "0", some)
    yield row("a broker's, with synonyms", BROKER, "0", some, 1, include_synonyms=True)
    yield row("all brokers", BROKER, "", some)
    yield row("another broker", BROKER, "7", some)
    yield row("a broker of no number", BROKER, "x", some)
    yield row("a negative broker", BROKER, "-1", some)
    yield row("of an unknown kind", 77, "x")
    yield row("of kind 0", 0, "x")
    yield row("of a group", GROUP, "g")
    yield row("of client metrics", CLIENT_METRICS, "m")
    yield row("twice", TOPIC, "configured", few)
    yield Scenario(
        32,
        "the same twice",
        {
            "resources": [
                {"resource_type": TOPIC, "resource_name": "configured", "configuration_keys": few}
            ]
            * 2
        },
    )


def alter_configs() -> Iterator[Scenario]:
    def both(
        name: str,
        kind: int,
        resource: str,
        *pairs: tuple[str, str | None],
        dry: bool = True,
        operation: int = 0,
    ) -> Iterator[Scenario]:
        for key in (33, 44):
            if key == 33 and operation:
                continue
            rows = [{"name": k, "value": v} for k, v in pairs]
            if key == 44:
                rows = [{**r, "config_operation": operation} for r in rows]
            resources = [{"resource_type": kind, "resource_name": resource, "configs": rows}]
            yield Scenario(key, name, {"resources": resources, "validate_only": dry})

    topic = "configured"
    yield from both("set", TOPIC, topic, ("retention.ms", "5000"), dry=False)
    yield from both("validated", TOPIC, topic, ("retention.ms", "6000"))
    yield from both("nothing", TOPIC, topic)
    yield from both("unknown topic", TOPIC, "nope", ("retention.ms", "1"))
    yield from both("invalid topic", TOPIC, "a/b", ("retention.ms", "1"))
    yield from both("unnamed topic", TOPIC, "", ("retention.ms", "1"))
    yield from both("unknown key", TOPIC, topic, ("nonsense", "1"))
    yield from both("no number", TOPIC, topic, ("retention.ms", "soon"))
    yield from both("out of range", TOPIC, topic, ("segment.bytes", "3"))
    yield from both("null", TOPIC, topic, ("retention.ms", None))
    yield from both("bad choice", TOPIC, topic, ("cleanup.policy", "burn"))
    yield from both(
        "the same key twice", TOPIC, topic, ("retention.ms", "1"), ("retention.ms", "2")
    )
    yield from both("empty value", TOPIC, topic, ("retention.ms", ""))
    yield from both("empty key", TOPIC, topic, ("", "1"))
    yield from both("a broker's", BROKER, "0", ("log.retention.ms", "100000"))
    yield from both("all brokers'", BROKER, "", ("log.retention.ms", "100000"))
    yield from both("a broker's read-only", BROKER, "0", ("log.dirs", "/x"))
    yield from both("a broker's unknown", BROKER, "0", ("nonsense", "/x"))
    yield from both("a broker's bad value", BROKER, "0", ("log.retention.ms", "x"))
    yield from both("another broker's", BROKER, "7", ("log.retention.ms", "1"))
    yield from both("no number's", BROKER, "x", ("log.retention.ms", "1"))
    yield from both("of an unknown kind", 77, "x", ("a", "1"))
    yield from both("of kind 0", 0, "x", ("a", "1"))
    yield from both("of a group", GROUP, "g", ("consumer.session.timeout.ms", "50000"))
    yield from both("of client metrics", CLIENT_METRICS, "m", ("interval.ms", "100"))
    yield from both("deleted", TOPIC, topic, ("retention.ms", None), operation=1)
    yield from both("deleted, unknown", TOPIC, topic, ("nonsense", None), operation=1)
    yield from both("appended", TOPIC, topic, ("cleanup.policy", "compact"), operation=2)
    yield from both("appended to no list", TOPIC, topic, ("retention.ms", "1"), operation=2)
    yield from both("appended null", TOPIC, topic, ("cleanup.policy", None), operation=2)
    yield from both("subtracted", TOPIC, topic, ("cleanup.policy", "delete"), operation=3)
    yield from both("subtracted from no list", TOPIC, topic, ("retention.ms", "1"), operation=3)
    yield from both("operation 9", TOPIC, topic, ("retention.ms", "1"), operation=9)
    yield from both("operation -1", TOPIC, topic, ("retention.ms", "1"), operation=-1)
    for key in (33, 44):
        one = {
            "resource_type": TOPIC,
            "resource_name": topic,
            "configs": [{"name": "retention.ms", "value": "5"}],
        }
        request = {"resources": [one, one], "validate_only": True}
        yield Scenario(key, "the same twice", request, 0, 0 if key == 33 else 99)


def leadership() -> Iterator[Scenario]:
    def elect(name: str, topics: Any, low: int = 0, kind: int = 0, timeout: int = 900) -> Scenario:
        return Scenario(
            43,
            name,
            {"election_type": kind, "topic_partitions": topics, "timeout_ms": timeout},
            low,
        )

    one = [{"topic": "read", "partitions": [0]}]
    yield elect("one, preferred", one)
    yield elect("one, unclean", one, 1, 1)
    yield elect("one, of kind 5", one, 1, 5)
    yield elect("all, preferred", None)
    yield elect("all, unclean", None, 1, 1)
    yield elect("unknown", [{"topic": "nope", "partitions": [0]}])
    yield elect("unknown partition", [{"topic": "read", "partitions": [0, 9]}])
    yield elect("negative partition", [{"topic": "read", "partitions": [-1]}])
    yield elect("none", [])
    yield elect("no partitions", [{"topic": "read", "partitions": []}])
    yield elect("no time", one, timeout=0)
    yield elect("negative time", one, timeout=-1)
    yield elect("twice", one * 2)

    def move(
        name: str,
        replicas: list[int] | None,
        topic: str = "three",
        index: int = 0,
        timeout: int = 900,
    ) -> Scenario:
        parts = [{"partition_index": index, "replicas": replicas}]
        return Scenario(
            45, name, {"timeout_ms": timeout, "topics": [{"name": topic, "partitions": parts}]}
        )

    yield move("to where it is", [0])
    yield move("cancelled, none under way", None)
    yield move("to nobody", [])
    yield move("to a stranger", [5])
    yield move("to a negative", [-1])
    yield move("twice to one", [0, 0])
    yield move("unknown topic", [0], "nope")
    yield move("unknown partition", [0], index=9)
    yield move("negative partition", [0], index=-9)
    yield move("unknown, cancelled", None, "nope")
    yield move("no time", [0], timeout=0)
    yield move("negative time", [0], timeout=-1)
    yield Scenario(45, "no partitions", {"topics": [{"name": "three"}]})

    def moves(name: str, topics: Any, timeout: int = 900) -> Scenario:
        return Scenario(46, name, {"timeout_ms": timeout, "topics": topics})

    yield moves("all", None)
    yield moves("none", [])
    yield moves("one", [{"name": "three", "partition_indexes": [0, 1]}])
    yield moves("unknown", [{"name": "nope", "partition_indexes": [0]}])
    yield moves("unknown partition", [{"name": "three", "partition_indexes": [9, -1]}])
    yield moves("negative time", None, -1)


def quotas() -> Iterator[Scenario]:
    def alter(
        name: str,
        entity: list[tuple[str, str | None]],
        *ops: tuple[str, float, bool],
        dry: bool = False,
    ) -> Scenario:
        entry = {
            "entity": [{"entity_type": t, "entity_name": n} for t, n in entity],
            "ops": [{"key": k, "value": v, "remove": r} for k, v, r in ops],
        }
        return Scenario(49, name, {"entries": [entry], "validate_only": dry})

    rate = ("producer_byte_rate", 1e9, False)
    user, client = ("user", "u"), ("client-id", "c")
    yield alter("a user's", [user], rate)
    yield alter("a client's", [client], rate, ("request_percentage", 400.5, False))
    yield alter("a user's client's", [user, client], ("consumer_byte_rate", 2e9, False))
    yield alter("the default user's", [("user", None)], rate)
    yield alter("the default client's", [("client-id", None)], ("consumer_byte_rate", 3e9, False))
    yield alter("a default user's default client's", [("user", None), ("client-id", None)], rate)
    yield alter("a name to be encoded", [("user", "a/b c*=ä")], ("consumer_byte_rate", 1e6, False))
    yield alter("of mutations", [user], ("controller_mutation_rate", 1e6, False))
    yield alter("an address'", [("ip", "10.1.2.3")], ("connection_creation_rate", 9e5, False))
    yield alter("the default address'", [("ip", None)], ("connection_creation_rate", 9e6, False))
    yield alter("an address' wrong key", [("ip", "10.1.2.3")], rate)
    yield alter("a user's wrong key", [user], ("connection_creation_rate", 5.0, False))
    yield alter(
        "of no address", [("ip", "not an address!")], ("connection_creation_rate", 5.0, False)
    )
    yield alter("of an address and a user", [("ip", "10.1.2.3"), user], rate)
    yield alter("of nobody", [], rate)
    yield alter("of an unknown kind", [("planet", "x")], rate)
    yield alter("of an empty name", [("user", "")], rate)
    yield alter("of an empty kind", [("", "u")], rate)
    yield alter("of the same kind twice", [user, ("user", "v")], rate)
    yield alter("unknown key", [user], ("nonsense", 1.0, False))
    yield alter("negative", [user], ("producer_byte_rate", -1.0, False))
    yield alter("zero", [user], ("producer_byte_rate", 0.0, False))
    yield alter("a fraction where none may be", [user], ("producer_byte_rate", 1.5, False))
    yield alter("too large", [user], ("producer_byte_rate", 1e30, False))
    yield alter("not a number", [user], ("request_percentage", float("nan"), False), dry=True)
    yield alter("validated only", [("user", "dry")], rate, dry=True)
    yield alter("the same key twice", [user], rate, rate)
    yield alter("nothing", [user])

    def describe(name: str, *parts: tuple[str, int, str | None], strict: bool = False) -> Scenario:
        rows = [{"entity_type": t, "match_type": m, "match": n} for t, m, n in parts]
        return Scenario(48, name, {"components": rows, "strict": strict})

    exact, default, any_ = 0, 1, 2
    yield describe("all")
    yield describe("all, strictly", strict=True)
    for kind in ("user", "client-id", "ip"):
        yield describe(f"any {kind}", (kind, any_, None))
        yield describe(f"any {kind}, strictly", (kind, any_, None), strict=True)
        yield describe(f"default {kind}", (kind, default, None))
        yield describe(f"default {kind}, strictly", (kind, default, None), strict=True)
    yield describe("a user", ("user", exact, "u"))
    yield describe("a user, strictly", ("user", exact, "u"), strict=True)
    yield describe("an encoded user", ("user", exact, "a/b c*=ä"))
    yield describe("a user nobody named", ("user", exact, "nope"))
    yield describe("a user's client", ("user", exact, "u"), ("client-id", exact, "c"))
    yield describe(
        "a user and any client", ("user", exact, "u"), ("client-id", any_, None), strict=True
    )
    yield describe("an address", ("ip", exact, "10.1.2.3"))
    yield describe("an address and a user", ("ip", exact, "10.1.2.3"), ("user", exact, "u"))
    yield describe("an unknown kind", ("planet", any_, None))
    yield describe("an empty kind", ("", any_, None))
    yield describe("a kind twice", ("user", any_, None), ("user", exact, "u"))
    yield describe("match type 7", ("user", 7, None))
    yield describe("exactly null", ("user", exact, None))
    yield describe("default with a name", ("user", default, "u"))
    yield describe("any with a name", ("user", any_, "u"))
    for name, entity, key in (
        ("u", [user], "producer_byte_rate"),
        ("c", [client], "producer_byte_rate"),
    ):
        yield Scenario(49, f"removed of {name}", {"entries": [{
            "entity": [{"entity_type": t, "entity_name": n} for t, n in entity],
            "ops": [{"key": key, "value": 0.0, "remove": True}]}]})  # fmt: skip


def rest() -> Iterator[Scenario]:
    def move(name: str, path: str, topic: str = "read", index: int = 0) -> Scenario:
        topics = [{"name": topic, "partitions": [index]}]
        return Scenario(34, name, {"dirs": [{"path": path, "topics": topics}]})

    yield move("to no folder of ours", "/nowhere")
    yield move("to a relative folder", "x")
    yield move("to an empty path", "")
    yield move("unknown topic, no folder", "/nowhere", "nope")
    yield Scenario(
        34,
        "to where it is",
        lambda s: {"dirs": [{"path": s.folder, "topics": [{"name": "read", "partitions": [0]}]}]},
    )
    yield Scenario(
        34,
        "unknown topic",
        lambda s: {"dirs": [{"path": s.folder, "topics": [{"name": "absent", "partitions": [0]}]}]},
    )
    yield Scenario(
        34,
        "unknown partition",
        lambda s: {
            "dirs": [{"path": s.folder, "topics": [{"name": "read", "partitions": [8, -1]}]}]
        },
    )

    def features(
        name: str, low: int = 0, high: int = 99, dry: bool = False, **update: Any
    ) -> Scenario:
        row = {"feature": "f", "max_version_level": 1, **update}
        return Scenario(
            57, name, {"timeout_ms": 900, "feature_updates": [row], "validate_only": dry}, low, high
        )

    yield features("unknown")
    yield features("unknown, validated", 1, dry=True)
    yield features("metadata.version", feature="metadata.version")
    yield features("empty name", feature="")
    yield features("level 0", max_version_level=0)
    yield features("level 0, downgrade", 0, 0, max_version_level=0, allow_downgrade=True)
    yield features("level 0, safe downgrade", 1, max_version_level=0, upgrade_type=2)
    yield features("negative level", max_version_level=-1)
    yield features("upgrade type 9", 1, upgrade_type=9)
    yield Scenario(57, "none", {"feature_updates": []})
    yield Scenario(57, "twice", {"feature_updates": [{"feature": "f", "max_version_level": 1}] * 2})


def administration() -> list[Scenario]:
    made = [*create_topics(), *create_partitions(), *describe_configs(), *alter_configs()]
    return [*made, *delete_topics(), *leadership(), *quotas(), *rest()]
