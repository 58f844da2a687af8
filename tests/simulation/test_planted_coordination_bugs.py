"""Bugs of transactions and groups, each a patch to production code, that the simulator has to find.

One rule is broken at a time, and a few seeds have to tell of it in the words of its checker.
"""

from dataclasses import replace

import pytest

from ottla.coordinators.coordinator_log import CoordinatorLog
from ottla.coordinators.group import Group
from ottla.coordinators.group_records import GroupRecordReader
from ottla.coordinators.groups import Groups
from ottla.coordinators.offsets import GroupOffsets
from ottla.coordinators.transaction_markers import TransactionMarkers
from ottla.coordinators.transactions import Transactions
from ottla.log import producers
from ottla.log.log import Log
from ottla.model.errors import ErrorCode
from ottla.replication.fetching import FetchPath
from ottla.sim import cluster
from ottla.sim.cluster import run
from ottla.sim.plans import Plan

pytestmark = pytest.mark.slow


def markers_go_to_one_partition_only(patch):
    send = TransactionMarkers.send

    def one(self, what):
        first, *others = sorted(what.partitions)
        self._written(what, others)
        what.partitions = frozenset({first})
        send(self, what)

    patch.setattr(TransactionMarkers, "send", one)


def the_last_stable_offset_is_the_high_watermark(patch):
    patch.setattr(Log, "last_stable_offset", property(lambda log: log.high_watermark))


def readers_are_not_told_what_was_aborted(patch):
    patch.setattr(FetchPath, "_aborted", staticmethod(lambda *_: []))


def offsets_do_not_care_how_their_transaction_ended(patch):
    complete = GroupOffsets.complete_transaction

    def always(self, producer_id, *, committed):
        complete(self, producer_id, committed=committed or True)

    patch.setattr(GroupOffsets, "complete_transaction", always)


def duplicate_sequences_are_accepted(patch):
    patch.setattr(producers.Producer, "repeated", lambda *_: None)
    patch.setattr(producers.Producers, "_check_sequence", staticmethod(lambda *_: None))


def nobody_is_fenced(patch):
    """The coordinator and the logs look at the producer id, not at the epoch."""
    find = Transactions._find

    def found(shard, transactional_id, producer):
        transaction, error = find(shard, transactional_id, producer)
        return transaction, ErrorCode.NONE if error is ErrorCode.PRODUCER_FENCED else error

    patch.setattr(Transactions, "_find", staticmethod(found))


def nobody_ends_what_timed_out(patch):
    patch.setattr(Transactions, "abort_timed_out", lambda *_: None)


def a_new_coordinator_knows_nothing(patch):
    patch.setattr(GroupRecordReader, "load_batch", lambda *_: iter(()))


def commits_of_any_generation_count(patch):
    check = Groups.check_commit

    def checked(self, *args, **more):
        error = check(self, *args, **more)
        if error in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            return ErrorCode.NONE
        return error

    patch.setattr(Groups, "check_commit", checked)


def offsets_are_acknowledged_by_the_leader_alone(patch):
    append = CoordinatorLog.append

    def alone(self, *args, **more):
        append(self, *args, **{**more, "acks": 1})

    patch.setattr(CoordinatorLog, "append", alone)


def what_a_member_owns_now_is_not_taken_over(patch):
    """The coordinator keeps what a member said when it came: the leader goes by that."""
    update = Group.update

    def updated(self, member, protocols, *rest):
        update(self, member, member.protocols, *rest)

    patch.setattr(Group, "update", updated)


COPYING = {"copiers": 2, "members": 0}
READING = {"copiers": 0, "members": 3}
COOPERATING = {"copiers": 0, "members": 4, "cooperative": True}
WRONG_COPIES = ("not exactly once: ", "committed in part: ", "wrong outcome: ", "fencing: ")
NEVER_COPIED = "not healed: 20 s after the last fault not: everything is copied"
DUPLICATES = ("duplicate record: ", "not exactly once: ")
# Each with who is at work, the brokers' faults, the first seed, and what has to be told.
BUGS = {
    markers_go_to_one_partition_only: (COPYING, (), 0, "wrong outcome: "),
    the_last_stable_offset_is_the_high_watermark: (COPYING, (), 0, "last stable offset: "),
    readers_are_not_told_what_was_aborted: (COPYING, (), 0, "read_committed: "),
    # What is skipped is never copied, so that nobody comes to the end.
    offsets_do_not_care_how_their_transaction_ended: (COPYING, ("slow", "reset"), 4, NEVER_COPIED),
    duplicate_sequences_are_accepted: (COPYING, ("slow", "reset"), 0, DUPLICATES),
    nobody_is_fenced: (COPYING, ("kill", "pause"), 0, WRONG_COPIES),
    nobody_ends_what_timed_out: (COPYING, (), 0, "not healed: "),
    a_new_coordinator_knows_nothing: (READING, ("kill",), 0, "committed offset went back: "),
    commits_of_any_generation_count: (READING, ("reset",), 2, "commit of an old generation: "),
    offsets_are_acknowledged_by_the_leader_alone: (
        READING, ("isolate",), 0, "committed offset went back: "
    ),
    what_a_member_owns_now_is_not_taken_over: (
        COOPERATING, ("reset",), 1, "given before it was given up: "
    ),
}  # fmt: skip
SEEDS = 12


def small(seed, clients, faults):
    return Plan(
        seed,
        seconds=8.0 if clients is COPYING else 30.0,
        partitions=4 if clients is COOPERATING else 2,
        producers=1,
        no_retry_producers=0,
        consumers=0,
        mean_gap_s=1.0,
        operators=False,
        faults=faults,
        **clients,
    )


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_within_a_few_seeds(plant, monkeypatch):
    clients, faults, first, told = BUGS[plant]
    monkeypatch.setattr(cluster, "SETTLE_S", 20.0)
    plant(monkeypatch)
    for seed in range(first, first + SEEDS):
        plan = small(seed, clients, faults)
        if any(line.startswith(told) for line in run(plan).anomalies):
            assert f"--{next(n for n in clients if clients[n])} " in plan.replayed_by()
            return
    pytest.fail("nothing was found")


@pytest.mark.parametrize(
    "clients", [COPYING, READING, COOPERATING], ids=["copying", "reading", "cooperating"]
)
def test_without_a_bug_nothing_is_found(clients):
    plan = small(6, clients, ("kill", "pause", "isolate"))
    # With three brokers and a fault each second hardly anything is ever committed.
    verdict = run(replace(plan, mean_gap_s=5.0))
    assert verdict.passed, verdict.anomalies
    assert verdict.statistics["commits"] > 20
