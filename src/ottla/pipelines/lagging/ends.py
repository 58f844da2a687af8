"""Ends: where the logs of partitions began, and where they ended at which time.

Invariants: a request for each leader and time, whatever the number of partitions; partitions that
do not exist any more, or that no one leads now, are left out. The end at a time is the offset of
the first record that is later (ListOffsets by time): as good as the records' timestamps.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.model.ids import TopicPartition
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import parse_options
from ottla.pipelines.source.planning import edges

Ends = dict[TopicPartition, tuple[int, list[tuple[int, int]]]]
"""By partition the log's start, and (time in ms, end) in order."""


def ends_of(
    client: Mapping[str, str], wanted: Iterable[TopicPartition], times_ms: Sequence[int]
) -> tuple[Ends, list[TopicPartition]]:
    """Ask where logs begin now and ended at each time; return that, and who has no leader.

    `client`: `config.Cluster.source_options`.
    """
    chosen = sorted(set(wanted))
    if not chosen:
        return {}, []
    topics = sorted({tp.topic for tp in chosen})
    options = parse_options({**client, "subscribe": ",".join(topics)})
    with Cluster(options) as cluster:
        there = cluster.existing(topics)
        metadata = cluster.run(cluster.client.metadata(sorted(there)))
        led = {
            TopicPartition(topic.name or "", one.partition_index): one.leader_id >= 0
            for topic in metadata.topics
            for one in topic.partitions
        }
        known = [tp for tp in chosen if led.get(tp)]
        first = edges(cluster, dict.fromkeys(known, EARLIEST))
        last = edges(cluster, dict.fromkeys(known, LATEST))
        found: Ends = {tp: (first[tp], []) for tp in known}
        for at_ms in times_ms:
            later = edges(cluster, dict.fromkeys(known, at_ms + 1))
            for tp, offset in later.items():
                found[tp][1].append((at_ms, last[tp] if offset < 0 else min(offset, last[tp])))
    return found, [tp for tp in chosen if led.get(tp) is False]
