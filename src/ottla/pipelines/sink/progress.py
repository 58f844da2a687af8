"""A topic that keeps how far a writer got: compacted, one key, read as a whole or from its end.

Invariants: what is read is committed, and all of it. Not a consumer group, because committed
offsets expire: a quiet writer would start over. Kafka: KIP-618 keeps the offsets of its source
connectors so.
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
from ottla.wire.record_check import varint
from ottla.wire.records import Aborted, iter_batches, iter_records

T = TypeVar("T")

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""Only closed segments are compacted: without a bound all the history would be read each time."""
MOST_REPLICAS = 3
POLL_S = 0.02
THERE_ALREADY = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)


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


def newest(
    cluster: Cluster, tp: TopicPartition, start: int = 0, *, wait: bool = True
) -> dict[bytes, tuple[bytes, int]]:
    """Return the last committed value of each key from an offset on, and its offset.

    `wait` for transactions that are open.
    """
    first = cluster.offsets({tp: EARLIEST})[tp].offset
    end = cluster.offsets({tp: LATEST}, committed=True)[tp].offset
    if wait:
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
