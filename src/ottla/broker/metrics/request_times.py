"""Request times: how many requests of each kind came, and how long a few of them took.

Who may call: `router` counts, `mbeans` looks. Invariants: every request costs one addition to a
list; only every `EVERY`th of a kind is timed, from its dispatch until its response is complete.
Kafka: `RequestMetrics`, which times all.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ottla.net.connection import Pending

EVERY = 64
"""A power of two; the first of a kind is timed, too."""
MASK = EVERY - 1
KEPT = 256
"""Times kept of each kind: percentiles are of these."""
KEYS = 128

PERCENTILES = {"50thPercentile": 0.5, "95thPercentile": 0.95, "99thPercentile": 0.99}


class RequestTimes:
    """Counts and times by api key. `of` is the list that the router adds to."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.of = [0] * KEYS
        self._monotonic = monotonic
        self._kept: dict[int, deque[float]] = {}

    def begin(self) -> float:
        return self._monotonic()

    def end(self, api_key: int, started_s: float, outcome: object) -> None:
        """Note a request's time now or, if its response is still to come, when it comes."""
        if isinstance(outcome, Pending) and not outcome.done:
            outcome.timed = api_key, started_s
        else:
            self._note(api_key, started_s)

    def responded(self, pending: Pending) -> None:
        """Note the time of a request whose response came later."""
        if pending.timed is not None:
            self._note(*pending.timed)

    def _note(self, api_key: int, started_s: float) -> None:
        kept = self._kept.get(api_key)
        if kept is None:
            kept = self._kept[api_key] = deque(maxlen=KEPT)
        kept.append(round((self._monotonic() - started_s) * 1000, 3))

    def counts(self) -> Iterator[tuple[int, int]]:
        """Yield (api key, requests) of what was ever asked."""
        return ((key, count) for key, count in enumerate(self.of) if count)

    def figures(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield (api key, milliseconds), by the attributes of Kafka's histograms."""
        for key, kept in sorted(self._kept.items()):
            yield key, summary(sorted(kept))


def summary(times: Sequence[float]) -> dict[str, float]:
    """Return what there is to say of some sorted times, at least one."""
    found: dict[str, float] = {"Count": len(times), "Mean": round(sum(times) / len(times), 3)}
    found |= {"Min": times[0], "Max": times[-1]}
    return found | {n: times[int(share * (len(times) - 1))] for n, share in PERCENTILES.items()}
