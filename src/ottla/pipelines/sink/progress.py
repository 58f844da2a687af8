"""How far a job got: a compacted topic on the target's cluster, written in the same transactions.

The topic is `ottla-replay.JOB`. Partition 0 has what the driver keeps: under the key `job` what the
job is bound to, under `checked` up to where both topics were compared. Partition P + 1 has, under
`progress`, the next offset of the source's partition P, so that a reader of it waits for no other
task's transaction. Invariants: what is read is committed, and all of it. Not a consumer group,
because committed offsets expire: a quiet partition would start over. Kafka: KIP-618 keeps the
offsets of its source connectors so.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from ottla.client import topics
from ottla.client.transactional_producer import TIMEOUT_MS, Encoded
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.fetching import PartitionFetcher
from ottla.pipelines.source.ranges import OffsetRange
from ottla.wire.aborted import Aborted
from ottla.wire.record_check import varint
from ottla.wire.records import iter_batches, iter_records

T = TypeVar("T")

TOPIC_PREFIX = "ottla-replay."
JOB, CHECKED, PROGRESS = b"job", b"checked", b"progress"
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""Only closed segments are compacted: without a bound all the history would be read each time."""
MOST_REPLICAS = 3
POLL_S = 0.02
THERE_ALREADY = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is bound to. `copies`: the settings that decide what is copied, and how."""

    job: str
    source_cluster: str
    source_topic: str
    source_id: str
    target_cluster: str
    target_topic: str
    target_id: str
    copies: dict[str, str]
    starts: dict[int, int]
    target_starts: dict[int, int]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a partition of the source got: its next offset, records written, by which run.

    `start`: the first offset that was to be copied.
    """

    run: str
    next: int
    start: int
    records: int


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where both topics were compared: next offsets, after how many checks."""

    checks: int
    source: dict[int, int]
    target: dict[int, int]


def topic_of(job: str) -> str:
    """Return the name of a job's topic."""
    return TOPIC_PREFIX + job


def encoded(key: bytes, value: msgspec.Struct) -> Encoded:
    """Return a batch of one record."""
    now_ms = time.time_ns() // 1_000_000
    data = msgspec.json.encode(value)
    body = b"".join((b"\0\0\0", varint(len(key)), key, varint(len(data)), data, b"\0"))
    return Encoded(bytearray(varint(len(body)) + body), 1, now_ms, now_ms)


def decoded(found: Mapping[bytes, tuple[bytes, int]], key: bytes, kind: type[T]) -> T | None:
    """Return what stands under a key; None if nothing does."""
    if key not in found:
        return None
    try:
        return msgspec.json.decode(found[key][0], type=kind)
    except msgspec.DecodeError as error:
        raise OttlaError(f"the job's progress cannot be read ({key.decode()}: {error})") from None


def newest(cluster: Cluster, tp: TopicPartition, start: int = 0) -> dict[bytes, tuple[bytes, int]]:
    """Return the last committed value of each key from an offset on, and its offset."""
    first = cluster.offsets({tp: EARLIEST})[tp].offset
    end = settled(cluster, [tp])[tp]
    found: dict[bytes, tuple[bytes, int]] = {}
    wanted = OffsetRange(tp.topic, ZERO_UUID, tp.partition, max(first, start), end)
    for fetched in PartitionFetcher(cluster, wanted):
        aborted = Aborted(fetched.aborted)
        for at, batch in iter_batches(fetched.records, allow_partial=True):
            if aborted.covers(fetched.records, at, batch) or batch.is_control:
                continue
            for record in iter_records(fetched.records, at):
                if record.key is not None and start <= record.offset < end:
                    found[record.key] = (record.value or b"", record.offset)
    return found


def settled(
    cluster: Cluster, partitions: Sequence[TopicPartition], timeout_s: float = 2 * TIMEOUT_MS / 1000
) -> dict[TopicPartition, int]:
    """Return where partitions end, once no transaction is open below that end."""
    asked = dict.fromkeys(partitions, LATEST)
    ends = {tp: one.offset for tp, one in cluster.offsets(asked).items()}
    deadline = time.monotonic() + timeout_s
    while True:
        stable = cluster.offsets(asked, committed=True)
        waiting = sorted(tp for tp in asked if stable[tp].offset < ends[tp])
        if not waiting:
            return ends
        if time.monotonic() > deadline:
            raise OttlaError(
                f"{waiting[0]}: a transaction has been open for {timeout_s:g} s at offset "
                f"{stable[waiting[0]].offset}, readers see nothing behind it; "
                "`ottla transactions list` shows whose it is"
            )
        time.sleep(POLL_S)


def jobs_into(cluster: Cluster, topic_id: str, but: str) -> list[str]:
    """Return the names of other jobs that are bound to a target topic."""
    metadata = cluster.run(cluster.client.metadata(None))
    found = []
    for topic in metadata.topics:
        name = topic.name or ""
        if not name.startswith(TOPIC_PREFIX) or name == topic_of(but) or topic.error_code:
            continue
        binding = decoded(newest(cluster, TopicPartition(name, 0)), JOB, Binding)
        if binding is not None and binding.target_id == topic_id:
            found.append(binding.job)
    return found


def ensure_topic(
    cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic, or add partitions to it; return when all of them have leaders."""
    cluster.run(_ensure(cluster, name, partitions, configs or {}))


async def _ensure(cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    client, patience = cluster.client, cluster.patience()
    while True:
        error = OttlaError(f"topic {name} has no leaders yet", ErrorCode.LEADER_NOT_AVAILABLE)
        try:
            metadata = await client.metadata([name])
            topic = metadata.topics[0]
            led = [one for one in topic.partitions if one.leader_id >= 0]
            if not topic.error_code and partitions <= len(topic.partitions) == len(led):
                return
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await topics.create_topic(
                    client,
                    name,
                    partitions=partitions,
                    replication_factor=min(MOST_REPLICAS, len(metadata.brokers)),
                    settings=configs,
                    timeout_ms=cluster.options.request_timeout_ms,
                )
            elif not topic.error_code and len(topic.partitions) < partitions:
                await topics.alter_topic(client, name, partitions=partitions)
        except OttlaError as caught:
            if caught.code not in THERE_ALREADY:
                error = caught
        await patience.wait(error)
