"""The one timer of the event loop: whatever the rounding, it expires and does not spin."""

import random
from types import SimpleNamespace

from ottla.coordinators import loop_timers
from ottla.coordinators.loop_timers import LoopTimers


class Loop:
    """A loop and its clock: time passes only by the delays of the timers."""

    def __init__(self, now_s):
        self.now_s = now_s
        self.next = None

    def monotonic(self):
        return self.now_s

    def wall_ms(self):
        return 1_700_000_000_000

    def call_later(self, delay_s, callback):
        assert self.next is None
        self.next = (self.now_s + delay_s, callback)
        return SimpleNamespace(cancel=lambda: None)

    def turn(self):
        (self.now_s, callback), self.next = self.next, None
        callback()


def timers_on(patch, loop, expired):
    """Return timers that find this loop; `expired` gets what expires."""
    patch.setattr(loop_timers, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))
    return LoopTimers(loop, lambda key, now: expired.append((key, now)))


def test_a_deadline_between_two_roundings_is_kept(monkeypatch):
    """In the simulator seed 7700031 came to stand still: 500,000 turns at one instant.

    Due at 20.500000000000004 s, say, is not always 20500.000000000004 ms.
    """
    chance = random.Random(7700031)
    turns = 0
    for _ in range(5_000):
        loop = Loop(chance.uniform(0, 1_000))
        expired = []
        timers = timers_on(monkeypatch, loop, expired)
        due_ms = loop.monotonic() * 1000 + chance.choice([3_000, 45_000, chance.uniform(0, 10)])
        timers.set("key", due_ms)
        while not expired and turns < 5_100:
            loop.turn()
            turns += 1
        assert expired, (loop.now_s, due_ms)
        assert abs(loop.monotonic() * 1000 - due_ms) < 0.1
    assert turns == 5_000, "one turn for each"


def test_nothing_expires_early(monkeypatch):
    """A timer that comes too early, for whatever reason, waits for the rest."""
    loop = Loop(10.0)
    expired = []
    timers = timers_on(monkeypatch, loop, expired)
    timers.set("key", 13_000.0)
    loop.next = (12.9, loop.next[1])
    loop.turn()
    assert not expired
    loop.turn()
    assert [key for key, _ in expired] == ["key"]
    assert loop.now_s >= 12.9999
