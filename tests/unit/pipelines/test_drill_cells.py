"""What became of offsets, against a plain model that looks at one offset after the other."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipelines.drilling import cells
from ottla.pipelines.drilling.cells import Cell, Known, Offsets, Run

SIZE = 24
FLAGS = cells.GOOD_DATA | cells.EXACT


def spans(offsets):
    """Return [first, last] of what follows each other."""
    found = []
    for offset in sorted(set(offsets)):
        if found and found[-1][1] + 1 == offset:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


def counted(offsets):
    return Offsets(len(set(offsets)), spans(offsets))


def model(known, acks, rows, runs, landed):
    """Judge each offset by itself, with sets and loops; return {name: offsets}."""
    acked = [offset for offset, _ in acks]
    of = {o: [r for r in runs if r.base <= o <= r.last] for o in range(SIZE)}
    found = {name: [] for name in (
        "acked", "lost", "removed", "not_readable", "overwritten", "twice", "unacknowledged",
        "not_in_lake", "doubled_in_lake", "not_in_log", "waiting", "unjudged",
    )}  # fmt: skip
    lacking = {}
    for o in range(SIZE):
        held, told = of[o], acked.count(o)
        data = any(r.flags & cells.GOOD_DATA for r in held)
        exact = any(r.flags & cells.EXACT for r in held)
        transactional = any(r.flags & cells.TRANSACTIONAL for r in held)
        readable = known.high_watermark is None or o < known.high_watermark
        kept = o >= known.start
        has_landed = any(a <= o <= b for a, b in landed)
        if told:
            found["acked"].append(o)
            if not held:
                found["lost" if kept else "removed"].append(o)
            elif not readable:
                found["not_readable"].append(o)
            for broker, start in known.starts.items():
                has = broker in {r.broker for r in held}
                if held and not has and o >= max(start, known.cleaned):
                    lacking.setdefault(broker, []).append(o)
        elif known.whole_time and data and exact and readable:
            found["unacknowledged"].append(o)
        if told > 1:
            found["twice"].append(o)
        for offset, ms in acks:
            if offset == o and held and known.terms and ms >= known.terms[0][0]:
                led = [e for began, e in known.terms if began <= ms + known.tolerance_ms]
                if max(r.epoch for r in held) > max(led):
                    found["overwritten"].append(o)
        if data and has_landed and o not in rows and kept:
            sure = exact and not (known.committed_only and transactional)
            found["not_in_lake" if sure else "unjudged"].append(o)
        if rows.count(o) > 1:
            found["doubled_in_lake"].append(o)
        if o in rows and not held and kept:
            found["not_in_log"].append(o)
        if data and not has_landed and kept and readable:
            found["waiting"].append(o)
    return {k: counted(v) for k, v in found.items()}, {b: counted(v) for b, v in lacking.items()}


offset = st.integers(0, SIZE - 1)
span = st.tuples(offset, offset).map(lambda s: (min(s), max(s)))
run = st.builds(
    lambda b, s, e, f: Run(b, *s, e, f), st.integers(0, 2), span, st.integers(0, 4),
    st.integers(0, 7),
)  # fmt: skip
known = st.builds(
    Known,
    starts=st.dictionaries(st.integers(0, 2), st.integers(0, 8), max_size=3),
    cleaned=st.sampled_from([0, 0, 4]),
    high_watermark=st.none() | st.integers(0, SIZE),
    terms=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 4)), max_size=4).map(sorted),
    acks=st.just(True),
    lake=st.just(True),
    committed_only=st.booleans(),
    tolerance_ms=st.integers(0, 5),
    whole_time=st.booleans(),
)


@given(
    known,
    st.lists(st.tuples(offset, st.integers(0, 70)), max_size=20),
    st.lists(offset, max_size=20),
    st.lists(run, max_size=5),
    st.lists(span, max_size=2),
)
@settings(max_examples=400, deadline=None)
def test_each_offset_is_judged_as_the_model_does(known, acks, rows, runs, landed):
    offsets = np.array([o for o, _ in acks], np.int64)
    times = np.array([ms for _, ms in acks], np.int64)
    cell = cells.judge(known, (offsets, times), np.array(rows, np.int64), runs, landed)
    expected, lacking = model(known, acks, rows, runs, landed)
    assert {name: getattr(cell, name) for name in expected} == expected
    assert cell.lacking == lacking
    assert cell.rows == len(rows)
    assert sum(a.count for a in cell.by_term.values()) == len(acks)


@given(
    known,
    st.lists(st.tuples(offset, st.integers(0, 70)), max_size=20),
    st.lists(offset, max_size=20),
    st.lists(run, max_size=4),
    st.lists(span, max_size=2),
    st.integers(1, SIZE - 1),
)
@settings(max_examples=200, deadline=None)
def test_cells_added_up_are_the_whole(known, acks, rows, runs, landed, cut):
    """The same offsets in one cell and in two give the same."""

    def judged(low, high):
        inside = [(o, ms) for o, ms in acks if low <= o < high]
        return cells.judge(
            known,
            (
                np.array([o for o, _ in inside], np.int64),
                np.array([m for _, m in inside], np.int64),
            ),
            np.array([o for o in rows if low <= o < high], np.int64),
            [
                r._replace(base=max(r.base, low), last=min(r.last, high - 1))
                for r in runs
                if r.base < high and r.last >= low
            ],
            [(max(a, low), min(b, high - 1)) for a, b in landed if a < high and b >= low],
        )

    assert cells.added([judged(0, cut), judged(cut, SIZE)]) == cells.added([judged(0, SIZE)])


def test_counts_stay_exact_where_spans_are_too_many():
    odd = np.arange(1, 2000, 2)
    cell = cells.judge(
        Known(starts={0: 0}, acks=True), (odd, np.zeros(len(odd), np.int64)), odd[:0], [], []
    )
    assert cell.lost.count == 1000
    assert len(cell.lost.spans) == cells.MOST
    assert cell.lost.spans[:2] == [(1, 1), (3, 3)]
    assert cells.in_words(cell.lost) == "1, 3, 5, 7, 9, …"


def test_nothing_at_all():
    nothing = np.empty(0, np.int64)
    assert cells.judge(Known(acks=True, lake=True), (nothing, nothing), nothing, [], []) == Cell()
