"""A stream: micro-batches of offset ranges, planned from the offsets in Spark's checkpoint.

Invariants: a micro-batch is known by its start and end alone, so its replay reads the same records;
a partition that appears later enters an end offset at its log's start before any of its records are
read; topics are known by their ids, and one that was deleted and created again is refused. Spark:
`KafkaMicroBatchStream`.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.model.errors import ConfigError, OffsetOutOfRangeError, UnknownTopicError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.source.batch import RangePartition
from ottla.pipelines.source.cluster import Cluster, Topic
from ottla.pipelines.source.fetching import refuse_another
from ottla.pipelines.source.offsets import Position, from_json, to_json
from ottla.pipelines.source.options import Bound, SourceOptions
from ottla.pipelines.source.planning import Ends, edges, partitions_of, present, resolved
from ottla.pipelines.source.ranges import OffsetRange, divided, gathered, limited
from ottla.pipelines.source.scan import scan_all

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Json = dict[str, Any]

TOGETHER = 1000
"""Offsets of a micro-batch that one task reads from several partitions: a task costs more."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads what the options name, from a start on without an end."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        if options.ending != Bound(offset=LATEST):
            raise ConfigError("ending offsets are for batches: a stream has no end")
        self._options = options
        self._columns = tuple(columns)
        self._cluster: Cluster | None = None
        self._target: Position | None = None
        self._newest: Json | None = None
        self._triggered_s = -inf

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need: connections stay on the driver."""
        return {**self.__dict__, "_cluster": None}

    # -- what Spark calls on the driver ---------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        topics = self._asked.topics(self._options.subscription)
        partitions = partitions_of(topics)
        bound = self._options.starting or Bound(offset=LATEST)
        starts = resolved(self._asked, bound, partitions, "starting")
        if bound.offsets is not None:
            first = edges(self._asked, dict.fromkeys(partitions, EARLIEST))
            last = edges(self._asked, dict.fromkeys(partitions, LATEST))
            policy = self._options.on_data_loss
            starts = {tp: present(tp, at, first[tp], last[tp], policy) for tp, at in starts.items()}
        return to_json(_position(starts, topics))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.max_offsets_per_trigger  # minOffsetsPerTrigger: see _waits
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        known = from_json(start)
        ends = self._target or self._ends()
        self._newest = to_json(ends)
        self._check_topics(known, ends)
        starts = dict(known.offsets)
        upto = self._after_truncation(starts, ends)
        if self._waits(starts, upto):
            return start
        if isinstance(limit, ReadMaxRows):
            upto = limited(starts, upto, limit.max_rows)
        new = [tp for tp in ends.offsets if tp not in starts]
        upto |= edges(self._asked, dict.fromkeys(new, EARLIEST))
        return to_json(Position(upto, {**known.topic_ids, **ends.topic_ids}))

    def _waits(self, starts: Ends, upto: Ends) -> bool:
        """Return whether there is too little for a micro-batch, and the last one is not long ago.

        With availableNow what is there is all that will be.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        now_s = time.monotonic()
        new = sum(max(0, upto[tp] - starts[tp]) for tp in upto)
        if new < least and now_s < self._triggered_s + self._options.max_trigger_delay_s:
            return True
        self._triggered_s = now_s
        return False

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        return self._newest

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        before, after = from_json(start), from_json(end)
        self._check_ids(before, after)
        ranges = [
            OffsetRange(tp.topic, after.id_of(tp.topic), tp.partition, before.offsets[tp], upto)
            for tp, upto in after.offsets.items()
            if tp in before.offsets
        ]
        options = self._options
        parts = divided(ranges, options.min_partitions, options.max_records_per_partition)
        together = 0 if options.min_partitions else TOGETHER
        most = min(together, options.max_records_per_partition or together)
        return [RangePartition(*part) for part in gathered(parts, most)]

    def commit(self, end: Json) -> None:
        """Do nothing: Spark's checkpoint is the only place where a stream's offsets are kept."""

    def stop(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    # -- what tasks call ------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return scan_all(self._options, partition.value, self._columns)

    # -- the cluster as it is -------------------------------------------------------------------

    @property
    def _asked(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    def _ends(self) -> Position:
        """Return where the logs end now, of the partitions that exist now."""
        topics = self._asked.topics(self._options.subscription)
        return _position(edges(self._asked, dict.fromkeys(partitions_of(topics), LATEST)), topics)

    def _check_topics(self, known: Position, ends: Position) -> None:
        """Refuse a topic that is another one now, and one that is gone if loss is to fail.

        A checkpoint of other topics alone is refused whatever is said about loss: it is another
        stream's.
        """
        self._check_ids(known, ends)
        before, now = ({tp.topic for tp in p.offsets} for p in (known, ends))
        gone = sorted(before - now)
        if not gone:
            return
        if now and now.isdisjoint(before):
            raise UnknownTopicError(
                f"the checkpoint is of {', '.join(gone)}, this stream reads "
                f"{', '.join(sorted(now))}: give it a checkpoint of its own"
            )
        what = f"topic {gone[0]} of the checkpoint is not there any more, or not subscribed to"
        if self._options.on_data_loss == "fail":
            raise UnknownTopicError(f"{what} (option onDataLoss=earliest goes on without it)")
        log.warning("%s: going on without it", what)

    @staticmethod
    def _check_ids(before: Position, after: Position) -> None:
        for topic in after.topic_ids:
            refuse_another(topic, before.id_of(topic), after.id_of(topic))

    def _after_truncation(self, starts: Ends, ends: Position) -> Ends:
        """Return how far each known partition can be read; a log that was cut ends before that."""
        upto = {tp: ends.offsets[tp] for tp in starts if tp in ends.offsets}
        cut = {tp: end for tp, end in upto.items() if end < starts[tp]}
        if self._target is not None:  # what was there when the run began may have been read since
            now = edges(self._asked, dict.fromkeys(cut, LATEST))
            upto |= {tp: starts[tp] for tp in cut if now[tp] >= starts[tp]}
            cut = {tp: now[tp] for tp in cut if now[tp] < starts[tp]}
        policy = self._options.on_data_loss
        for tp, end in cut.items():
            what = f"{tp} was read up to offset {starts[tp]} and ends at {end} now"
            if policy == "fail":
                raise OffsetOutOfRangeError(
                    f"{what}: records were lost (option onDataLoss=earliest or latest goes on at "
                    "the log's start or end)"
                )
            log.warning("%s: going on at the log's %s", what, policy)
        if policy == "earliest":
            cut = edges(self._asked, dict.fromkeys(cut, EARLIEST))
        return {**upto, **cut}


def _position(offsets: dict[TopicPartition, int], topics: dict[str, Topic]) -> Position:
    return Position(offsets, {t.name: t.topic_id for t in topics.values()})
