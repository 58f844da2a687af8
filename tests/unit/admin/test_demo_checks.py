"""The demo's judgement: it must see what is lost, doubled, misplaced or reordered."""

import pytest

from ottla.admin.demo.producing import number_of
from ottla.admin.demo.run import led_by, most_leaders
from ottla.admin.demo.verifying import problems
from ottla.admin.demo.watching import (
    NO_BROKER,
    PREFERRED,
    Fault,
    Notes,
    Seen,
    Watcher,
    moves_between,
)
from ottla.model.errors import OttlaError

GOOD = {(0, 0): (0, b"AA"), (0, 1): (2, b"AA"), (1, 0): (1, b"UA")}
ACKED = [(0, 0, 0), (1, 1, 0), (2, 0, 1)]


def test_all_is_well():
    assert problems(ACKED, GOOD) == []


def test_a_record_that_was_not_acknowledged_may_be_there():
    assert problems(ACKED[:2], GOOD) == []


def test_lost():
    found = {k: v for k, v in GOOD.items() if k != (1, 0)}
    assert problems(ACKED, found) == ["lost: record 1 was acknowledged at 1:0, nothing is there"]


def test_at_another_place():
    found = {**GOOD, (1, 0): (7, b"UA"), (1, 1): (1, b"UA")}
    assert "lost: record 1 was acknowledged at 1:0, record 7 is there" in problems(ACKED, found)


def test_twice():
    found = {**GOOD, (1, 1): (1, b"UA")}
    assert any(p.startswith("twice: record 1 ") for p in problems(ACKED, found))


def test_out_of_order():
    found = {(0, 0): (2, b"AA"), (0, 1): (0, b"AA")}
    assert problems([], found) == ["order: key AA has record 0 after record 2"]


def test_foreign():
    assert any(p.startswith("foreign") for p in problems([], {(0, 0): (-1, b"")}))


@pytest.mark.parametrize(
    ("value", "number"),
    [(b'{"n":17,"year":2013}', 17), (b'{"m":17,"x":1}', -1), (b'{"n":x,', -1), (b"", -1)],
)
def test_number_of(value, number):
    assert number_of(value) == number


def seen(at, leaders, alive=(0, 1, 2), controller=0):
    return Seen(at, leaders, dict.fromkeys(leaders, 3), {0: 1}, controller, frozenset(alive))


def test_the_broker_that_leads_most_and_of_several_the_lowest():
    assert most_leaders(seen(0, {0: (1, 0), 1: (1, 0), 2: (2, 0)})) == 1
    assert most_leaders(seen(0, {0: (2, 0), 1: (1, 0)})) == 1
    assert led_by(seen(0, {0: (1, 0), 1: (2, 0), 2: (1, 4)}), 1) == [0, 2]
    with pytest.raises(OttlaError):
        most_leaders(seen(0, {0: (NO_BROKER, 0)}))


def test_a_move_after_a_kill_has_its_cause_and_duration():
    fault = Fault(10.0, 1, "kill -9 of 1")
    moves = moves_between(seen(9, {0: (1, 0), 1: (2, 0)}), seen(16, {0: (2, 1), 1: (2, 0)}), fault)
    assert [(m.partition, m.before, m.after, m.epoch, m.cause, m.seconds) for m in moves] == [
        (0, 1, 2, 1, "kill -9 of 1", 6.0)
    ]


def test_a_move_back_to_the_preferred_leader_is_no_fault_of_the_last_kill():
    moves = moves_between(seen(9, {0: (2, 1)}), seen(16, {0: (1, 2)}), Fault(8, 0, "0 is back"))
    assert [(m.cause, m.seconds) for m in moves] == [(PREFERRED, 0.0)]


def test_no_move_while_nobody_leads_or_the_answer_is_older():
    before = seen(9, {0: (1, 4)})
    assert moves_between(before, seen(10, {0: (NO_BROKER, 4)}), None) == []
    assert moves_between(before, seen(10, {0: (2, 3)}), None) == []
    assert moves_between(before, seen(10, {0: (1, 5)}), None) == []


def test_a_move_through_nobody_is_seen_once_and_whole():
    notes = Notes()
    watcher = Watcher(list, "t", notes)
    notes.faults.append(Fault(1.0, 1, "kill -9 of 1"))
    for answer in (
        seen(0.5, {0: (1, 0)}),
        seen(2.0, {0: (NO_BROKER, 1)}, alive=(0, 2)),
        seen(3.0, {0: (2, 2)}, alive=(0, 2), controller=2),
        seen(3.1, {0: (1, 0)}),  # a broker that has not heard of it yet
        seen(3.2, {0: (2, 2)}, alive=(0, 2), controller=2),
    ):
        watcher._note(answer)
    assert [(m.before, m.after, m.seconds) for m in notes.moves] == [(1, 2, 2.0)]
    assert notes.last is not None
    assert notes.last.leaders == {0: (2, 2)}
