"""Scenarios of the data path and of metadata: a row is a name, an api key and a request.

A request is a dict, or a function of the side it goes to, which knows ids that differ between the
two sides and the version in turn. `T` and `P` only shorten the rows.
"""

# ruff: noqa: E501 - a row of a table is a line

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.wire.records import Record, build_batch

Request = dict[str, Any] | Callable[[Any], dict[str, Any]]
STAMP = 1_700_000_000_000
UNKNOWN_ID = b"\x01" * 16


@dataclass(frozen=True)
class Scenario:
    """One request in all versions from `low` to `high`; `masks` are "path: reason" lines.

    `at` is the broker asked; `before` waits for what has to be true first; `learn` remembers
    something of the answer, `seen` returns what of it is compared.
    """

    key: int
    name: str
    request: Request
    low: int = 0
    high: int = 99
    masks: tuple[str, ...] = ()
    unanswered: bool = False
    learn: Callable[[Any, Any], None] | None = field(default=None, compare=False)
    at: int = 0
    before: Callable[[Any], object] | None = field(default=None, compare=False)
    seen: Callable[[Any], Any] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Flow:
    """Steps that build on one another, run round by round.

    In round r each goes in the r-th version of what it has; `side.round` is r.
    """

    name: str
    steps: tuple[Scenario, ...]
    rounds: int = 1


def batch(*values: bytes, stamp: int = STAMP, **options: Any) -> bytes:
    return build_batch(
        [Record(timestamp=stamp, key=b"k", value=value) for value in values or (b"v",)], **options
    )


def spoiled(at: int, value: int, **options: Any) -> bytes:
    data = bytearray(batch(b"value", **options))
    data[at] = value
    return bytes(data)


def produce(topic: str, records: bytes | None, index: int = 0, acks: int = 1, **more: Any) -> Any:
    parts = [{"index": index, "records": records}]
    topics = [{"name": topic, "partition_data": parts}]
    return {"acks": acks, "timeout_ms": 1000, "topic_data": topics, **more}


def producing() -> Iterator[Scenario]:
    def row(name: str, request: Request, **more: Any) -> Scenario:
        return Scenario(0, name, request, **{"low": 3, **more})

    good = batch(b"a", b"b")
    yield row("acks 1", produce("written", good))
    yield row("acks all", produce("written", good, acks=-1))
    yield row("acks 0", produce("written", good, acks=0), unanswered=True)
    yield row("acks 0 to nobody's topic", produce("nope", good, acks=0), unanswered=True)
    yield row("acks 2", produce("written", good, acks=2))
    yield row("acks -2", produce("written", good, acks=-2))
    yield row("unknown topic", produce("nope", good))
    yield row("unknown partition", produce("written", good, index=7))
    yield row("negative partition", produce("written", good, index=-1))
    yield row("too few in sync", produce("strict", good, acks=-1))
    yield row("too few in sync, acks 1", produce("strict", good))
    yield row("no topics", {"acks": 1, "timeout_ms": 0})
    yield row("no partitions", {"acks": 1, "topic_data": [{"name": "written"}]})
    yield row("null records", produce("written", None), low=9, high=9)
    yield row("empty records", produce("written", b""))
    yield row("bad CRC", produce("written", spoiled(-3, 0x7F)))
    yield row("bad magic", produce("written", spoiled(16, 7)))
    yield row("magic 0", produce("written", spoiled(16, 0)))
    yield row("magic 1", produce("written", spoiled(16, 1)))
    yield row("negative magic", produce("written", spoiled(16, 0xFF)))
    yield row("length too long", produce("written", spoiled(11, 0xFF)))
    yield row("length too short", produce("written", spoiled(11, 3)))
    yield row("cut short", produce("written", good[:-4]))
    yield row("two batches", produce("written", good + good))
    yield row("bytes behind", produce("written", good + b"\0\0\0"))
    yield row("too large", produce("small", batch(b"x" * 500)))
    yield row("unknown codec", produce("written", batch_with_attributes(5)))
    yield row("control batch", produce("written", batch(is_control=True)))
    yield row("transactional without id", produce("written", transactional()))
    yield row("count does not fit", produce("written", batch_with_count(5)))
    yield row("offsets not from zero", produce("written", batch(base_offset=7)))
    yield row("keyless to a compacted topic", produce("compacted", keyless()))
    yield row("keyed to a compacted topic", produce("compacted", good))
    yield row("log append time", produce("appended", good))
    yield row("gzip at the broker", produce("gzipped", good))
    yield row("far future", produce("strict", batch(stamp=STAMP * 2)))
    yield row("long past", produce("strict", batch(stamp=1000)))
    yield row("no timestamp", produce("strict", batch(stamp=-1)))
    yield row("sequence amid, unknown producer", produce("written", idempotent(900, 0, 5)))
    yield row(
        "sequence from zero", lambda s: produce("written", idempotent(1000 + s.version, 0, 0))
    )
    yield row("the same again", lambda s: produce("written", idempotent(1000 + s.version, 0, 0)))
    yield row("a gap", lambda s: produce("written", idempotent(1000 + s.version, 0, 9)))
    yield row(
        "newer epoch, not zero", lambda s: produce("written", idempotent(1000 + s.version, 3, 9))
    )
    yield row("newer epoch", lambda s: produce("written", idempotent(1000 + s.version, 3, 0)))
    yield row("older epoch", lambda s: produce("written", idempotent(1000 + s.version, 1, 1)))
    yield row("producer without epoch", produce("written", idempotent(5, -1, 0)))
    yield row("producer without sequence", produce("written", idempotent(5, 0, -1)))
    yield row("two topics, one bad", two_topics(good))
    yield row("the same partition twice", twice(good))
    for codec, name in enumerate(("gzip", "snappy", "lz4", "zstd"), 1):
        yield row(name, produce("written", batch(b"a", codec=codec)))
        yield row(f"broken {name}", produce("written", broken(codec)))
    for version in (0, 1, 2):
        for name, records in {"new format": good, "nothing": b""}.items():
            yield row(
                f"{name} in version {version}",
                produce("written", records),
                low=version,
                high=version,
            )
    yield row("to an internal topic", produce("__consumer_offsets", good))
    yield row("invalid name", produce("not/a topic", good))
    yield row("empty name", produce("", good))
    yield row("negative timeout", produce("written", good, timeout_ms=-1))


def batch_with_attributes(attributes: int) -> bytes:
    return resealed(batch(), 21, attributes.to_bytes(2, "big"))


def batch_with_count(count: int) -> bytes:
    return resealed(batch(), 57, count.to_bytes(4, "big"))


def resealed(data: bytes, at: int, value: bytes) -> bytes:
    """Change bytes under the CRC and put it right."""
    from ottla.wire.batch_header import crc32c

    raw = bytearray(data)
    raw[at : at + len(value)] = value
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


def broken(codec: int) -> bytes:
    raw = batch(b"a" * 50, codec=codec)
    return resealed(raw, 61, b"\xee" * (len(raw) - 61))


def keyless() -> bytes:
    return build_batch([Record(timestamp=STAMP, key=None, value=b"v")])


def transactional() -> bytes:
    return batch(is_transactional=True, producer_id=77, producer_epoch=0, base_sequence=0)


def idempotent(producer: int, epoch: int, sequence: int) -> bytes:
    return batch(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def two_topics(good: bytes) -> dict[str, Any]:
    data = [{"index": 0, "records": good}, {"index": 9, "records": good}]
    topics = [{"name": "written", "partition_data": data}, {"name": "nope", "partition_data": data}]
    return {"acks": 1, "timeout_ms": 1000, "topic_data": topics}


def twice(good: bytes) -> dict[str, Any]:
    data = [{"index": 0, "records": good}, {"index": 0, "records": good}]
    return {"acks": 1, "topic_data": [{"name": "written", "partition_data": data}]}


def fetch(
    side: Any, topic: str = "read", *, part: dict[str, Any] | None = None, **more: Any
) -> Any:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, **(part or {})}
    named = {"topic": topic, "topic_id": side.ids.get(topic, UNKNOWN_ID), "partitions": [partition]}
    return {"max_wait_ms": 0, "min_bytes": 0, "topics": [named], **more}


def fetching() -> Iterator[Scenario]:
    def row(name: str, part: dict[str, Any] | None = None, **more: Any) -> Scenario:
        topic = more.pop("topic", "read")
        low, high = more.pop("low", 4), more.pop("high", 99)
        return Scenario(1, name, lambda s: fetch(s, topic, part=part, **more), low, high)

    yield row("from the start")
    yield row("amid a batch", {"fetch_offset": 3})
    yield row("at the end", {"fetch_offset": 10})
    yield row("at the end, waiting", {"fetch_offset": 10}, max_wait_ms=50, min_bytes=1)
    yield row("beyond the end", {"fetch_offset": 11})
    yield row("negative offset", {"fetch_offset": -1})
    yield row("unknown topic", topic="nope")
    yield row("unknown partition", {"partition": 5})
    yield row("negative partition", {"partition": -1})
    yield row("current epoch", {"current_leader_epoch": 0})
    yield row("too new epoch", {"current_leader_epoch": 5})
    yield row("max bytes 0", max_bytes=0)
    yield row("partition max bytes 0", {"partition_max_bytes": 0})
    yield row("max bytes negative", max_bytes=-1)
    yield row("partition max bytes 1", {"partition_max_bytes": 1})
    yield row("read committed", isolation_level=1)
    yield row("isolation level 2", isolation_level=2)
    yield row("last fetched epoch right", {"last_fetched_epoch": 0, "fetch_offset": 10}, low=12)
    yield row("last fetched epoch unknown", {"last_fetched_epoch": 5, "fetch_offset": 10}, low=12)
    yield row("as a stranger replica", replica_id=77, high=14)
    yield row("as a debugging replica", replica_id=-2, high=14)
    yield row("as replica state", replica_state={"replica_id": 77, "replica_epoch": 1}, low=15)
    yield row("empty, no topics", topics=[])
    yield row("wrong cluster id", cluster_id="other", low=12)
    yield row("negative wait", max_wait_ms=-1)
    yield row("a rack", rack_id="r")
    yield row("of a deleted log start", topic="trimmed", part={"fetch_offset": 0})
    yield row("unknown session", session_id=12345, session_epoch=1, low=7)
    yield row("unknown session, epoch 0", session_id=12345, session_epoch=0, low=7)
    yield row("session epoch -1, no id", session_id=0, session_epoch=-1, low=7)
    yield row("session epoch 3, no id", session_id=0, session_epoch=3, low=7)
    yield from sessions()
    yield Scenario(
        1,
        "zero topic id",
        lambda s: (
            fetch(s)
            | {
                "topics": [
                    {
                        "topic_id": bytes(16),
                        "partitions": [{"fetch_offset": 0, "partition_max_bytes": 9}],
                    }
                ]
            }
        ),
        13,
    )
    yield Scenario(1, "two partitions, one batch only", two_partitions, 4)
    yield Scenario(1, "the same partition twice", same_twice, 4)
    for version in (0, 1, 2, 3):
        yield row(f"version {version}", low=version, high=version)


def two_partitions(side: Any) -> dict[str, Any]:
    request = fetch(side, max_bytes=10)
    request["topics"].append(fetch(side, "other")["topics"][0])
    return request


def same_twice(side: Any) -> dict[str, Any]:
    request = fetch(side)
    request["topics"] *= 2
    return request


def sessions() -> Iterator[Scenario]:
    def learn(side: Any, answer: Any) -> None:
        side.session = answer["session_id"]

    def go_on(
        name: str, epoch: int, topics: Callable[[Any], Any] = lambda _: [], **more: Any
    ) -> Scenario:
        return Scenario(1, name, lambda s: {"max_wait_ms": 0, "session_id": s.session,
                        "session_epoch": epoch, "topics": topics(s), **more}, 7)  # fmt: skip

    open_ = {"session_id": 0, "session_epoch": 0}
    yield Scenario(1, "a session begins", lambda s: fetch(s, **open_), 7, learn=learn)
    yield go_on("the session goes on", 1)
    yield go_on("with another partition", 2, lambda s: fetch(s, "other")["topics"])
    yield go_on("with a partition unknown", 3, lambda s: fetch(s, "nope")["topics"])
    yield go_on("with a wrong epoch", 9)
    yield Scenario(1, "and forgets", lambda s: {"max_wait_ms": 0, "session_id": s.session,
        "session_epoch": 4, "forgotten_topics_data": [{"topic": "read", "topic_id": s.ids["read"],
        "partitions": [0]}]}, 7)  # fmt: skip
    yield go_on("the session ends", -1)
    yield go_on("after the end", 5)


def list_offsets() -> Iterator[Scenario]:
    def row(
        name: str, part: dict[str, Any] | None = None, topic: str = "read", **more: Any
    ) -> Scenario:
        partition = {"partition_index": 0, "timestamp": -1, **(part or {})}
        low, high = more.pop("low", 0), more.pop("high", 99)
        request = {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}], **more}
        return Scenario(2, name, request, low, high)

    yield row("latest")
    yield row("earliest", {"timestamp": -2})
    for special in range(-8, -2):
        yield row(f"special {special}", {"timestamp": special})
    yield row("at time 0", {"timestamp": 0})
    yield row("at a record's time", {"timestamp": STAMP})
    yield row("in the future", {"timestamp": STAMP * 2})
    yield row("unknown topic", topic="nope")
    yield row("unknown partition", {"partition_index": 4})
    yield row("negative partition", {"partition_index": -4})
    yield row("current epoch", {"current_leader_epoch": 0}, low=4)
    yield row("too new epoch", {"current_leader_epoch": 3}, low=4)
    yield row("read committed", isolation_level=1, low=2)
    yield row("isolation level 7", isolation_level=7, low=2)
    yield row("as a replica", replica_id=9)
    yield row("as a debugging replica", replica_id=-2)
    yield row("of an empty log", topic="three")
    yield row("earliest of an empty log", {"timestamp": -2}, topic="three")
    yield row("max timestamp of an empty log", {"timestamp": -3}, topic="three")
    yield row("by time in an empty log", {"timestamp": 5}, topic="three")
    yield row("two offsets", {"max_num_offsets": 2}, high=0)
    yield row("no offsets", {"max_num_offsets": 0}, high=0)
    yield row("of a trimmed log", {"timestamp": -2}, topic="trimmed")
    same = [{"partition_index": 0, "timestamp": -1}] * 2
    yield Scenario(
        2, "the same twice", {"replica_id": -1, "topics": [{"name": "read", "partitions": same}]}
    )
    other = {"partition_index": 1, "timestamp": -1}
    yield Scenario(2, "the same twice and another", {"replica_id": -1, "topics": [
        {"name": "three", "partitions": [*same, other]}]})  # fmt: skip
    yield Scenario(2, "no partitions", {"replica_id": -1, "topics": [{"name": "read"}]})


def metadata() -> Iterator[Scenario]:
    def row(name: str, *names: str, low: int = 0, high: int = 99, **more: Any) -> Scenario:
        topics = [{"name": n} for n in names]
        request = {"topics": topics, "allow_auto_topic_creation": False, **more}
        return Scenario(3, name, request, low, high)

    yield row("one topic", "read")
    yield row("the same twice", "read", "read")
    yield row("three partitions", "three")
    yield row("unknown topic", "nope", low=4)
    yield row("unknown and known", "nope", "three", low=4)
    yield row("invalid name", "a/b", low=4)
    yield row("invalid name, may be made", "a/b")
    yield row("empty name", "", low=4)
    yield row("long name", "x" * 250, low=4)
    yield row("dots", ".", low=4)
    yield row("none", low=1)
    yield row("all", low=1, topics=None)
    yield row("all, in version 0", high=0)
    yield row("internal", "__consumer_offsets", low=4)
    yield row("operations", "read", low=8, include_topic_authorized_operations=True,
              include_cluster_authorized_operations=True)  # fmt: skip
    yield row(
        "operations of nobody's topic", "nope", low=8, include_topic_authorized_operations=True
    )
    yield Scenario(3, "made on demand", lambda s: {"topics": [{"name": f"auto-{s.version}"}]},
                   masks=("topics[].topic_id: new, random",))  # fmt: skip
    yield Scenario(
        3, "by id", lambda s: {"topics": [{"topic_id": s.ids["read"], "name": None}]}, 10
    )
    yield Scenario(
        3, "by id and name", lambda s: {"topics": [{"topic_id": s.ids["read"], "name": "read"}]}, 10
    )
    yield Scenario(3, "by unknown id", {"topics": [{"topic_id": UNKNOWN_ID, "name": None}]}, 10)
    yield Scenario(3, "by zero id", {"topics": [{"topic_id": bytes(16), "name": None}]}, 10)
    yield Scenario(3, "by id and by name", lambda s: {"topics": [
        {"topic_id": s.ids["read"], "name": None}, {"name": "three"}]}, 10)  # fmt: skip


def others() -> Iterator[Scenario]:
    """ApiVersions, InitProducerId, epochs, DeleteRecords, DescribeCluster, DescribeLogDirs."""
    names = {"client_software_name": "d", "client_software_version": "1"}
    yield Scenario(18, "versions", names)
    for bad in ("", "-a", "a-", "a b", "ä", "a_b"):
        yield Scenario(18, f"software {bad!r}", {**names, "client_software_name": bad}, 3)
        yield Scenario(
            18, f"software version {bad!r}", {**names, "client_software_version": bad}, 3
        )

    def init(name: str, low: int = 0, **fields: Any) -> Scenario:
        request = {"transactional_id": None, "transaction_timeout_ms": 60_000, **fields}
        masks = ("producer_id: each cluster has its own block",) if name.startswith("new") else ()
        return Scenario(22, name, request, low, masks=masks)

    yield init("new")
    yield init("new, without a timeout", transaction_timeout_ms=0)
    yield init("new, negative timeout", transaction_timeout_ms=-5)
    yield init("empty transactional id", transactional_id="")
    yield init("of a given producer", 3, producer_id=5, producer_epoch=3)
    yield init("of a given producer without epoch", 3, producer_id=5)
    yield init("of a given epoch without producer", 3, producer_epoch=5)
    yield init("of a negative producer", 3, producer_id=-7, producer_epoch=2)

    def epoch(
        name: str, topic: str = "read", low: int = 0, replica: int = -1, **part: int
    ) -> Scenario:
        partition = {"partition": 0, "leader_epoch": 0, **part}
        request = {"replica_id": replica, "topics": [{"topic": topic, "partitions": [partition]}]}
        return Scenario(23, name, request, low)

    yield epoch("the current epoch")
    yield epoch("an epoch to come", leader_epoch=4)
    yield epoch("a negative epoch", leader_epoch=-1)
    yield epoch("a very negative epoch", leader_epoch=-4)
    yield epoch("unknown topic", "nope")
    yield epoch("unknown partition", partition=3)
    yield epoch("negative partition", partition=-3)
    yield epoch("fenced with the current epoch", low=2, current_leader_epoch=0)
    yield epoch("fenced with a newer epoch", low=2, current_leader_epoch=1)
    yield epoch("of an empty log", "three")
    yield epoch("as a replica", low=3, replica=4)
    yield epoch("as a debugger", low=3, replica=-2)
    yield Scenario(23, "no partitions", {"topics": [{"topic": "read"}]})

    def trim(
        name: str, topic: str = "trimmed", index: int = 0, offset: int = 3, timeout: int = 900
    ) -> Scenario:
        parts = [{"partition_index": index, "offset": offset}]
        return Scenario(
            21, name, {"timeout_ms": timeout, "topics": [{"name": topic, "partitions": parts}]}
        )

    yield trim("to 3")
    yield trim("to 3 again")
    yield trim("back to 1", offset=1)
    yield trim("beyond the end", offset=99)
    yield trim("to offset -1", "cleared", offset=-1)
    yield trim("to offset -2", offset=-2)
    yield trim("unknown topic", "nope")
    yield trim("unknown partition", index=8)
    yield trim("negative partition", index=-8)
    yield trim("a compacted topic", "compacted", offset=1)
    yield trim("an internal topic", "__consumer_offsets", offset=0)
    yield trim("without time", offset=4, timeout=0)
    yield trim("with negative time", offset=4, timeout=-1)
    yield Scenario(21, "no partitions", {"topics": [{"name": "trimmed"}]})

    yield Scenario(60, "brokers", {"endpoint_type": 1})
    yield Scenario(60, "operations", {"include_cluster_authorized_operations": True})
    for kind in (0, 2, 3):
        yield Scenario(60, f"endpoint type {kind}", {"endpoint_type": kind}, 1)

    def dirs(name: str, topics: Any) -> Scenario:
        sizes = ("results[].total_bytes: the disk's", "results[].usable_bytes: the disk's",
                 "results[].log_dir: each has its folder",
                 "results[].topics[].partitions[].partition_size: checked on chosen topics")  # fmt: skip
        return Scenario(35, name, {"topics": topics}, masks=sizes if topics is None else sizes[:3])

    yield dirs("all", None)
    yield dirs("none", [])
    yield dirs("one", [{"topic": "read", "partitions": [0]}])
    yield dirs("unknown", [{"topic": "nope", "partitions": [0]}])
    yield dirs("unknown partition", [{"topic": "read", "partitions": [0, 9, -1]}])
    yield dirs("no partitions", [{"topic": "read", "partitions": []}])
    yield dirs("twice", [{"topic": "read", "partitions": [0, 0]}] * 2)

    yield Scenario(67, "stale broker", {"broker_id": 0, "broker_epoch": 1})
    yield Scenario(67, "unknown broker", {"broker_id": 55, "broker_epoch": 1})
    yield Scenario(67, "negative broker", {"broker_id": -1, "broker_epoch": -1})


def data_path() -> list[Scenario]:
    return [*fetching(), *list_offsets(), *metadata(), *others(), *producing()]
