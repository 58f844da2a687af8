"""Throttles: how much of the replication of named partitions a broker lets pass (KIP-73).

A decider: time is an argument, in milliseconds of a clock that never goes back. Invariants:
- in-sync replicas are never held back; the callers see to it, for only they know who is in sync
- what passes counts whether the replica is in sync or not, so that all of it stays near the bound
- one response may overshoot; the next one then waits until the rate over the window is down again

Kafka: `ReplicationQuotaManager` and `SimpleRate`.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence

ALL = "*"
UNBOUNDED = math.inf
EMPTY_RESPONSE_BYTES = 16
"""of a FetchResponse without topics, with its length"""

EVERY_PARTITION: frozenset[int] = frozenset((-1,))


class WindowedRate:
    """Bytes per second over the last `samples` windows of `window_ms` each.

    The time divided by is what has passed since the oldest window in which anything came, at
    least `least` windows: with one a burst after silence counts in full (Kafka's `SimpleRate`),
    with more it is spread over them (Kafka's `Rate`).
    """

    def __init__(self, samples: int, window_ms: float, least: int = 1) -> None:
        self._window_ms = window_ms
        self._span_ms = samples * window_ms
        self._least_ms = max(1, least) * window_ms
        self._windows: deque[tuple[float, float]] = deque()
        self._total = 0.0

    def record(self, size: float, now_ms: float) -> None:
        """Count `size` bytes."""
        windows = self._windows
        if windows and now_ms - windows[-1][0] < self._window_ms:
            start, so_far = windows[-1]
            windows[-1] = (start, so_far + size)
        else:
            windows.append((now_ms, size))
        self._total += size
        self._forget(now_ms)

    def bytes_per_s(self, now_ms: float) -> float:
        self._forget(now_ms)
        if not self._windows:
            return 0.0
        elapsed_ms = max(now_ms - self._windows[0][0], self._least_ms)
        return self._total * 1000.0 / elapsed_ms

    def until_ms(self, bound: float, now_ms: float) -> float:
        """Return how long after `now_ms` to look again: before, the rate is above `bound`."""
        if self.bytes_per_s(now_ms) <= bound:
            return 0.0
        oldest = self._windows[0][0]
        forgotten_ms = oldest + self._span_ms - now_ms
        if bound <= 0:
            return forgotten_ms
        return min(forgotten_ms, oldest + self._total * 1000.0 / bound - now_ms)

    def surplus_ms(self, bound: float, now_ms: float) -> float:
        """Return in how long `bound` would have let pass what came above it."""
        rate = self.bytes_per_s(now_ms)
        if rate <= bound:
            return 0.0
        if bound <= 0:
            return self._span_ms
        elapsed_ms = max(now_ms - self._windows[0][0], self._least_ms)
        return (rate - bound) / bound * elapsed_ms

    def _forget(self, now_ms: float) -> None:
        windows = self._windows
        while windows and now_ms - windows[0][0] >= self._span_ms:
            self._total -= windows.popleft()[1]


def throttled_partitions(replicas: Sequence[str], broker_id: int) -> frozenset[int]:
    """Return the partitions of this broker that `*` or `partition:broker` entries name.

    `replicas` is the value of leader- and follower.replication.throttled.replicas, already checked.
    """
    if ALL in replicas:
        return EVERY_PARTITION
    pairs = (entry.split(":") for entry in replicas if entry)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


class ReplicationQuota:
    """The bound of one direction, which partitions it is for, and what passed of them."""

    def __init__(self, samples: int, window_ms: float) -> None:
        self.bound = UNBOUNDED
        """bytes per second"""
        self.topics: dict[str, frozenset[int]] = {}
        self.throttled_bytes_total = 0
        self._rate = WindowedRate(samples, window_ms)

    def throttle(self, topic: str, partitions: Iterable[int]) -> None:
        """Put these partitions of a topic, and only these, under the bound."""
        named = frozenset(partitions)
        if named:
            self.topics[topic] = named
        else:
            self.topics.pop(topic, None)

    def throttles(self, topic: str, partition: int) -> bool:
        """Return whether a partition is under the bound."""
        named = self.topics.get(topic)
        return named is not None and (named == EVERY_PARTITION or partition in named)

    def record(self, size: int, now_ms: float) -> None:
        """Count what passed of throttled partitions."""
        self.throttled_bytes_total += size
        self._rate.record(size, now_ms)

    def record_response(self, size: int, now_ms: float) -> None:
        """Count a response to a follower and what of it is throttled: an empty one has bytes, too.

        So a bound below a few bytes per second lets nothing pass, as Kafka's (its
        `sizeOfThrottledPartitions`).
        """
        self.throttled_bytes_total += size
        self._rate.record(EMPTY_RESPONSE_BYTES + size, now_ms)

    def exceeded(self, now_ms: float) -> bool:
        """Return whether more passed than may."""
        return self.bound != UNBOUNDED and self._rate.bytes_per_s(now_ms) > self.bound

    def until_ms(self, now_ms: float) -> float:
        """Return how long throttled reads or appends wait before the next check."""
        return 0.0 if self.bound == UNBOUNDED else self._rate.until_ms(self.bound, now_ms)

    def statistics(self, now_ms: float) -> dict[str, object]:
        return {
            "bound_bytes_per_s": None if self.bound == UNBOUNDED else self.bound,
            "bytes_per_s": round(self._rate.bytes_per_s(now_ms), 1),
            "throttled_bytes_total": self.throttled_bytes_total,
            "topics": len(self.topics),
        }
