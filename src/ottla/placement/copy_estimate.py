"""How fast replicas are copied and when that ends, from sizes seen now and then.

Invariants: plain values in, plain values out; what is left counts, not what was copied: where
leaders grow meanwhile, the end is when copies have caught up; it is that of the broker that is
last, since throttles are per broker. Where a throttle is what limits the copying, its rate counts
as much as one of its windows of measuring: a throttle lets pass at once what a fetch brings, and
nothing for a while then.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEAST_WINDOW_S = 10.0
"""As many seconds as the brokers' throttle looks back over (`replication.quota.window.num`)."""
LIMITING = 0.5
"""Where less than this part of what throttles allow is copied, they are not what limits it."""
MOST_SAMPLES = 4096


class Sizes(NamedTuple):
    """At one moment: what each broker has copied, and what it is to have copied; bytes.

    `least_s`: as many seconds as throttles need for what is left; None without throttles.
    """

    copied: Mapping[int, int]
    of: Mapping[int, int]
    least_s: float | None = None


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
            return Estimate(copied, of, None, sizes.least_s)
        rate, _ = _line([(t - now_s, float(sum(s.copied.values()))) for t, s in recent])
        measured_s = _left_s(recent)
        if measured_s is None:
            return Estimate(copied, of, max(0.0, rate), sizes.least_s)
        if measured_s and sizes.least_s:
            measured_s = self._with_throttles(now_s, sizes, measured_s, now_s - recent[0][0])
        return Estimate(copied, of, max(0.0, rate), measured_s)

    def _with_throttles(
        self, now_s: float, sizes: Sizes, measured_s: float, seen_s: float
    ) -> float:
        """Return the seconds to the end, by what was measured for `seen_s` and by the throttles."""
        assert sizes.least_s
        used = self._used(now_s, sizes)
        if used >= 1:  # what looks faster or slower are bursts, and pauses between them
            return sizes.least_s
        weight_s = LEAST_WINDOW_S * max(0.0, used / LIMITING - 1)
        speed = (weight_s / sizes.least_s + seen_s / measured_s) / (weight_s + seen_s)
        if used >= LIMITING:  # what looks slower is a pause between two bursts
            speed = max(speed, used / sizes.least_s)
        return 1 / speed

    def _used(self, now_s: float, sizes: Sizes) -> float:
        """Return which part of what throttles allow was copied: less than 1, if they are no limit.

        Of all the time since the beginning: in between a throttle may let nothing pass.
        """
        assert sizes.least_s
        copied = sum(sizes.copied.values())
        allowed_per_s = (sum(sizes.of.values()) - copied) / sizes.least_s
        return copied / (allowed_per_s * max(now_s - self._samples[0][0], 1e-3))

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
