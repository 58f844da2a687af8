"""The heap of deadlines."""

from ottla.coordinators.timers import Now, Timer, Timers


def ringing(timers, now_ms):
    rang = []
    while timer := timers.pop(now_ms):
        timer.ring(Now(now_ms, 0))
        rang.append(timer)
    return rang


def silent():
    return Timer(lambda _now: None)


def test_rings_in_order_and_once():
    timers, a, b = Timers(), silent(), silent()
    timers.set(b, 20)
    timers.set(a, 10)
    assert timers.next_ms == 10
    assert ringing(timers, 9) == []
    assert ringing(timers, 30) == [a, b]
    assert ringing(timers, 99) == []
    assert timers.next_ms is None


def test_moving_a_deadline_away_does_not_touch_the_heap():
    timers, a = Timers(), silent()
    timers.set(a, 10)
    for due in range(11, 1000):
        timers.set(a, due)
    assert len(timers) == 1
    assert ringing(timers, 998) == []
    assert len(timers) == 1
    assert ringing(timers, 999) == [a]


def test_an_earlier_deadline_counts_and_its_forerunner_does_not():
    timers, a = Timers(), silent()
    timers.set(a, 300)
    timers.set(a, 10)
    assert ringing(timers, 10) == [a]
    assert ringing(timers, 400) == []
    timers.set(a, 500)
    assert ringing(timers, 450) == []
    assert ringing(timers, 500) == [a]


def test_a_cancelled_timer_is_silent_and_may_be_set_again():
    timers, a = Timers(), silent()
    timers.set(a, 10)
    a.cancel()
    assert ringing(timers, 20) == []
    timers.set(a, 30)
    assert ringing(timers, 30) == [a]


def test_a_timer_may_be_set_while_it_rings():
    timers = Timers()
    rang = []

    def again(now):
        rang.append(now.mono_ms)
        if len(rang) < 3:
            timers.set(timer, now.mono_ms + 5)

    timer = Timer(again)
    timers.set(timer, 1)
    for now_ms in range(20):
        ringing(timers, now_ms)
    assert rang == [1, 6, 11]
