"""Series: what is shown of each topic and of each partition, for those who ask for it.

Who may call: `pages`. Invariants: the number of series is bounded, a topic or partition is shown
with all of its series or not at all, and what is left out is counted; the work goes in time slices,
one family after the other, so what it shows of partitions was true at times a few milliseconds
apart. Kafka: the MBeans of `BrokerTopicMetrics`, `UnifiedLog`, `Partition` and `FetcherLagMetrics`.
"""

from collections.abc import Callable, Iterable, Sequence

from ottla.broker.metrics.bean_names import COUNTER, GAUGE, label_text, samples_of
from ottla.broker.metrics.bean_names import parse_bean as parse
from ottla.broker.metrics.exposition import Families
from ottla.model.time_slices import TimeSlice
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.topic_counts import TopicCounts

BROKER, TOPIC, PARTITION = "broker", "topic", "partition"
"""How much is shown: `ottla.metrics.detail`."""

TOPIC_METRICS: dict[str, Callable[[TopicCounts], int]] = {
    "MessagesInPerSec": lambda c: c.messages_in,
    "BytesInPerSec": lambda c: c.bytes_in,
    "BytesOutPerSec": lambda c: c.bytes_out,
    "BytesRejectedPerSec": lambda c: c.bytes_rejected,
    "ReplicationBytesInPerSec": lambda c: c.replication_bytes_in,
    "ReplicationBytesOutPerSec": lambda c: c.replication_bytes_out,
    "TotalProduceRequestsPerSec": lambda c: c.produces,
    "FailedProduceRequestsPerSec": lambda c: c.failed_produces,
    "TotalFetchRequestsPerSec": lambda c: c.fetches,
    "FailedFetchRequestsPerSec": lambda c: c.failed_fetches,
}
"""Of all topics together and of each; the same names as Kafka's."""
TOPIC_BEAN = "kafka.server:type=BrokerTopicMetrics,name="


def _of_log(read: Callable[[Partition], int]) -> Callable[[Partition], int]:
    return lambda p: read(p) if p.log is not None else 0


def _of_leader(read: Callable[[Partition], int]) -> Callable[[Partition], int]:
    """Read what only the leader of a partition knows; the others show 0, as with Kafka."""
    return lambda p: read(p) if p.is_leader and p.log is not None else 0


LOG, HOSTED = "kafka.log:type=Log,name=", "kafka.cluster:type=Partition,name="
PARTITION_METRICS: dict[str, Callable[[Partition], int]] = {
    f"{LOG}Size": _of_log(lambda p: p.log.size),  # type: ignore[union-attr]
    f"{LOG}NumLogSegments": _of_log(lambda p: len(p.log.segments)),  # type: ignore[union-attr]
    f"{LOG}LogStartOffset": _of_log(lambda p: p.log.log_start_offset),  # type: ignore[union-attr]
    f"{LOG}LogEndOffset": _of_log(lambda p: p.log.log_end_offset),  # type: ignore[union-attr]
    f"{HOSTED}ReplicasCount": _of_leader(lambda p: len(p.replicas)),
    f"{HOSTED}InSyncReplicasCount": _of_leader(lambda p: len(p.isr.committed)),
    f"{HOSTED}UnderReplicated": _of_leader(lambda p: len(p.isr.committed) < len(p.replicas)),
    f"{HOSTED}UnderMinIsr": _of_leader(lambda p: p.under_min_isr),
    f"{HOSTED}AtMinIsr": _of_leader(lambda p: len(p.isr.committed) == p.min_isr),
    f"{HOSTED}LastStableOffsetLag": _of_log(
        lambda p: p.log.high_watermark - p.log.last_stable_offset  # type: ignore[union-attr]
    ),
}
LAG = "kafka.server:type=FetcherLagMetrics,name=ConsumerLag"
SERIES_OF_A_PARTITION = len(PARTITION_METRICS) + 1
AT_ONCE = 250
"""Partitions of one family between two looks at the clock: a tenth of a millisecond."""


async def add_topics(
    families: Families, topics: Iterable[tuple[str, TopicCounts]], most: int, turn: TimeSlice
) -> tuple[int, int]:
    """Add the series of topics, at most so many; return how many, and how many are left out."""
    known = list(topics)
    shown = known[: most // len(TOPIC_METRICS)]
    labels = [label_text((("topic", topic),)) for topic, _ in shown]
    for name, read in TOPIC_METRICS.items():
        family = samples_of(parse(f"{TOPIC_BEAN}{name}"), "Count")[0].family
        lines = families.family(family, COUNTER).lines
        for start in range(0, len(shown), AT_ONCE):
            part = zip(shown[start : start + AT_ONCE], labels[start:], strict=False)
            lines += [f"{family}{label} {read(counts)}\n" for (_, counts), label in part]
            await turn.checkpoint()
    return len(shown) * len(TOPIC_METRICS), (len(known) - len(shown)) * len(TOPIC_METRICS)


async def add_partitions(
    families: Families, replicas: ReplicaManager, most: int, turn: TimeSlice
) -> tuple[int, int]:
    """Do so for the replicas of this broker."""
    known = list(replicas.partitions.values())
    shown = known[: most // SERIES_OF_A_PARTITION]
    labels = [
        label_text((("topic", p.tp.topic), ("partition", str(p.tp.partition)))) for p in shown
    ]
    for name, read in PARTITION_METRICS.items():
        family = samples_of(parse(name), "Value")[0].family
        lines = families.family(family, GAUGE).lines
        for start in range(0, len(shown), AT_ONCE):
            part = zip(shown[start : start + AT_ONCE], labels[start:], strict=False)
            lines += [f"{family}{label} {read(p):d}\n" for p, label in part]
            await turn.checkpoint()
    await _add_lags(families, replicas, shown, turn)
    left_out = (len(known) - len(shown)) * SERIES_OF_A_PARTITION
    return len(shown) * SERIES_OF_A_PARTITION, left_out


async def _add_lags(
    families: Families, replicas: ReplicaManager, shown: Sequence[Partition], turn: TimeSlice
) -> None:
    """Add how far the followers among these replicas are behind their leaders."""
    name = samples_of(parse(LAG), "Value")[0].family
    lines = families.family(name, GAUGE).lines
    wanted = {p.tp for p in shown}
    for client_id, lags in replicas.fetchers.lags():
        for tp, lag in lags:
            if tp in wanted:
                pairs = (
                    ("clientId", client_id),
                    ("topic", tp.topic),
                    ("partition", str(tp.partition)),
                )
                lines.append(f"{name}{label_text(pairs)} {lag}\n")
            if len(lines) % AT_ONCE == 0:
                await turn.checkpoint()
