"""F23: what is deleted by age is not deleted because a clock jumped."""

from ottla.model.retention_clock import RetentionClock

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


class Clock:
    def __init__(self):
        self.mono_s = 10.0
        self.jumped_ms = 0

    def monotonic(self):
        return self.mono_s

    def wall_ms(self):
        return START_MS + round((self.mono_s - 10.0) * 1000) + self.jumped_ms


def test_it_is_the_wall_clock_while_that_does_not_jump():
    clock = Clock()
    ages = RetentionClock(clock)
    for _ in range(100):
        clock.mono_s += 7.3
        assert abs(ages.now_ms() - clock.wall_ms()) <= 1


def test_a_jump_forward_is_followed_slowly():
    clock = Clock()
    ages = RetentionClock(clock)
    clock.jumped_ms = HOUR_MS
    assert ages.now_ms() == START_MS
    clock.mono_s += 1_000
    assert ages.now_ms() == START_MS + 1_100_000
    clock.mono_s += 10 * 3_600
    assert ages.now_ms() == clock.wall_ms(), "it has caught up"


def test_a_jump_back_is_followed_at_once_and_the_way_forward_again_slowly():
    clock = Clock()
    ages = RetentionClock(clock)
    clock.jumped_ms = -HOUR_MS
    assert ages.now_ms() == START_MS - HOUR_MS
    clock.jumped_ms = 0
    clock.mono_s += 1
    assert ages.now_ms() == START_MS - HOUR_MS + 1_100


def test_it_is_never_ahead_of_the_wall_clock():
    clock = Clock()
    ages = RetentionClock(clock)
    for n in range(1_000):
        clock.mono_s += (n * 37) % 11
        clock.jumped_ms = (n * 7919) % 100_003 - 50_000
        assert ages.now_ms() <= clock.wall_ms()
