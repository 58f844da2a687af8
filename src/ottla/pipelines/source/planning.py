"""From options to offsets: where a read starts and ends, as the cluster stands now.

Invariants: whatever bounds are given, each partition gets one start and one end; offsets that are
gone are dealt with as the policy says, and reported. Spark: `KafkaOffsetReaderAdmin`.
"""

import logging
from collections.abc import Mapping

from ottla.model.errors import ConfigError, OffsetOutOfRangeError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.source.cluster import Cluster, Topic
from ottla.pipelines.source.options import Bound, Offsets, Policy
from ottla.pipelines.source.ranges import OffsetRange

log = logging.getLogger(__name__)

Ends = dict[TopicPartition, int]
_FROM_START, _TO_END = Bound(offset=EARLIEST), Bound(offset=LATEST)


def partitions_of(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [TopicPartition(t.name, p) for t in topics.values() for p in t.partitions]


def resolved(cluster: Cluster, bound: Bound, partitions: list[TopicPartition], side: str) -> Ends:
    """Return the offset that `bound` means for each partition; `side` is starting or ending.

    ConfigError if it names other partitions than there are, or a time after the last record where
    that is not allowed.
    """
    if bound.timestamp is not None or bound.timestamps is not None:
        return _by_time(cluster, bound, partitions, side)
    if bound.offset is not None:
        return edges(cluster, dict.fromkeys(partitions, bound.offset))
    assert bound.offsets is not None
    given = _matched(bound.offsets, partitions, f"{side}Offsets")
    symbolic = {tp: offset for tp, offset in given.items() if offset < 0}
    return {**given, **edges(cluster, symbolic)}


def edges(cluster: Cluster, asked: Mapping[TopicPartition, int]) -> Ends:
    """Return where the logs start or end: EARLIEST or LATEST for each."""
    if not asked:
        return {}
    found = cluster.offsets(asked, committed=cluster.options.read_committed)
    return {tp: one.offset for tp, one in found.items()}


def _by_time(cluster: Cluster, bound: Bound, partitions: list[TopicPartition], side: str) -> Ends:
    if bound.timestamps is not None:
        times = _matched(bound.timestamps, partitions, f"{side}OffsetsByTimestamp")
    else:
        assert bound.timestamp is not None
        times = dict.fromkeys(partitions, bound.timestamp)
    found = edges(cluster, times)
    late = [tp for tp in partitions if found[tp] < 0]
    if late and side == "starting" and cluster.options.time_without_offset == "error":
        raise ConfigError(
            f"{late[0]} has no record of time {times[late[0]]} or later to start at "
            "(option startingOffsetsByTimestampStrategy=latest starts at the end then)"
        )
    return {**found, **edges(cluster, dict.fromkeys(late, LATEST))}


def _matched(given: Offsets, partitions: list[TopicPartition], name: str) -> Ends:
    """Return what is given by partition; it has to name all, and no others."""
    found = {TopicPartition(t, p): at for t, inner in given.items() for p, at in inner.items()}
    missing = sorted(set(partitions) - set(found))
    foreign = sorted(set(found) - set(partitions))
    if missing:
        raise ConfigError(f"option {name} says nothing of {missing[0]}; -1 is latest, -2 earliest")
    if foreign:
        raise ConfigError(f"option {name} names {foreign[0]}, which is not subscribed to")
    return found


def planned(
    cluster: Cluster, topics: Mapping[str, Topic], starting: Bound, ending: Bound
) -> list[OffsetRange]:
    """Return one range for each partition; offsets that are gone are treated by the policy."""
    partitions = partitions_of(topics)
    first = edges(cluster, dict.fromkeys(partitions, EARLIEST))
    starts = (
        first if starting == _FROM_START else resolved(cluster, starting, partitions, "starting")
    )
    ends = resolved(cluster, ending, partitions, "ending")
    last = ends if ending == _TO_END else edges(cluster, dict.fromkeys(partitions, LATEST))
    policy = cluster.options.on_data_loss
    ranges = []
    for tp in partitions:
        start, end = starts[tp], ends[tp]
        if start > end:
            raise ConfigError(f"{tp}: starting offset {start} lies after ending offset {end}")
        start = present(tp, start, first[tp], last[tp], policy)
        end = present(tp, end, first[tp], last[tp], policy)
        ranges.append(
            OffsetRange(tp.topic, topics[tp.topic].topic_id, tp.partition, start, max(start, end))
        )
    return ranges


def present(tp: TopicPartition, offset: int, first: int, last: int, policy: Policy) -> int:
    """Return an offset that the log has, for one that was asked for."""
    if first <= offset <= last:
        return offset
    if policy == "fail":
        raise OffsetOutOfRangeError(
            f"{tp}: offset {offset} is gone, the log holds {first} to {last} "
            "(option onDataLoss=earliest or latest goes on without it)"
        )
    nearest = min(max(offset, first), last)
    log.warning("%s: offset %d is gone (log: %d to %d), %d taken", tp, offset, first, last, nearest)
    return nearest
