"""Defects that a review found and the simulator once missed, each put back as a patch.

`PYTHONPATH=src:tests:tests/simulation python tests/simulation/test_planted_reliability_bugs.py`
tries each with its seeds one after the other and prints which one tells (docs/TESTING.md has the
numbers).
"""

import sys

import pytest

from ottla.broker.lifecycle.membership import Membership
from ottla.controller import isr_changes, reassignment
from ottla.coordinators.transactions import Transactions
from ottla.log import checkpoints, log_dir_files, segment
from ottla.log.dir_checkpoints import CheckpointWriter
from ottla.log.flush_job import FlushJob, FolderGuard
from ottla.log.flusher import Flusher
from ottla.log.manager import LogManager
from ottla.log.recovery import Loader
from ottla.model.errors import ErrorCode
from ottla.replication.fetcher import LeaderFetcher
from ottla.sim.cluster import run
from ottla.sim.plans import Plan
from ottla.wire.records import iter_batches
from support.planting import found, main


def a1_who_has_fetched_once_counts_as_complete(patch):
    """F5: the leader's log end is not requested, our own is as good."""

    async def ask(self):
        for state in list(self._unverified.values()):
            if not state.delayed:
                state.leader_end = state.offset
                self._verify_complete(state)

    patch.setattr(LeaderFetcher, "_fetch_log_ends", ask)


def a2_a_clean_stop_forgets_that_a_log_may_have_lost_its_tail(patch):
    """F2, F5."""
    settle = log_dir_files.write_unclean_marks
    patch.setattr(
        log_dir_files, "write_unclean_marks", lambda files, logs, _unclean: settle(files, logs, ())
    )


def a3_a_start_does_all_recovery_in_one_callback(patch):
    """F9, F19."""
    loading = LogManager.loading

    def at_once(self, topic_configs):
        for cold in loading(self, topic_configs):
            if cold is not None:
                cold.file.prefetch(cold.size, cold.position)
        return
        yield

    patch.setattr(LogManager, "loading", at_once)


def a4_nobody_asks_which_life_of_a_broker_is_to_be_let_in(patch):
    """KIP-903."""
    patch.setattr(isr_changes, "_note_epochs", lambda *_: None)


def c2_checkpoints_have_one_draft_for_all_writers(patch):
    """F17, F22."""

    async def write(self, workers, path, take):
        file, snapshot = self._file(path, take), take()
        number = self._number()
        try:
            await workers.run(self._put, path, path + ".tmp", file, number, snapshot.offsets)
        except OSError as error:
            self._failed(path, error)
        else:
            self._tell(file, number, snapshot)

    def put(self, path, draft, file, number, offsets):
        del draft
        self._files.write_durable(path + ".tmp", checkpoints.encode_offsets(offsets))
        self._files.rename(path + ".tmp", path)
        file.in_place = number
        self._files.fsync_dir(path.rpartition("/")[0])

    patch.setattr(CheckpointWriter, "write", write)
    patch.setattr(CheckpointWriter, "_put", put)


def c3_nobody_looks_for_topics_that_an_earlier_controller_deleted(patch):
    """F26."""
    patch.setattr(Membership, "_metadata_changed", lambda *_: None)


def c6_a_flush_writes_into_whatever_folder_has_the_name(patch):
    """F26: as when a LeaderAndIsr did not wait for its topic ids to be durable."""

    async def nothing(_self, _workers, _logs):
        pass

    def write_all(self, write):
        for path, data in self.to_write:
            write(f"{path}.tmp", data)
            self.files.rename(f"{path}.tmp", path)

    patch.setattr(FlushJob, "_write_all", write_all)
    patch.setattr(FolderGuard, "leave", lambda _: None)
    patch.setattr(Flusher, "make_topic_ids_durable", nothing)


def d_after_an_append_in_doubt_the_state_before_counts(patch):
    """F36."""
    stored = Transactions.stored

    def forgets(self, pending, error, now, *, in_doubt):
        del in_doubt
        stored(self, pending, error, now, in_doubt=False)

    patch.setattr(Transactions, "stored", forgets)


def f20_nobody_checks_what_is_read_from_a_disk(patch):
    """F20."""

    def good_batches(data, _first_offset, upto_offset):
        end = 0
        for position, header in iter_batches(data, allow_partial=True):
            if header.base_offset >= upto_offset:
                break
            end = position + header.size
        return end, None

    patch.setattr(segment, "good_batches", good_batches)


def r14_a_refusal_of_a_former_epoch_ends_the_next_one(patch):
    """R14, KAFKA-10371: what a follower read in one turn it applies in a later one."""
    refused = LeaderFetcher._on_partition_errors

    def blindly(self, states, code):
        for state in states:
            if code is ErrorCode.FENCED_LEADER_EPOCH:
                self.remove(state.tp)
                self._on_failed(state)
        refused(self, states, code)

    patch.setattr(LeaderFetcher, "_on_partition_errors", blindly)


def f5_any_gap_in_a_compacted_log_is_the_cleaners(patch):
    """F5, R18: as in Kafka; the gap bound is not looked at."""
    patch.setattr(Loader, "_read_gap_bound", lambda *_: None)


def r14_a_replaced_move_drops_whoever_is_in_sync(patch):
    """R14: as Kafka in ZooKeeper mode, but for the very last one in sync."""
    patch.setattr(reassignment, "_min_isr_where_dropped", reads_nothing)


async def reads_nothing(_changes, _wanted):
    return {}


pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LOST = ("acked record lost: ", "read not repeatable: ", "in sync without all: ", "replicas differ")
PLAIN = {"producers": 2, "consumers": 1, "operators": False, "pause_s": 0.5}
TOPICS = {
    "administrators": 4,
    "brokers": 3,
    "producers": 1,
    "no_retry_producers": 0,
    "consumers": 0,
}
CLIENTS_FAULTS = tuple(f"c{number}" for number in range(1, 100))
# Each with its plan, what has to be told, and which seeds are tried.
BUGS = {
    a1_who_has_fetched_once_counts_as_complete: (
        {**PLAIN, "seconds": 20.0, "mean_gap_s": 1.0, "hard": True, "small_fetches": True,
         "partitions": 2, "pause_s": 0.1, "faults": ("leader-dies-amid-catch-up",)},
        LOST, range(3, 23),
    ),
    a2_a_clean_stop_forgets_that_a_log_may_have_lost_its_tail: (
        {**PLAIN, "seconds": 10.0, "mean_gap_s": 1.5, "faults": ("stop-while-waiting",)},
        LOST, range(27, 47),
    ),
    a3_a_start_does_all_recovery_in_one_callback: (
        {**PLAIN, "seconds": 15.0, "mean_gap_s": 2.0, "faults": ("slow-recovery",)},
        ("stall: ",), range(6),
    ),
    a4_nobody_asks_which_life_of_a_broker_is_to_be_let_in: (
        {**PLAIN, "seconds": 20.0, "mean_gap_s": 1.0, "hard": True, "brokers": 4, "partitions": 6,
         "pause_s": 0.2, "faults": ("power-loss-at-rejoin",)}, LOST, range(2, 22),
    ),
    c2_checkpoints_have_one_draft_for_all_writers: (
        {**TOPICS, "seconds": 15.0, "faults": ("slow-disk",)},
        ("not healed: ", "logged: ", "uncaught: "), range(20),
    ),
    c3_nobody_looks_for_topics_that_an_earlier_controller_deleted: (
        {**TOPICS, "seconds": 15.0, "mean_gap_s": 1.0, "brokers": 5, "replicas": 2,
         "faults": ("controller-lost-while-cut-off",)}, ("not healed: ",), range(20),
    ),
    c6_a_flush_writes_into_whatever_folder_has_the_name: (
        {**TOPICS, "seconds": 15.0, "faults": ("slow-disk",)},
        ("one topic's file in another's folder: ",), range(5, 25),
    ),
    d_after_an_append_in_doubt_the_state_before_counts: (
        {"copiers": 3, "skip_faults": CLIENTS_FAULTS, "seconds": 40.0, "mean_gap_s": 2.0,
         "producers": 1, "no_retry_producers": 0, "consumers": 0, "operators": False,
         "partitions": 2,
         "pause_s": 0.3, "faults": ("leader-cut-off-from-followers",)},
        ("fenced for no reason: ", "fencing: ", "not exactly once: ", "wrong outcome: "), range(20),
    ),
    f20_nobody_checks_what_is_read_from_a_disk: (
        {**PLAIN, "seconds": 15.0, "mean_gap_s": 1.5, "faults": ("flipped-bit",)},
        ("client: audit got ",), range(6),
    ),
    f5_any_gap_in_a_compacted_log_is_the_cleaners: (
        {**PLAIN, "seconds": 20.0, "mean_gap_s": 1.0, "hard": True, "compacted": True,
         "partitions": 2, "pause_s": 0.1, "faults": ("power-loss-after-roll",)}, LOST, range(20),
    ),
    r14_a_replaced_move_drops_whoever_is_in_sync: (
        {**PLAIN, "seconds": 30.0, "mean_gap_s": 2.0, "hard": True, "brokers": 4, "replicas": 2,
         "operators": True, "faults": ("target-replaced-at-disk-loss",)}, LOST, range(1, 7),
    ),
    r14_a_refusal_of_a_former_epoch_ends_the_next_one: (
        {**PLAIN, "seconds": 6.0, "mean_gap_s": 1.0, "short_turns": True, "partitions": 100,
         "producers": 1, "no_retry_producers": 0, "consumers": 0, "pause_s": 1.0, "slowness": 4.0,
         "faults": ("expire",)}, ("not healed: ",), range(6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_within_its_seeds(plant):
    assert found(plant, BUGS) is not None


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_its_plan_passes_without_it(plant):
    plan = Plan(0, **BUGS[plant][0])
    verdict = run(plan)
    assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])
    assert verdict.faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], BUGS))
