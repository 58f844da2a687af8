"""Each checker of transactions and groups finds what it is for, and nothing in a sound history."""

import pytest

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import LogRecord
from ottla.sim.group_checkers import check_groups
from ottla.sim.history import (
    Assigned,
    Claimed,
    Commit,
    Fetched,
    History,
    Init,
    Read,
    Stable,
    Taken,
    Transaction,
)
from ottla.sim.transaction_checkers import check_transactions, latest_by_key, transactions_in
from ottla.wire.records import ABORT, COMMIT, Record, build_batch, build_control_batch

SOURCE, TARGET, OTHER = (TopicPartition(t, 0) for t in ("events", "copies", "more"))
ORIGINALS = {SOURCE: [LogRecord(o, 0, b"v%d" % o) for o in range(3)]}


def copy(offset):
    return b"events-0@%d t0a1.1=v%d" % (offset, offset)


def data(base, values, producer=1, transactional=True, keys=None):
    records = [
        Record(-1, 0, None if keys is None else keys[i], value) for i, value in enumerate(values)
    ]
    whole = build_batch(
        records, base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0,
        is_transactional=transactional,
    )  # fmt: skip
    return bytes(whole)


def marker(base, kind, producer=1):
    batch = build_control_batch(
        kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0,
        base_offset=base,
    )  # fmt: skip
    return bytes(batch)


SOUND = (
    data(0, [copy(0), copy(1), copy(2)]) + marker(3, COMMIT) + data(4, [b"x"]) + marker(5, ABORT)
)


def history(**changes):
    """One transaction that copied all, one that was aborted, one reader of what is committed."""
    done = Transaction("t0a1", "t0", 1, 1.0, [copy(0), copy(1), copy(2)], True, 2.0, 2.1, True)
    given_up = Transaction("t0a1", "t0", 2, 3.0, [b"x"], False, 3.5, 3.6, False)
    found = History(transactions=[done, given_up], committed_readers={"rc"})
    found.inits = [Init("t0a1", "t0", 0.1, 0.2, 1, 0)]
    found.reads = [Read("rc", TARGET, o, copy(o), 2.5) for o in range(3)]
    found.stables = {TARGET: [Stable(0, 3, 1.5), Stable(4, 4, 2.5), Stable(6, 6, 4.0)]}
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def verdict(told=None, log=SOUND, source=ORIGINALS):
    transactions = {TARGET: transactions_in(log)}
    return check_transactions(told or history(), source, transactions, complete=True)


def test_a_sound_history_passes():
    assert verdict() == []


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (SOUND + data(6, [copy(1)]) + marker(7, COMMIT), "events-0@1 was copied 2 times"),
        (data(0, [copy(0), copy(1)]) + marker(2, COMMIT), "events-0@2 was never copied"),
        (SOUND + data(6, [b"y"]), "transaction without an end: copies-0@6"),
        (SOUND.replace(b"=v", b"=w"), "events-0@0 is b'v0', its copy b'w0'"),
        (data(0, [copy(0), copy(1), copy(2)]) + marker(3, ABORT), "received committed at 2.1 s"),
        (data(0, [copy(0)]) + marker(1, COMMIT) + data(2, [copy(1), copy(2)]), "records are not"),
        (data(0, [b"x"]) + marker(1, COMMIT), "received aborted"),
    ],
)
def test_a_log_that_is_wrong_is_told(log, found):
    assert any(found in line for line in verdict(log=log)), verdict(log=log)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"reads": [Read("rc", TARGET, 4, b"x", 4.0)]}, "b'x' at 4.000 s, which is not committed"),
        ({"reads": [Read("rc", TARGET, 0, copy(0), 1.9)]}, "before anybody asked for the commit"),
        ({"reads": [Read("rc", TARGET, 2, copy(2), 2.5)]}, "was not given copies-0@[0, 1]"),
        ({"stables": {TARGET: [Stable(1, 3, 1.5)]}}, "passes producer 1's transaction from 0 on"),
        ({"stables": {TARGET: [Stable(4, 3, 2.5)]}}, "is above the high watermark"),
        (
            {"inits": [Init("t0a1", "t0", 0.1, 0.2, 1, 0), Init("t0b1", "t0", 0.5, 0.9, 1, 1)]},
            "but t0b1 has had t0 since 0.900 s",
        ),
        (
            {"inits": [Init("t0a1", "t0", 0.1, 0.2, 1, 0), Init("t0b1", "t0", 5.5, 5.9, 1, 0)]},
            "the same producer id and epoch were given twice",
        ),
    ],
)
def test_what_clients_saw_wrongly_is_told(changes, found):
    told = verdict(history(**changes))
    assert any(found in line for line in told), told


def test_compacted_logs_are_compared_without_what_was_aborted():
    log = (
        data(0, [b"1", b"2"], transactional=False, keys=[b"a", b"b"])
        + data(2, [b"9"], keys=[b"a"])
        + marker(3, ABORT)
        + data(4, [None], transactional=False, keys=[b"b"])
    )
    assert latest_by_key(log) == {b"a": b"1"}


def test_groups():
    fine = History(
        assigned=[
            Assigned("g", 1, "m0", (SOURCE,), 1.0),
            Assigned("g", 1, "m1", (OTHER,), 1.0),
            Assigned("g", 2, "m1", (SOURCE, OTHER), 5.0),
        ],
        commits=[Commit("g", SOURCE, 2, 1, 2.0, 2.1), Commit("g", SOURCE, 9, 1, 3.0)],
        fetched=[
            Fetched("g", SOURCE, 2, 5.0, 5.1, "m1", 0),
            # It was committed while the answer was on its way.
            Fetched("g", SOURCE, 2, 1.5, 2.2, "m2", 0),
        ],
        consumed={"g": {(SOURCE, 0), (SOURCE, 1), (SOURCE, 2)}},
    )
    assert check_groups(fine, ORIGINALS, complete=True) == []


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (
            {"assigned": [Assigned("g", 1, m, (SOURCE,), 1.0) for m in ("m0", "m1")]},
            "two owners: g generation 1: events-0 is m0's and, at 1.000 s, m1's",
        ),
        (
            {
                "assigned": [Assigned("g", 2, "m1", (SOURCE,), 5.0)],
                "commits": [Commit("g", SOURCE, 2, 1, 6.0, 6.1)],
            },
            "commit of an old generation: g events-0: 2 of generation 1",
        ),
        (
            {
                "commits": [
                    Commit("g", SOURCE, 2, 1, 2.0, 2.1),
                    Commit("g", SOURCE, 1, 1, 1.0, 1.1),
                ],
                "fetched": [Fetched("g", SOURCE, 1, 5.0, 5.1, "m1", 0)],
            },
            "committed offset went back: g events-0: m1 received 1 from broker 0",
        ),
        (
            {"fetched": [Fetched("g", SOURCE, 7, 5.0, 5.1, "m1", 0)]},
            "offset that was never committed: g events-0: 7 was never committed",
        ),
        (
            {
                "commits": [Commit("g", SOURCE, 7, 1, 5.2, 5.3)],
                "fetched": [Fetched("g", SOURCE, 7, 5.0, 5.1, "m1", 0)],
            },
            "offset that was never committed: g events-0: 7 was never committed",
        ),
        ({"consumed": {"g": {(SOURCE, 1)}}}, "never consumed: g: 2 records, the first events-0@0"),
    ],
)
def test_what_a_group_did_wrongly_is_told(wrong, found):
    told = check_groups(History(**wrong), ORIGINALS, complete=True)
    assert any(line.startswith(found) for line in told), told


P0, P1 = TopicPartition("events", 0), TopicPartition("events", 1)


def taken(process, generation, tp, at_s):
    return Taken("readers", process, generation, tp, 7, at_s)


def handed_over(*taken_ones):
    """A has both; in generation 2 it gives P1 up, in generation 3 it is B's."""
    found = History(taken=list(taken_ones))
    found.assigned = [
        Assigned("readers", 1, "a", (P0, P1), 1.0, "a1"),
        Assigned("readers", 2, "b", (), 2.0, "b1"),
        Assigned("readers", 2, "a", (P0,), 2.1, "a1"),
        Assigned("readers", 3, "b", (P1,), 3.0, "b1"),
        Assigned("readers", 3, "a", (P0,), 3.3, "a1"),
    ]
    return check_groups(found, {}, complete=False)


def test_a_member_may_read_what_it_keeps_while_others_are_assigned():
    assert (
        handed_over(
            taken("a1", 1, P1, 1.5),
            taken("a1", 1, P1, 2.05),  # before it heard of generation 2
            taken("a1", 2, P0, 3.2),  # P0 stays its own in generation 3
            taken("b1", 3, P1, 3.1),
        )
        == []
    )


def test_what_was_given_up_must_not_be_read():
    (found,) = handed_over(taken("a1", 2, P1, 2.5))
    assert found.startswith("consumed what was given up: readers events-1@7 was taken by a1 ")
    assert found.endswith("not its own in 2")


def test_what_another_has_in_the_same_generation_must_not_be_read():
    """As it would be, were it given to B while A says that it owns it."""
    (found,) = handed_over(taken("a1", 1, P1, 3.1))
    assert found.endswith("but is b1's since 3.000 s, generation 3")


def test_who_was_put_out_of_the_group_may_read_until_it_hears_of_it():
    history = History(taken=[taken("a1", 1, P0, 3.1)])
    history.assigned = [
        Assigned("readers", 1, "a", (P0, P1), 1.0, "a1"),
        Assigned("readers", 2, "b", (P0, P1), 2.0, "b1"),
    ]
    assert check_groups(history, {}, complete=False) == []


BEFORE_IT_WAS_GIVEN_UP = "given before it was given up: readers generation "


def claimed(process, generation, *partitions):
    """Return what a process said; the owner is its name without the number."""
    return Claimed("readers", generation, process[0], process, partitions)


def test_nobody_is_given_what_another_member_still_owns():
    history = History(claimed=[claimed("a1", 2, P0, P1)])
    history.assigned = [
        Assigned("readers", 1, "a", (P0, P1), 1.0, "a1"),
        Assigned("readers", 2, "b", (P1,), 2.0, "b1"),
        Assigned("readers", 2, "a", (P0,), 2.0, "a1"),
    ]
    (found,) = check_groups(history, {}, complete=False)
    assert found.startswith(BEFORE_IT_WAS_GIVEN_UP + "2: events-1 was given to b1 ")
    history.assigned[1] = Assigned("readers", 2, "b", (), 2.0, "b1")
    assert check_groups(history, {}, complete=False) == []


def test_what_a_member_owns_counts_though_it_never_hears_what_the_generation_gives_it():
    history = History(claimed=[claimed("a1", 2, P0, P1)])
    history.assigned = [
        Assigned("readers", 1, "a", (P0, P1), 1.0, "a1"),
        Assigned("readers", 2, "b", (P1,), 2.0, "b1"),
    ]
    (found,) = check_groups(history, {}, complete=False)
    assert found.startswith(BEFORE_IT_WAS_GIVEN_UP + "2: events-1 was given to b1 ")


def test_what_is_said_to_a_replaced_coordinator_is_of_another_generation():
    """It may begin one of the same number, with those who have not heard of its successor."""
    said = claimed("a1", 2, P0, P1)._replace(leader="a1")
    history = History(claimed=[said])
    history.assigned = [
        Assigned("readers", 1, "a", (P0, P1), 1.0, "a1"),
        Assigned("readers", 2, "b", (P0, P1), 2.0, "b1", leader="b1"),
    ]
    assert check_groups(history, {}, complete=False) == []
    history.claimed = [said._replace(leader="b1")]
    assert check_groups(history, {}, complete=False)


def test_a_generation_that_was_not_stored_begins_again_with_what_is_said_then():
    """The simulator's seed 22000694: a static member led both, so nothing else tells them apart."""
    first = claimed("a1", 2, P0, P1)._replace(at_s=1.5)
    again = claimed("a1", 2)._replace(at_s=3.5)  # its place was lost in between
    history = History(claimed=[first, again])
    history.assigned = [
        Assigned("readers", 1, "a", (P0, P1), 1.0, "a1"),
        Assigned("readers", 2, "b", (P1,), 4.0, "b1"),
    ]
    assert check_groups(history, {}, complete=False) == []
    history.claimed = [first._replace(partitions=()), again._replace(partitions=(P1,))]
    assert check_groups(history, {}, complete=False), "it still says so"
    history.claimed = [first, again._replace(at_s=4.5)]
    assert check_groups(history, {}, complete=False), "it said so only after B was given it"


def returned(owner, process):
    """A has both and is away in generation 2, in which B is given P1; both join generation 3."""
    found = History(claimed=[claimed("b1", 2), claimed("a1", 3, P0, P1), claimed("b1", 3, P1)])
    found.assigned = [
        Assigned("readers", 1, "a", (P0, P1), 1.0, "a1"),
        Assigned("readers", 2, "b", (P1,), 2.0, "b1"),
        Assigned("readers", 3, "a", (P0,), 3.0, "a1"),
        Assigned("readers", 3, owner, (P1,), 3.0, process),
    ]
    return check_groups(found, {}, complete=False)


def test_what_became_anothers_while_a_static_member_was_away_is_that_others():
    assert returned("b", "b1") == []


@pytest.mark.parametrize(("process", "owners"), [("a1", ["b"]), ("c1", ["a", "b"])])
def test_it_is_nobody_elses_either_before_that_other_gives_it_up(process, owners):
    found = returned(process[0], process)
    assert [line.rsplit("while ")[-1] for line in found] == [f"{o} owned it" for o in owners]
    assert all(line.startswith(BEFORE_IT_WAS_GIVEN_UP + "3: events-1 was ") for line in found)


def test_what_two_say_they_were_given_in_one_generation_is_neithers():
    history = History(claimed=[claimed("a1", 3, P1), claimed("b1", 3, P1)])
    history.assigned = [
        Assigned("readers", 2, "a", (P1,), 2.0, "a1"),
        Assigned("readers", 2, "b", (P1,), 2.0, "b1"),
        Assigned("readers", 3, "b", (P1,), 3.0, "b1"),
    ]
    told = check_groups(history, {}, complete=False)
    assert any(line.startswith(BEFORE_IT_WAS_GIVEN_UP + "3: events-1 ") for line in told)
