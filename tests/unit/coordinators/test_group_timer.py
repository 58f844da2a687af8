"""The one timer of the group coordinator: whatever the rounding, it expires and does not spin."""

import asyncio
import random
from types import SimpleNamespace

from ottla.coordinators import group_coordinator
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.group_events import GroupTimer, TimerKey
from ottla.coordinators.timers import SetTimer


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


def ask_for(patch, loop):
    """Have the coordinator find this loop; what other tests left to be collected finds none."""
    found = SimpleNamespace(get_running_loop=lambda: loop, Event=asyncio.Event)
    patch.setattr(group_coordinator, "asyncio", found)


KEY = TimerKey(GroupTimer.JOIN, "g")


def coordinator(loop, expired):
    config = SimpleNamespace(
        integer=lambda _name: 5_000, interval_s=lambda _name: 5.0, text=lambda _name: "3.9"
    )
    found = GroupCoordinator(SimpleNamespace(clock=loop), config, None, lambda: 1)

    def handle(event, now):
        expired.append((event.key, now))
        return []

    found.groups = SimpleNamespace(handle=handle)
    return found


def test_a_deadline_between_two_roundings_is_kept(monkeypatch):
    """In the simulator seed 7700031 came to stand still: 500,000 turns at one instant.

    Due at 20.500000000000004 s, say, is not always 20500.000000000004 ms.
    """
    chance = random.Random(7700031)
    turns = 0
    for _ in range(5_000):
        loop = Loop(chance.uniform(0, 1_000))
        ask_for(monkeypatch, loop)
        expired = []
        groups = coordinator(loop, expired)
        due_ms = loop.monotonic() * 1000 + chance.choice([3_000, 45_000, chance.uniform(0, 10)])
        groups._run([SetTimer(KEY, due_ms)])
        while not expired and turns < 5_100:
            loop.turn()
            turns += 1
        assert expired, (loop.now_s, due_ms)
        assert abs(loop.monotonic() * 1000 - due_ms) < 0.1
    assert turns == 5_000, "one turn for each"


def test_nothing_expires_early(monkeypatch):
    """A timer that comes too early, for whatever reason, waits for the rest."""
    loop = Loop(10.0)
    ask_for(monkeypatch, loop)
    expired = []
    groups = coordinator(loop, expired)
    groups._run([SetTimer(KEY, 13_000.0)])
    loop.next = (12.9, loop.next[1])
    loop.turn()
    assert not expired
    loop.turn()
    assert [key for key, _ in expired] == [KEY]
    assert loop.now_s >= 12.9999
