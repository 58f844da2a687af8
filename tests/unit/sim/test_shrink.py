"""Shrinking against plain predicates: what fails is kept, and nothing that could go is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.sim.plans import Plan
from ottla.sim.shrink import (
    Outcome,
    Shrinker,
    ddmin,
    differences,
    gravest,
    kind_of,
    lower,
)

NAMES = [*(str(n) for n in range(1, 20)), "c1", "c2", "c3"]


@given(st.lists(st.integers(0, 30), unique=True), st.data())
def test_ddmin_finds_what_is_needed_together(items, data):
    needed = set(data.draw(st.lists(st.sampled_from(items)))) if items else set()
    found = ddmin(items, lambda part: needed <= set(part))
    assert found == [item for item in items if item in needed]


@given(st.sets(st.frozensets(st.integers(0, 9)), max_size=40))
def test_ddmin_leaves_nothing_out_that_could_go_alone_whatever_fails(failing):
    """Also where a smaller part fails and a bigger one does not."""
    everything = list(range(10))
    failing = {*failing, frozenset(everything)}

    def fails(part):
        assert part == sorted(set(part))
        return frozenset(part) in failing

    found = ddmin(everything, fails)
    assert frozenset(found) in failing
    assert not any(frozenset(found) - {item} in failing for item in found)


def test_ddmin_tries_few_parts_of_a_long_list():
    tried = []
    needed = {17, 400}
    assert ddmin(list(range(512)), lambda part: tried.append(part) or needed <= set(part)) == [
        17,
        400,
    ]
    assert len(tried) < 120


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_the_least_number_is_found(value, least, threshold):
    found = lower(value, least, lambda n: n >= threshold)
    if value <= least:
        assert found == value
    else:
        assert found == max(least, min(threshold, value))


@given(
    st.sets(st.sampled_from(NAMES), max_size=4),
    st.sets(st.sampled_from(["a0.1", "a0.7", "m0.2"])),
    st.fixed_dictionaries(
        {
            "brokers": st.integers(1, 7),
            "partitions": st.integers(1, 4),
            "members": st.integers(0, 3),
            "consumers": st.integers(0, 1),
        }
    ),
    st.integers(2, 80),
)
def test_a_plan_shrinks_to_what_its_failure_needs(faults, operations, numbers, halves):
    plan = Plan(
        5,
        brokers=7,
        partitions=4,
        members=3,
        seconds=40.0,
        administrators=2,
        copiers=3,
        unclean_partitions=2,
    )
    happening = ("a0.1", "a0.7", "a1.2", "m0.2", "m0.9")
    tried = []

    def attempt(plan):
        tried.append(plan)
        outcome = Outcome(
            tuple(n for n in NAMES if plan.fault_mask.allows(n)),
            tuple(n for n in happening if plan.operation_mask.allows(n)),
        )
        fails = (
            faults <= set(outcome.faults)
            and operations <= set(outcome.operations)
            and all(getattr(plan, name) >= least for name, least in numbers.items())
            and plan.seconds >= halves / 2
        )
        return outcome if fails else None

    lines = []
    best = Shrinker(plan, attempt(plan), attempt, lines.append).run()
    assert attempt(best) is not None
    assert set(best.only_faults) == faults
    assert set(best.only_operations) == operations
    for name, least in numbers.items():
        assert getattr(best, name) == least, name
    assert best.seconds == halves / 2
    assert (best.producers, best.copiers, best.administrators, best.unclean_partitions) == (
        0,
        0,
        0,
        0,
    )
    assert best.min_isr <= best.replicas <= best.brokers
    assert not best.operators
    assert len(lines) < len(tried) < 180


def test_what_ends_it_early_leaves_the_best_so_far():
    runs = []

    def attempt(plan):
        if len(runs) == 5:
            raise TimeoutError
        runs.append(plan)
        return Outcome(("1", "2"), ())

    shrinker = Shrinker(Plan(1), Outcome(("1", "2"), ()), attempt, lambda _line: None)
    with pytest.raises(TimeoutError):
        shrinker.run()
    assert shrinker.best == runs[-1]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "acked record lost: events-0@5 b'p0-1' acked to p0 at 1.2 s, the log has None",
            "acked record lost",
        ),
        (
            "not healed: 180 s after the last fault not: consumers have read everything; up: b0",
            "not healed: consumers have read everything",
        ),
        (
            "stuck: 500000 events at 12.345678 s; the last was <Handle x>",
            "stuck: * events at * s",
        ),
        (
            "logged: appending events-0 failed: ValueError('it: 3') at /x/ottla/log/log.py:71",
            "logged: ValueError log.py:71",
        ),
        ("uncaught: b0: Task exception: KeyError('a')", "uncaught: KeyError"),
        ("client: p0 events-1 got INVALID_RECORD", "client: INVALID_RECORD"),
        ("events-1 has ISR (0, 1) of replicas (0, 1, 2)", "* has ISR * of replicas *"),
        ("b1 keeps events-0 in two log dirs", "* keeps * in two log dirs"),
        ("broker 3 metadata cache: topics ['a'], should be []", "broker * metadata cache"),
    ],
)
def test_a_kind_of_failure_has_no_names_and_numbers(line, kind):
    assert kind_of(line) == kind


def test_the_kind_that_is_kept_is_no_symptom_of_another():
    late = "not healed: 180 s after the last fault not: replicas are equal; up: b0"
    lost = "acked record lost: events-0@5 b'p0-1'"
    assert gravest([late, "broker 1 replicas: offline", lost]) == "acked record lost"
    assert gravest([late, "broker 1 replicas: offline"]) == kind_of(late)
    leaderless = "events-1 has no live leader: LeaderAndIsr(leader=-1)"
    assert gravest([late, leaderless]) == "* has no live leader"
    assert gravest([late, leaderless, lost]) == "acked record lost"
    assert gravest([]) is None


def test_differences_say_what_was_taken_away():
    before = Plan(1, seconds=40.0)
    after = Plan(1, seconds=2.5, brokers=2, only_faults=("1", "c2"))
    assert differences(before, after) == [
        "brokers 3 -> 2",
        "seconds 40 -> 2.5",
        "only_faults all -> 2",
    ]
