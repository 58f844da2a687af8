"""Defects of what brokers believe of disks, ids, settings and ZooKeeper, put back (F50 to F55).

Each is put into the product as a patch, or found in it where it is not fixed yet (`FIXED`).
`PYTHONPATH=src:tests:tests/simulation python tests/simulation/test_planted_statement_bugs.py`
tries each with its seeds one after the other and prints which one tells (docs/TESTING.md).
"""

import sys

import pytest

from ottla.replication import isr
from ottla.sim.cluster import run
from ottla.sim.plans import Plan
from ottla.zookeeper.txn_log import LogWriter
from support.planting import found, main


def f50_eligible_replicas_ignore_changes_of_the_default(patch):
    """R20: min.insync.replicas of all brokers, or of one, was lower for a while."""


def f51_what_zookeeper_forgot_is_deleted(patch):
    """R20, R21: a topic of the same name has another id, as ZooKeeper went back."""


def f52_an_older_disk_counts_as_whole(patch):
    """R22: its clean marker or its boot note is that of another registration."""


def f52_an_older_disk_of_an_eligible_replica_leads(patch):
    """R22, and what the controller noted of that replica is of a later registration (adr/0007)."""


def f53_a_second_process_takes_the_registration(patch):
    """R22: by the session that the copied folder remembers."""


def f26_topic_ids_and_deletions_are_not_durable(patch):
    """R15: a power loss brings a deleted log back, and takes the id that says whose it was."""


def f54_a_late_end_ends_the_next_transaction(patch):
    """Kafka 3.9 does so, too: before KIP-890 part 2 nothing says which transaction is meant."""


def f55_what_an_fsync_lost_is_believed_after_a_restart(patch):
    """The server reads it from the page cache and builds on it."""


def f55_a_server_outlives_its_flush_task(patch):
    """It goes on accepting, and answers nobody."""


def r4_the_high_watermark_is_one_record_ahead(patch):
    """R4: seen when it moves, not only where a leader dies at that moment."""
    true = isr.high_watermark

    def ahead(leader_end_offset, *rest, **more):
        return min(true(leader_end_offset, *rest, **more) + 1, leader_end_offset)

    patch.setattr(isr, "high_watermark", ahead)


def f55_replies_do_not_wait_for_the_disk(patch):
    """The server acknowledges what a power loss takes back."""
    patch.setattr(LogWriter, "sync", lambda _: None)


FIXED = frozenset({r4_the_high_watermark_is_one_record_ahead, f55_replies_do_not_wait_for_the_disk})
"""Those whose defect is in the product only while it is planted."""
LOST = ("acked record lost: ", "read not repeatable: ", "in sync without all: ")
PLAIN = {
    "seconds": 20.0, "mean_gap_s": 1.5, "producers": 2, "no_retry_producers": 0, "consumers": 1,
    "operators": False, "pause_s": 0.3, "hard": True, "durable_zookeeper": True,
}  # fmt: skip
BUGS = {
    f50_eligible_replicas_ignore_changes_of_the_default: (
        {**PLAIN, "faults": ("lowered-for-the-last",)}, LOST, range(6),
    ),
    f51_what_zookeeper_forgot_is_deleted: (
        {**PLAIN, "mean_gap_s": 4.0, "operators": True, "faults": ("zookeeper-restored",)},
        ("forgotten replica deleted: ",), range(6),
    ),
    f52_an_older_disk_counts_as_whole: ({**PLAIN, "faults": ("older-disk",)}, LOST, range(6)),
    f52_an_older_disk_of_an_eligible_replica_leads: (
        {**PLAIN, "faults": ("older-disk-of-eligible",)}, LOST, range(6),
    ),
    f53_a_second_process_takes_the_registration: (
        {**PLAIN, "careless": True, "replicas": 1, "min_isr": 1, "faults": ("second-process",)},
        ("two processes of one broker: ",), range(6),
    ),
    f26_topic_ids_and_deletions_are_not_durable: (
        {**PLAIN, "seconds": 40.0, "mean_gap_s": 2.5, "operators": True, "partitions": 1,
         "producers": 1, "pause_s": 1.0, "faults": ("power-loss-at-deletion",)},
        ("client: churn-",), range(110, 120),
    ),
    f54_a_late_end_ends_the_next_transaction: (
        {**PLAIN, "hard": False, "seconds": 30.0, "mean_gap_s": 1.0, "producers": 1,
         "consumers": 0, "copiers": 3, "faults": ("late-end-txn",)},
        ("not exactly once: ", "wrong outcome: ", "read_committed: "), range(12),
    ),
    f55_what_an_fsync_lost_is_believed_after_a_restart: (
        {**PLAIN, "administrators": 2, "faults": ("zookeeper-dropped-pages", "kill")},
        ("not healed: ",), range(6),
    ),
    f55_a_server_outlives_its_flush_task: (
        {**PLAIN, "administrators": 2, "faults": ("zookeeper-no-threads", "kill")},
        ("not healed: ",), range(6),
    ),
    r4_the_high_watermark_is_one_record_ahead: (
        {**PLAIN, "seconds": 5.0, "faults": ("kill",)}, ("in sync without all: ",), range(6),
    ),
    f55_replies_do_not_wait_for_the_disk: (
        {**PLAIN, "mean_gap_s": 0.7, "administrators": 2,
         "faults": ("zookeeper-restart", "kill", "expire")},
        (*LOST, "not healed: ", "znodes: "), range(10),
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_within_its_seeds(plant):
    assert found(plant, BUGS) is not None


@pytest.mark.parametrize("plant", sorted(FIXED, key=repr), ids=lambda plant: plant.__name__)
def test_its_plan_passes_without_it(plant):
    settings, _, seeds = BUGS[plant]
    plan = Plan(seeds[0], **settings)
    verdict = run(plan)
    assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])
    assert verdict.faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], BUGS))
