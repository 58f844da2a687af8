"""The lag of a stream of `format("ottla")`, from what Spark reports of each micro-batch.

Spark asks only sources in Java for metrics; a Python source reports how far its logs reach
(`latestOffset` of a progress), and the rest is a subtraction. Names and meaning are those of
Spark's Kafka connector (`KafkaMicroBatchStream.metrics`).
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla.model.errors import ConfigError
from ottla.pipelines.source.offsets import Position, from_json

log = logging.getLogger(__name__)


def lag_of(progress: Mapping[str, Any]) -> list[dict[str, float]]:
    """Return the lag of each source of a query's progress; {} for one that is not of this kind.

    `progress` is `query.lastProgress`, one of `query.recentProgress`, or a listener's
    `event.progress`. A lag: `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and
    `avgOffsetsBehindLatest` over the partitions, `offsetsBehindLatest` their sum, all in offsets
    at the time when the micro-batch was planned; `inputRows` of the micro-batch.
    """
    return [_lag(source) for source in progress["sources"]]


def _lag(source: Mapping[str, Any]) -> dict[str, float]:
    read, there = _position(source["endOffset"]), _position(source["latestOffset"])
    if read is None or there is None:
        return {}
    behind = [max(0, end - read.offsets.get(tp, end)) for tp, end in there.offsets.items()] or [0]
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
        "offsetsBehindLatest": sum(behind),
        "inputRows": source["numInputRows"],
    }


def _position(found: Any) -> Position | None:
    """Return a position of ours; None for anything else. Spark gives objects or their text."""
    try:
        return from_json(json.loads(found) if isinstance(found, str) else found)
    except (ConfigError, ValueError):
        return None


class LagListener(StreamingQueryListener):  # type: ignore[misc]
    """Reports the lag after each micro-batch: `spark.streams.addListener(LagListener(report))`.

    `report` is called with the query's name (or its id) and what `lag_of` returns; by default
    that is logged.
    """

    def __init__(
        self, report: Callable[[str, list[dict[str, float]]], object] | None = None
    ) -> None:
        self._report = report or _log

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        self._report(progress.name or str(progress.id), lag_of(progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        pass


def _log(query: str, lags: list[dict[str, float]]) -> None:
    log.info("%s: %s", query, lags)
