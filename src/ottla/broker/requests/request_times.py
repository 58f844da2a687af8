"""Request times: how many requests of each kind came, and how long a few of them took.

Invariants: every request costs one addition to a list; only every `EVERY`th of a kind and version
is timed, unless there is a log of requests. Kafka: `RequestMetrics`, which times all.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.net.connection import Connection
from ottla.net.timed import Timed
from ottla.wire.apis import ApiKey
from ottla.wire.codec import APIS

EVERY = 64
"""A power of two; the first of a kind is timed, too."""
MASK = EVERY - 1
KEPT = 256
"""Times kept of each kind: percentiles are of these."""
KEYS, VERSION_BITS = 128, 5
FETCH = int(ApiKey.FETCH)
FETCH_CONSUMER, FETCH_FOLLOWER = -1, -2
"""Kinds beside the API keys: a fetch is one of them, too, as with Kafka."""

PERCENTILES = {
    "50thPercentile": 0.5,
    "75thPercentile": 0.75,
    "95thPercentile": 0.95,
    "98thPercentile": 0.98,
    "99thPercentile": 0.99,
    "999thPercentile": 0.999,
}

TOTAL, QUEUE, LOCAL, REMOTE, RESPONSE_QUEUE, SEND = (
    "TotalTimeMs",
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
)


class Took(NamedTuple):
    """What one request took, in milliseconds."""

    queue: float
    """From when all of it had come until its dispatch."""
    local: float
    """Until its handler returned."""
    remote: float
    """Until its response was complete."""
    response_queue: float
    """Until it was that response's turn."""
    send: float
    """Until it was handed to the system."""

    @property
    def total(self) -> float:
        return self.queue + self.local + self.remote + self.response_queue + self.send


def took(timed: Timed, sent_s: float) -> Took:
    """Return what a request took whose response was sent at a time."""
    return Took(
        round((timed.started_s - timed.arrived_s) * 1000, 3),
        round((timed.returned_s - timed.started_s) * 1000, 3),
        round((timed.responded_s - timed.returned_s) * 1000, 3),
        round((max(timed.written_s, timed.responded_s) - timed.responded_s) * 1000, 3),
        round((sent_s - max(timed.written_s, timed.responded_s)) * 1000, 3),
    )


class RequestListener(Protocol):
    """Hears of each request twice."""

    def heard(self, conn: Connection, timed: Timed, frame: memoryview) -> None:
        """Note a request that is dispatched now."""

    def __call__(self, conn: Connection, timed: Timed, took: Took) -> None:
        """Note that its response was handed to the system."""


class RequestTimes:
    """Counts and times by kind: an API key, or one of two kinds of fetches."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.of = [0] * (KEYS << VERSION_BITS)
        """requests by `api_key << VERSION_BITS | version`: the router adds to it"""
        self.each: RequestListener | None = None
        """hears of each request, where there is a log of requests: then all of them are timed"""
        self._monotonic = monotonic
        self._kept: dict[int, deque[Took]] = {}

    def begin(self, api_key: int, conn: Connection, frame: memoryview) -> Timed:
        """Time a request that is dispatched now."""
        kind = api_key
        if api_key == FETCH:
            kind = FETCH_FOLLOWER if conn.is_from_broker else FETCH_CONSUMER
        timed = Timed(kind, self._monotonic())
        if self.each is not None:
            self.each.heard(conn, timed, frame)
        return timed

    def returned(self, timed: Timed, conn: Connection) -> None:
        """Note that its handler has returned; the connection does the rest."""
        timed.returned_s = self._monotonic()
        if timed.kind == FETCH_CONSUMER and conn.is_from_broker:  # the first one says so
            timed.kind = FETCH_FOLLOWER
        conn.timed = timed

    def sent(self, conn: Connection, requests: Sequence[Timed]) -> None:
        """Note the times of requests whose responses were just handed to the system."""
        now_s = self._monotonic()
        for timed in requests:
            times = took(timed, now_s)
            for one in (timed.kind,) if timed.kind >= 0 else (timed.kind, FETCH):
                kept = self._kept.get(one)
                if kept is None:
                    kept = self._kept[one] = deque(maxlen=KEPT)
                kept.append(times)
            if self.each is not None:
                self.each(conn, timed, times)

    def counts(self) -> Iterator[tuple[int, int, int]]:
        """Yield (api key, version, requests) of what was ever asked."""
        for slot, count in enumerate(self.of):
            if count:
                yield slot >> VERSION_BITS, slot & (1 << VERSION_BITS) - 1, count

    def figures(self) -> Iterator[tuple[int, str, dict[str, float]]]:
        """Yield (kind, name, milliseconds), by the attributes of Kafka's histograms.

        `Count` is of the requests that were timed.
        """
        for kind, kept in sorted(self._kept.items()):
            yield kind, TOTAL, summary(sorted(times.total for times in kept))
            for place, name in enumerate((QUEUE, LOCAL, REMOTE, RESPONSE_QUEUE, SEND)):
                yield kind, name, summary(sorted(times[place] for times in kept))


def kind_name(kind: int) -> str:
    """Return what Kafka calls a kind of request."""
    return _FETCHES.get(kind) or APIS[kind].name


_FETCHES = {FETCH_CONSUMER: "FetchConsumer", FETCH_FOLLOWER: "FetchFollower"}


def summary(times: Sequence[float]) -> dict[str, float]:
    """Return what there is to say of some sorted times, at least one."""
    found: dict[str, float] = {"Count": len(times), "Mean": round(sum(times) / len(times), 3)}
    found |= {"Min": round(times[0], 3), "Max": round(times[-1], 3)}
    last = len(times) - 1
    return found | {n: round(times[int(share * last)], 3) for n, share in PERCENTILES.items()}
