"""Retention clock: a wall clock that does not jump forward, to tell the age of records.

Invariants (fault F23): never ahead of the wall clock; a jump forward is followed slowly, by a tenth
of the time that passes, so that a wrong hour deletes nothing too early; a jump back is followed at
once. At its start a process trusts the wall clock, since it has no other.
"""

from ottla.model.ports import Clock

FASTEST = 1.1
"""Milliseconds per millisecond that passes, while this clock is behind the wall clock."""


class RetentionClock:
    """Milliseconds since 1970."""

    __slots__ = ("_clock", "_mono_s", "_now_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mono_s = clock.monotonic()
        self._now_ms = float(clock.wall_ms())

    def now_ms(self) -> int:
        mono_s = self._clock.monotonic()
        passed_ms = (mono_s - self._mono_s) * 1000
        self._mono_s = mono_s
        self._now_ms = min(float(self._clock.wall_ms()), self._now_ms + FASTEST * passed_ms)
        return int(self._now_ms)
