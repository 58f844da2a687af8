"""The judge of a scenario's promises, on histories in which each is broken and on a sound one."""

import pytest

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import LogRecord
from ottla.sim.history import History, Read
from ottla.sim.scenarios.promises import judge, longest_gap
from ottla.sim.scenarios.scenario import GAP, KEPT, ONCE, ORDER, PROMISES, READS

TP = TopicPartition("orders", 0)
ALL = tuple(PROMISES)


def history(*writes, reads=()):
    """`writes`: (producer, values, offset or None where it failed, acknowledged at)."""
    found = History()
    for process, values, offset, at_s in writes:
        write = found.invoke(process, TP, tuple(v.encode() for v in values), -1, at_s - 0.1)
        if offset is None:
            write.abandoned = True
        else:
            write.offset, write.completed_s = offset, at_s
    found.reads += [Read("c", TP, offset, value.encode(), 9.0) for offset, value in reads]
    return found


def log(*values):
    return {TP: [LogRecord(i, 0, v.encode()) for i, v in enumerate(values) if v]}


SOUND = (("p", ("a", "b"), 0, 1.0), ("q", ("x",), 2, 2.0), ("p", ("c",), 3, 3.0))


def broken(found, final, **more):
    return {b.promise: b for b in judge(found, final, ALL, more.pop("limit_s", 100.0), (0.0, 5.0))}


def test_a_sound_history_breaks_nothing():
    found = history(*SOUND, ("p", ("f",), None, 4.0), reads=[(0, "a"), (3, "c"), (0, "a")])
    assert broken(found, log("a", "b", "x", "c")) == {}
    assert broken(found, log("a", "b", "x", "c", "f")) == {}, "what failed may be there"


@pytest.mark.parametrize(
    ("final", "value", "offset", "there"),
    [(("a", "b", "x"), "c", 3, None), (("a", "z", "x", "c"), "b", 1, "z")],
)
def test_a_record_that_is_not_where_it_was_acknowledged_is_lost(final, value, offset, there):
    lost = broken(history(*SOUND), log(*final))[KEPT]
    assert (lost.value, lost.offset, lost.found, lost.count) == (value, offset, there, 1)


def test_without_an_offset_a_record_may_be_anywhere():
    found = history(("p", ("a",), -1, 1.0), ("p", ("b",), -1, 2.0))
    assert KEPT not in broken(found, log("b", "a"))
    lost = broken(found, log("a"))[KEPT]
    assert (lost.value, lost.offset) == ("b", -1)


def test_a_record_that_is_there_twice():
    twice = broken(history(*SOUND), log("a", "b", "x", "c", "b"))[ONCE]
    assert (twice.value, twice.offset, twice.other_offset) == ("b", 1, 4)


def test_an_order_that_changed():
    found = history(("p", ("a",), 1, 1.0), ("p", ("b",), 0, 1.1))
    late = broken(found, log("b", "a"))[ORDER]
    assert (late.value, late.other_value, late.client) == ("a", "b", "p")
    others = history(("p", ("a",), 1, 1.0), ("q", ("b",), 0, 1.1))
    assert ORDER not in broken(others, log("b", "a")), "of two producers"
    again = history(("p", ("a",), 0, 1.0), ("p", ("b",), 1, 1.1))
    assert ORDER not in broken(again, log("a", "b", "a")), "a second copy is `once`"


def test_what_was_read_and_is_not_there():
    read = broken(history(*SOUND, reads=[(1, "b"), (2, "y"), (7, "n")]), log("a", "b", "x", "c"))
    assert (read[READS].offset, read[READS].found, read[READS].count) == (2, "x", 2)


def test_a_gap_is_the_longest_time_without_a_write():
    found = history(*SOUND)
    seconds, partition, began_s = longest_gap(found, (0.0, 5.5))
    assert (seconds, partition, began_s) == (2.5, "orders-0", 3.0)
    final = log("a", "b", "x", "c")
    assert GAP not in broken(found, final, limit_s=2.0)
    gap = broken(found, final, limit_s=1.5)[GAP]
    assert (gap.sent_s, gap.acknowledged_s) == (3.0, 5.0)
