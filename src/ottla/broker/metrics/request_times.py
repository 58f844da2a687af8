"""Request times: how many requests of each kind came, and how long a few of them took.

Who may call: `router` counts, `mbeans` looks. Invariants: every request costs one addition to a
list; only every `EVERY`th of a kind and version is timed, from its dispatch until its response is
complete. Kafka: `RequestMetrics`, which times all.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ottla.net.connection import Pending
from ottla.wire.api_keys import ApiKey

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

TOTAL, LOCAL, REMOTE = "TotalTimeMs", "LocalTimeMs", "RemoteTimeMs"


class RequestTimes:
    """Counts and times by kind: an API key, or one of two kinds of fetches."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.of = [0] * (KEYS << VERSION_BITS)
        """requests by `api_key << VERSION_BITS | version`: the router adds to it"""
        self._monotonic = monotonic
        self._kept: dict[int, deque[tuple[float, float]]] = {}
        """by kind: milliseconds in the handler, and from its return until the response"""

    def begin(self) -> float:
        return self._monotonic()

    def end(
        self, api_key: int, started_s: float, outcome: object, *, from_broker: bool = False
    ) -> None:
        """Note a request's time now or, if its response is still to come, when it comes."""
        kind = api_key
        if api_key == FETCH:
            kind = FETCH_FOLLOWER if from_broker else FETCH_CONSUMER
        returned_s = self._monotonic()
        if isinstance(outcome, Pending) and not outcome.done:
            outcome.timed = kind, started_s, returned_s
        else:
            self._note(kind, started_s, returned_s, returned_s)

    def responded(self, pending: Pending) -> None:
        """Note the time of a request whose response came later."""
        if pending.timed is not None:
            self._note(*pending.timed, self._monotonic())

    def _note(self, kind: int, started_s: float, returned_s: float, ended_s: float) -> None:
        times = round((returned_s - started_s) * 1000, 3), round((ended_s - returned_s) * 1000, 3)
        for one in (kind,) if kind >= 0 else (kind, FETCH):
            kept = self._kept.get(one)
            if kept is None:
                kept = self._kept[one] = deque(maxlen=KEPT)
            kept.append(times)

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
            yield kind, TOTAL, summary(sorted(local + remote for local, remote in kept))
            yield kind, LOCAL, summary(sorted(local for local, _ in kept))
            yield kind, REMOTE, summary(sorted(remote for _, remote in kept))


def summary(times: Sequence[float]) -> dict[str, float]:
    """Return what there is to say of some sorted times, at least one."""
    found: dict[str, float] = {"Count": len(times), "Mean": round(sum(times) / len(times), 3)}
    found |= {"Min": round(times[0], 3), "Max": round(times[-1], 3)}
    last = len(times) - 1
    return found | {n: round(times[int(share * last)], 3) for n, share in PERCENTILES.items()}
