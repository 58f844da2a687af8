"""The heap of deadlines."""

from ottla.coordinators.timers import Timers


def expired(timers, now_ms):
    found = []
    while (key := timers.pop(now_ms)) is not None:
        found.append(key)
    return found


def test_timers_expire_in_order_and_once():
    timers = Timers()
    timers.set("b", 20)
    timers.set("a", 10)
    assert timers.next_ms == 10
    assert expired(timers, 9) == []
    assert expired(timers, 30) == ["a", "b"]
    assert expired(timers, 99) == []
    assert timers.next_ms is None


def test_moving_a_deadline_away_does_not_touch_the_heap():
    timers = Timers()
    timers.set("a", 10)
    for due in range(11, 1000):
        timers.set("a", due)
    assert len(timers) == 1
    assert expired(timers, 998) == []
    assert len(timers) == 1
    assert expired(timers, 999) == ["a"]


def test_an_earlier_deadline_replaces_a_later_one():
    timers = Timers()
    timers.set("a", 300)
    timers.set("a", 10)
    assert expired(timers, 10) == ["a"]
    assert expired(timers, 400) == []
    timers.set("a", 500)
    assert expired(timers, 450) == []
    assert expired(timers, 500) == ["a"]


def test_a_deadline_set_to_a_time_it_had_before_counts_once():
    timers = Timers()
    timers.set("a", 300)
    timers.set("a", 10)
    assert expired(timers, 10) == ["a"]
    timers.set("a", 300)
    assert expired(timers, 300) == ["a"]
    assert expired(timers, 10**6) == []


def test_a_cancelled_timer_does_not_expire_and_may_be_set_again():
    timers = Timers()
    timers.cancel("a")
    timers.set("a", 10)
    timers.cancel("a")
    assert expired(timers, 20) == []
    timers.set("a", 30)
    assert expired(timers, 30) == ["a"]
    timers.set("a", 40)
    timers.cancel("a")
    timers.set("a", 50)
    assert expired(timers, 49) == []
    assert expired(timers, 50) == ["a"]


def test_nothing_is_kept_of_timers_that_are_over():
    timers = Timers()
    for number in range(100):
        timers.set(number, number)
        if number % 2:
            timers.cancel(number)
    assert expired(timers, 100) == list(range(0, 100, 2))
    assert (len(timers), timers._timers) == (0, {})


def test_a_timer_may_be_set_when_it_expires():
    timers = Timers()
    timers.set("a", 1)
    at = []
    for now_ms in range(20):
        for key in expired(timers, now_ms):
            at.append(now_ms)
            if len(at) < 3:
                timers.set(key, now_ms + 5)
    assert at == [1, 6, 11]


def test_cancelled_timers_do_not_stay_until_they_were_due():
    timers = Timers()
    for n in range(10_000):
        timers.set(("g", n), 1_800_000.0 + n)
        if n % 100:
            timers.cancel(("g", n))
    assert len(timers) < 400
    assert len(timers._timers) < 400
    timers.set(("g", 1), 5.0)
    found = []
    while (key := timers.pop(4_000_000.0)) is not None:
        found.append(key)
    assert found == [("g", 1), *(("g", n) for n in range(0, 10_000, 100))]
    assert timers._cancelled == 0
    assert not timers._timers
