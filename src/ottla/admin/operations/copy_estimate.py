"""How fast replicas are copied and when that ends, from sizes seen now and then.

Who may call: `copy_progress` and tests. Invariants: plain values in, plain values out; what is left
counts, not what was copied: where leaders grow meanwhile, the end is when copies have caught up; it
is that of the broker that is last, since throttles are per broker.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEAST_WINDOW_S = 10.0
"""As many seconds as the brokers' throttle looks back over (`replication.quota.window.num`)."""
MOST_SAMPLES = 4096


class Sizes(NamedTuple):
    """At one moment: what each broker has copied, and what it is to have copied; bytes."""

    copied: Mapping[int, int]
    of: Mapping[int, int]


class Estimate(NamedTuple):
    """`rate`: bytes per second; `left_s`: seconds to the end. None: not known yet."""

    copied: int
    of: int
    rate: float | None
    left_s: float | None


class Estimator:
    """Remembers sizes; says what they amount to."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Sizes]] = deque(maxlen=MOST_SAMPLES)

    def add(self, now_s: float, sizes: Sizes) -> Estimate:
        """Take sizes in; return the estimate as of now."""
        self._samples.append((now_s, sizes))
        copied, of = sum(sizes.copied.values()), sum(sizes.of.values())
        recent = self._recent(now_s)
        if len(recent) < 2:
            return Estimate(copied, of, None, None)
        rate, _ = _line([(t - now_s, float(sum(s.copied.values()))) for t, s in recent])
        return Estimate(copied, of, max(0.0, rate), _left_s(recent))

    def _recent(self, now_s: float) -> list[tuple[float, Sizes]]:
        """Return the samples of the last two thirds of the time, of ten seconds at least.

        The first third has the start in it, when nothing was throttled yet.
        """
        since_s = now_s - max(LEAST_WINDOW_S, (now_s - self._samples[0][0]) * 2 / 3)
        recent = [sample for sample in self._samples if sample[0] >= since_s]
        return recent if len(recent) > 1 else list(self._samples)[-2:]


def _left_s(recent: Sequence[tuple[float, Sizes]]) -> float | None:
    """Return when the last broker has caught up; None while one of them comes no nearer."""
    longest = 0.0
    now_s, now = recent[-1]
    for broker, of in now.of.items():
        if of - now.copied.get(broker, 0) <= 0:
            continue
        left = [
            (t - now_s, float(s.of.get(broker, of) - s.copied.get(broker, 0))) for t, s in recent
        ]
        slope, fitted = _line(left)
        if slope >= 0:
            return None
        longest = max(longest, fitted / -slope)
    return longest


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return slope, and value at 0, of the line that fits best by least squares.

    A throttle lets records pass in bursts: two samples alone would be off by half of one.
    """
    count = len(points)
    mean_t = sum(t for t, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    if spread == 0:
        return 0.0, mean_y
    slope = sum((t - mean_t) * (y - mean_y) for t, y in points) / spread
    return slope, mean_y - slope * mean_t
