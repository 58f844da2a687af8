"""Request log: a line for each request that was slow, or for each one at level DEBUG.

Who may call: the broker makes one where the settings ask for it; `request_times` calls it with each
request. Invariants: a warning a second at most, with the number of those that were left out; what a
request waits for because its client asked for that (records of a fetch, members of a group) is not
slow. Kafka: `RequestChannel.Response` and `kafka.request.logger`, which has the request's and the
response's content, too; a slow-request log it has not.
"""

import logging
import struct
from collections.abc import Callable

from ottla.broker.metrics.request_times import (
    FETCH_CONSUMER,
    FETCH_FOLLOWER,
    Took,
    kind_name,
)
from ottla.net.connection import Connection
from ottla.net.timed import Timed
from ottla.wire.api_keys import ApiKey

logger = logging.getLogger(__name__)

WAITING = {FETCH_CONSUMER, FETCH_FOLLOWER, int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP)}
"""Kinds whose remote time is what their clients wait for."""
QUIET_S = 1.0
_HEAD = struct.Struct(">hhih")
FIELDS = (
    "api=%s version=%d correlation_id=%d client_id=%r peer=%s:%d listener=%s principal=%s "
    "total_ms=%.1f queue_ms=%.1f local_ms=%.1f remote_ms=%.1f "
    "response_queue_ms=%.1f send_ms=%.1f"
)


class RequestLog:
    """Called with each request when its response was handed to the system."""

    def __init__(self, slow_ms: int, monotonic: Callable[[], float]) -> None:
        self._slow_ms = slow_ms
        self._monotonic = monotonic
        self._quiet_until_s = 0.0
        self._unlogged = 0

    def __call__(self, conn: Connection, timed: Timed, took: Took) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("request completed " + FIELDS, *_fields(conn, timed, took))  # noqa: G003
        waited = took.remote if timed.kind in WAITING else 0.0
        if not self._slow_ms or took.total - waited < self._slow_ms:
            return
        now_s = self._monotonic()
        if now_s < self._quiet_until_s:
            self._unlogged += 1
            return
        self._quiet_until_s = now_s + QUIET_S
        unlogged, self._unlogged = self._unlogged, 0
        logger.warning(
            "request slow " + FIELDS + " unlogged=%d",  # noqa: G003
            *_fields(conn, timed, took), unlogged,
        )  # fmt: skip


def request_log(slow_ms: int, monotonic: Callable[[], float]) -> RequestLog | None:
    """Return the log of a broker; None where there is nothing to log."""
    if not slow_ms and not logger.isEnabledFor(logging.DEBUG):
        return None
    return RequestLog(slow_ms, monotonic)


def _fields(conn: Connection, timed: Timed, took: Took) -> tuple[object, ...]:
    _, version, correlation_id, length = _HEAD.unpack_from(timed.head)
    client_id = timed.head[_HEAD.size : _HEAD.size + max(0, length)].decode(errors="replace")
    return (
        kind_name(timed.kind), version, correlation_id, client_id, *conn.peer, conn.listener,
        conn.principal, took.total, *took,
    )  # fmt: skip
