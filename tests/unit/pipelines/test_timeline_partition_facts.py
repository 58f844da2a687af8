"""Rows put together for the rules, beside the plain way of `drill` without Spark."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.pipelines.drilling import here
from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline import rows as r
from ottla.pipelines.timeline.events import Event
from ottla.pipelines.timeline.facts import NEW, NONE_YET, Brokers
from ottla.pipelines.timeline.gathered import Gathered, signs
from ottla.pipelines.timeline.history import history
from ottla.pipelines.timeline.packed import pieces, ruled, unpacked
from ottla.pipelines.timeline.partition_facts import Agreed, by_partition, leads, ordered

FILES = ("file:/a", "file:/b", "file:/c")
BASE_MS = 1_700_000_000_000


@st.composite
def events(draw):
    kind = draw(
        st.sampled_from(
            [e.ASKED, e.ASKED, e.ASKED, e.CACHED, e.SENT, e.LED, e.FOLLOWED, e.DECIDED, e.STOPPED,
             e.MOVED, e.KNOWN, e.OTHER]
        )
    )  # fmt: skip
    epoch = draw(st.integers(0, 3))
    isr = draw(st.sampled_from(["0,1", "1,0", "0", None]))
    leader = draw(st.integers(-1, 2))
    ms = BASE_MS + draw(st.integers(0, 30)) * draw(st.sampled_from([1, 500]))
    side = e.CONTROLLER if kind in {e.DECIDED, e.MOVED, e.KNOWN} else e.BROKER
    event = Event(ms, draw(st.integers(0, 2)), side, "INFO", kind, topic="t", partition=0)
    if kind in {e.LED, e.FOLLOWED}:
        whole = draw(st.integers(0, 5)) > 0
        return event._replace(leader_epoch=epoch if whole else None, previous=epoch - 1, epoch=1)
    if kind == e.MOVED:
        created = draw(st.integers(0, 5)) == 0
        before, after = (NONE_YET, NEW) if created else ("OfflinePartition", "OnlinePartition")
        return event._replace(before=before, after=after)
    if kind in {e.STOPPED, e.OTHER}:
        return event
    # The version goes with the rest: of two at the same time either may be the one that is kept.
    version = epoch * 10 + leader + len(isr or "")
    return event._replace(
        leader=leader, leader_epoch=epoch, isr=isr, version=version, epoch=draw(st.integers(1, 2))
    )


def put(found, texts):
    """Return the events of files as rows, in their order."""
    rows = r.empty(len(found))
    for at, one in enumerate(found):
        assert r.put(rows, at, one.event, texts)
        rows["line"][at], rows["file"][at] = one.line, texts.number(FILES[one.file])
    return rows


def by_broker(number, kind, ms, **more):
    event = Event(BASE_MS + ms, number, e.BROKER, "INFO", kind, topic="t", partition=0)
    return event._replace(**more)


ASKED = {"leader": 0, "leader_epoch": 0, "isr": "0,1", "version": 3, "epoch": 1}
LED = {"leader_epoch": 0, "previous": -1, "epoch": 1}
A_CLOCK_SET_BACK = [
    (by_broker(1, e.STOPPED, 7000), 0),
    (by_broker(0, e.ASKED, 0, **ASKED), 0),
    (by_broker(0, e.ASKED, 1, **ASKED), 1),
    (by_broker(0, e.LED, 0, **LED), 1),
    (by_broker(0, e.LED, 1, **LED), 0),
]
"""In file 1 the broker led before the request came that it led by."""


@settings(max_examples=300, deadline=None)
@example(A_CLOCK_SET_BACK, {})
@given(
    st.lists(st.tuples(events(), st.integers(0, 2)), min_size=1, max_size=30),
    st.sampled_from([{}, {1: 700}]),
)
def test_the_rules_find_the_same_as_without_putting_together(drawn, shifts):
    found = [
        here._Line(event, file, line, event.time_ms + shifts.get(event.broker, 0))
        for line, (event, file) in enumerate(drawn)
    ]
    texts = r.Texts()
    rows = ruled(put(found, texts), None, ())
    told = {}
    half = len(rows) // 2  # in two pieces, as of two tasks
    packed = [piece for some in (rows[:half], rows[half:]) for _, piece in pieces(some, texts, 4)]
    agreed = Agreed(shifts, {name: number for number, name in enumerate(FILES)})
    if packed:
        unordered, texts = unpacked(packed)
        for topic, partition, facts in by_partition(*ordered(unordered, texts, agreed), texts):
            told[topic, partition] = facts
    expected = here._facts(found)
    assert told.keys() == expected.keys()
    brokers = Brokers(last_ms=BASE_MS + 20_000)
    for name, facts in expected.items():
        assert history(told[name], brokers) == history(facts, brokers)
    if packed:
        expected_leads = {(x.controller, x.broker): x.ms for x in here._leads(found)}
        assert leads(*unpacked(packed)) == expected_leads


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(events(), st.integers(0, 2)), min_size=1, max_size=40),
    st.integers(1, 7),
    st.sampled_from([{}, {0: 130, 2: 1999}]),
)
def test_what_tasks_gather_is_what_the_lines_say(drawn, size, shifts):
    found = [
        here._Line(event, file, line, event.time_ms + shifts.get(event.broker, 0))
        for line, (event, file) in enumerate(drawn)
    ]
    texts = r.Texts()
    rows = put(found, texts)
    whole = Gathered()
    for begin in range(0, len(rows), size):
        task = Gathered()
        for file, name in enumerate(FILES):
            some = rows[begin : begin + size]
            task.add(some[some["file"] == texts.find(name)], name)
            assert file < len(FILES)
        whole.merge(task)
    assert {
        (b, FILES.index(f), c): (first[1:], last[1:])
        for (b, f, c), (first, last) in whole.acted.items()
    } == {
        (a.broker, a.file, a.epoch): (
            (a.first_place[1], a.first_ms), (a.last_place[1], a.last_ms),
        )
        for a in here._acted(found)
    }  # fmt: skip
    times = signs(whole.times(), shifts)
    last = here._signs(found)
    for broker, some in times.items():
        for at in [*some.tolist(), BASE_MS + 700, BASE_MS + 99_999]:
            place = int(np.searchsorted(some, at))
            assert (int(some[place - 1]) if place else None) == last(broker, at)
    assert sum(file.lines for file in whole.files.values()) == len(found)
