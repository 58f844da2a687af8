"""Which groups get on: cases in Burrow's sense; samples beside a plain search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.pipelines.lagging.commits import decoded
from ottla.pipelines.lagging.rules import (
    BEHIND,
    GONE,
    OK,
    OVERTAKEN,
    REWOUND,
    STALLED,
    STOPPED,
    Commit,
    judged,
    samples_of,
)
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.groups import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue


def commits(*pairs):
    return [Commit(1000 * at, offset) for at, offset in pairs]


def ends(*values):
    return [(1000 * at, value) for at, value in enumerate(values)]


@pytest.mark.parametrize(
    ("committed", "log", "state"),
    [
        ([(1, 10), (2, 20), (3, 30)], (10, 10, 20, 30), OK),  # all is read
        ([(1, 10), (2, 20), (3, 30)], (10, 20, 30, 40), OK),  # one step behind, and it gets on
        ([(0, 1), (1, 2), (2, 3), (3, 4)], (10, 20, 30, 40), BEHIND),
        ([(0, 5), (1, 5), (2, 5), (3, 5)], (10, 10, 10, 10), STALLED),
        ([(0, 5), (1, 5), (2, 5), (3, 5)], (5, 5, 5, 10), OK),  # there was nothing to read
        ([(0, 4), (1, 5), (2, 5)], (10, 10, 10, 10), OK),  # two alike may be chance
        ([(0, 4), (1, 5)], (10, 10, 10, 10, 10, 10), STOPPED),
        ([(0, 5), (1, 5), (2, 5)], (9,) * 8, STOPPED),  # stalled, then silent
        ([(0, 4), (1, 5)], (5, 5, 5, 5, 5, 10), OK),  # idle, and records came just now
        ([(0, 4), (4, 5)], (10, 10, 10, 10, 10, 10, 10), OK),  # slow, but this is its pace
        ([(0, 9)], (10, 10, 10), STOPPED),
        ([(0, 5), (1, None)], (10, 10, 10), GONE),
        ([(0, 5), (1, None), (5, 2)], (10, 10, 10, 10, 10, 10), OK),  # made anew
    ],
)
def test_states(committed, log, state):
    told = judged(commits(*committed), ends(*log), 0)
    assert told.state == state
    kinds = [kind for kind, _, _ in told.findings]
    assert kinds == ([state] if state in (STALLED, STOPPED) else [])


def test_going_back_and_being_overtaken():
    told = judged(commits((0, 9), (1, 3), (2, None), (3, 1), (4, 5)), ends(9, 9, 9, 9, 9), 0)
    assert [(kind, at) for kind, at, _ in told.findings] == [(REWOUND, 1000)]
    early = [(at + 2000, end) for at, end in ends(9, 9, 9)]
    assert judged(commits((0, 9), (1, 3), (4, 9)), early, 0).findings == []  # it was before
    told = judged(commits((0, 3)), ends(9, 9), 5)
    assert told.findings[0] == (OVERTAKEN, 1000, "3 is committed, the log begins at 5")
    assert judged(commits((0, 5)), ends(5, 5), 5).findings == []


def test_clocks_do_not_change_the_order_of_the_log():
    told = judged(commits((5, 3), (1, 4), (9, 8)), ends(8, 8, 8, 8), 0)
    assert [s.committed for s in told.samples] == [None, None, None, 8]
    assert told.findings == []


times = st.integers(0, 50)


@given(
    st.lists(st.tuples(times, st.one_of(st.none(), st.integers(0, 99)))),
    st.lists(st.tuples(times, st.integers(0, 99)), min_size=1),
)
def test_samples(pairs, log):
    pairs.sort(key=lambda pair: pair[0])
    log.sort()
    found = samples_of([Commit(*pair) for pair in pairs], log)
    for number, (sample, (at, end)) in enumerate(zip(found, log, strict=True), 1):
        before = [offset for when, offset in pairs if when <= at or number == len(log)]
        committed = before[-1] if before else None
        lag = None if committed is None else max(0, end - committed)
        assert tuple(sample) == (at, end, committed, lag)


@pytest.mark.parametrize("version", [0, 1, 3, 4])
def test_a_commits_record(version):
    key = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)
    value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=99)
    expected = ("g", *TopicPartition("t", 3), 5, 99, 7)
    assert decoded(key, encode_versioned(value, version), 5, 1) == expected
    assert decoded(key, None, 5, 1) == ("g", "t", 3, 5, 1, None)


def test_what_is_no_commit_is_left_out():
    group = encode_versioned(GroupMetadataKey(group="g"), 2)
    key = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)
    for found in [(group, b""), (None, b"x"), (b"", b""), (b"\0\1\0", b""), (key, b"\0\x09x")]:
        assert decoded(*found, 5, 1) is None
