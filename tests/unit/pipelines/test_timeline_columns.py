"""Histories told of many partitions at once, beside those that are told of one after the other."""

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.pipelines.timeline import columns
from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline import rows as r
from ottla.pipelines.timeline.events import Event
from ottla.pipelines.timeline.facts import JOURNAL, NEW, NONE_YET, OFFLINE, Brokers
from ottla.pipelines.timeline.history import History, history
from ottla.pipelines.timeline.packed import pieces, ruled, unpacked
from ottla.pipelines.timeline.partition_facts import Agreed, by_partition, ordered

BASE_MS = 1_700_000_000_000
BROKERS = (0, 1, 2)
FILES = {f"file:/{broker}.{part}": broker * 3 + part for broker in range(10) for part in range(3)}
FAULTS = (
    "none", "none", "lost line", "doubled line", "other epoch", "other leader", "no epoch",
    "created", "created late", "offline", "stopped", "began anew", "other broker", "early",
    "huge time", "same time", "older controller", "other id", "unknown previous", "late word",
)  # fmt: skip


def quiet(rng, partition, epochs):
    """Return the lines of graceful elections: (event, file)."""
    found = []
    ms = BASE_MS + rng.randrange(50)
    part = rng.randrange(2)
    journal = rng.random() < 0.3
    rest = {"topic": "t", "partition": partition}
    leader = rng.choice(BROKERS)
    for epoch in range(epochs):
        part = min(part + (rng.random() < 0.1), 2)
        isr = rng.choice(["0,1,2", "2,1,0", "0,1", ""][: 3 + journal])
        state = {"leader": leader, "leader_epoch": epoch, "isr": isr, **rest}
        version = epoch + 1

        def put(event, broker, part=part):
            found.append((event, f"file:/{broker}.{part}"))

        put(Event(ms, 9, e.CONTROLLER, "INFO", e.DECIDED, 1, version=version, **state), 9)
        if journal:
            put(Event(ms, 9, e.CONTROLLER, JOURNAL, e.DECIDED, 1, **state), 8)
        for broker in BROKERS:
            ms += rng.randrange(3)
            if rng.random() < 0.8:
                put(Event(ms, broker, e.BROKER, "TRACE", e.ASKED, 1, version=version, **state),
                    broker)  # fmt: skip
            role = {"previous": epoch - 1, "leader_epoch": epoch, "version": version, **rest}
            if broker == leader:
                put(Event(ms, broker, e.BROKER, "INFO", e.LED, isr=isr or None, offset=epoch * 10,
                          topic_id="id", **role), broker)  # fmt: skip
            else:
                said = leader if rng.random() < 0.8 else None
                put(Event(ms, broker, e.BROKER, "INFO", e.FOLLOWED, leader=said, **role), broker)
            if rng.random() < 0.8:
                put(Event(ms + rng.randrange(-2, 5), broker, e.BROKER, "TRACE", e.CACHED, 1,
                          version=version, **state), broker)  # fmt: skip
        ms += rng.choice([1, 40, 1500])
        leader = rng.choice(BROKERS)
    return found


def spoiled(rng, found, fault):
    at = rng.randrange(len(found))
    event, file = found[at]
    named = {"topic": "t", "partition": event.partition}
    roles = [i for i, (one, _) in enumerate(found) if one.kind in {e.LED, e.FOLLOWED}]
    role = rng.choice(roles)
    one = found[role][0]
    if fault == "lost line":
        del found[at]
    elif fault == "doubled line":
        found.insert(at, found[at])
    elif fault == "other epoch":
        found[at] = event._replace(leader_epoch=rng.randrange(-1, 5)), file
    elif fault == "other leader":
        found[at] = event._replace(leader=rng.randrange(-2, 4)), file
    elif fault == "no epoch":
        found[role] = one._replace(leader_epoch=None), found[role][1]
    elif fault in {"created", "created late"}:
        ms = BASE_MS - 1 if fault == "created" else event.time_ms + 5000
        level = rng.choice(["INFO", JOURNAL])
        moved = Event(ms, 9, e.CONTROLLER, level, e.MOVED, 1, before=NONE_YET, after=NEW, **named)
        found.insert(0, (moved, "file:/9.0"))
    elif fault == "offline":
        moved = Event(event.time_ms, 9, e.CONTROLLER, "INFO", e.MOVED, 1, after=OFFLINE, **named)
        found.insert(at, (moved, "file:/9.0"))
    elif fault == "stopped":
        line = Event(one.time_ms + 1, one.broker, e.BROKER, "TRACE", e.STOPPED, 1, **named)
        found.insert(role + 1, (line, found[role][1]))
    elif fault == "began anew":
        found[role] = one._replace(previous=-1), found[role][1]
    elif fault == "unknown previous":
        found[role] = one._replace(previous=None), found[role][1]
    elif fault == "other broker":
        found[role] = one._replace(broker=rng.choice(BROKERS)), found[role][1]
    elif fault == "early":
        found[at] = event._replace(time_ms=event.time_ms - rng.choice([1, 100, 3000])), file
    elif fault == "late word":
        found[role] = one._replace(time_ms=one.time_ms + 4000), found[role][1]
    elif fault == "huge time":
        found[role] = one._replace(time_ms=rng.choice([-5, 1 << 42, 10**17])), found[role][1]
    elif fault == "same time":
        found[:] = [(some._replace(time_ms=BASE_MS), name) for some, name in found]
    elif fault == "older controller":
        found[at] = event._replace(epoch=0), file
    elif fault == "other id":
        found[role] = one._replace(topic_id=rng.choice([None, "", "other"])), found[role][1]


def both(found, gone, shifts, overlap_ms=1000):
    """Return histories by columns, those of facts, and which partitions were odd."""
    texts = r.Texts()
    rows = r.empty(len(found))
    lines = dict.fromkeys(FILES, 0)
    for at, (event, file) in enumerate(found):
        assert r.put(rows, at, event, texts)
        rows["line"][at], rows["file"][at] = lines[file], texts.number(file)
        lines[file] += 1
    packed = [piece for _, piece in pieces(ruled(rows, None, ()), texts, 1)]
    unordered, texts = unpacked(packed)
    rows, ends = ordered(unordered, texts, Agreed(shifts, FILES))
    brokers = Brokers(lambda _broker, before: before - 7, gone, BASE_MS + 99_999)
    expected = {
        partition: history(facts, brokers, overlap_ms)
        for _, partition, facts in by_partition(rows, ends, texts)
    }
    told = columns.reported(rows, ends, texts, gone, overlap_ms)
    names = rows["partition"][ends[:-1]].tolist()
    by_columns = {
        name: History([], [], [], []) for name, odd in zip(names, told.odd, strict=True) if not odd
    }
    for what in ("states", "terms", "gaps"):
        of, several = getattr(told, what)
        for at, one in zip(of.tolist(), several, strict=True):
            getattr(by_columns[names[at]], what).append(one)
    return by_columns, expected, {name for name, odd in zip(names, told.odd, strict=True) if odd}


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.lists(st.lists(st.sampled_from(FAULTS), min_size=1, max_size=2), min_size=1, max_size=4),
    st.sampled_from([{}, {}, {1: [BASE_MS - 1]}, {1: [BASE_MS + 60, BASE_MS + 1600]}]),
    st.sampled_from([{}, {1: 700}]),
)
# A broker's second file begins late enough, and its second line is earlier than the first file's.
@example(11097, [["none", "none"], ["none"], ["lost line", "early"]], {}, {})
def test_columns_tell_what_facts_tell(seed, faults, gone, shifts):
    rng = random.Random(seed)
    found = []
    for partition, several in enumerate(faults):
        lines = quiet(rng, partition, rng.randrange(1, 5))
        for fault in several:
            if any(event.kind in {e.LED, e.FOLLOWED} for event, _ in lines):
                spoiled(rng, lines, fault)
        found += lines
    by_columns, expected, odd = both(found, gone, shifts)
    assert by_columns.keys() | odd == expected.keys()
    for partition, told in by_columns.items():
        assert told == expected[partition]


def test_partitions_without_a_fault_are_told_by_columns():
    rng = random.Random(7)
    found = [line for partition in range(200) for line in quiet(rng, partition, 4)]
    by_columns, expected, odd = both(found, {}, {})
    assert by_columns == {name: expected[name] for name in by_columns}
    assert len(odd) < 40  # a follower that never heard of an epoch, two words at one time
    assert sum(len(told.gaps) for told in by_columns.values()) > 50
    assert sum(len(told.terms) for told in by_columns.values()) > 300


def test_each_fault_that_needs_a_closer_look_is_left_to_facts():
    for fault in ("no epoch", "began anew", "huge time", "created late"):
        rng = random.Random(3)
        lines = quiet(rng, 0, 4)
        spoiled(rng, lines, fault)
        by_columns, _, odd = both(lines, {}, {})
        assert (by_columns, odd) == ({}, {0}), fault
