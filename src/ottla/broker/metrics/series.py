"""Series: what is shown of each topic and of each partition, for those who ask for it.

Invariants: the number of series is bounded, a topic or partition is shown with all of its series or
not at all, and what is left out is counted; the work goes in time slices: what is shown of a
partition was true at one time, of all of them within a few milliseconds. Kafka: the MBeans of
`BrokerTopicMetrics`, `UnifiedLog`, `Partition` and `FetcherLagMetrics`.
"""

from collections.abc import Callable, Iterable, Sequence

from ottla.broker.metrics.exposition import COUNTER, GAUGE, Families, label_text, samples_of
from ottla.broker.metrics.exposition import parse_bean as parse
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


LOG, HOSTED = "kafka.log:type=Log,name=", "kafka.cluster:type=Partition,name="
PARTITION_BEANS = (
    f"{LOG}Size",
    f"{LOG}NumLogSegments",
    f"{LOG}LogStartOffset",
    f"{LOG}LogEndOffset",
    f"{HOSTED}LastStableOffsetLag",
    f"{HOSTED}ReplicasCount",
    f"{HOSTED}InSyncReplicasCount",
    f"{HOSTED}UnderReplicated",
    f"{HOSTED}UnderMinIsr",
    f"{HOSTED}AtMinIsr",
)
NOTHING = (0,) * len(PARTITION_BEANS)


def _values(partition: Partition) -> tuple[int, ...]:
    """Return what there is to show of a replica, in the order of `PARTITION_BEANS`.

    What only the leader of a partition knows is 0 at the others, and replicas that a reassignment
    adds are not counted before it is done, as with Kafka.
    """
    log, state = partition.log, partition.state
    if log is None:
        return NOTHING
    of_log = (
        log.size,
        len(log.segments),
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark - log.last_stable_offset,
    )
    if not state.is_leader:
        return (*of_log, 0, 0, 0, 0, 0)
    replicas, in_sync = len(state.replicas) - len(state.adding), len(state.isr.committed)
    at_min = in_sync == partition.min_isr
    flags = int(in_sync < replicas), int(partition.under_min_isr), int(at_min)
    return (*of_log, replicas, in_sync, *flags)


LAG = "kafka.server:type=FetcherLagMetrics,name=ConsumerLag"
SERIES_OF_A_PARTITION = len(PARTITION_BEANS) + 1
AT_ONCE = 100
"""Partitions between two looks at the clock: less than a millisecond."""


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
    names = [samples_of(parse(bean), "Value")[0].family for bean in PARTITION_BEANS]
    columns = [(name, families.family(name, GAUGE).lines) for name in names]
    for start in range(0, len(shown), AT_ONCE):
        rows = [_values(partition) for partition in shown[start : start + AT_ONCE]]
        some = labels[start : start + AT_ONCE]
        for place, (name, lines) in enumerate(columns):
            lines += [
                f"{name}{label} {row[place]}\n" for label, row in zip(some, rows, strict=True)
            ]
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
