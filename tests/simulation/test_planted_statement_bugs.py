"""Defects of what brokers believe of disks, ids, settings and ZooKeeper, put back (F50 to F55).

`PYTHONPATH=src:tests:tests/simulation python tests/simulation/test_planted_statement_bugs.py`
tries each with its seeds one after the other and prints which one tells (docs/TESTING.md).
"""

import contextlib
import sys

import pytest

from ottla.broker.connections import ProducerConnections
from ottla.broker.lifecycle.membership import Membership, RegistrationTakenError
from ottla.log.flush_state import TopicIdFile
from ottla.log.leaving_folders import LeavingFolders
from ottla.log.life_notes import LifeNotes
from ottla.log.manager import LogManager
from ottla.replication import control, isr
from ottla.replication.eligible_records import EligibleRecords, no_records
from ottla.sim.cluster import run
from ottla.sim.files import SimFiles
from ottla.sim.plans import Plan
from ottla.zookeeper.database import Database
from ottla.zookeeper.txn_log import LogWriter
from support.planting import found, main


def f50_eligible_replicas_ignore_changes_of_the_default(patch):
    """R20: min.insync.replicas of all brokers, or of one, was lower for a while."""
    create = EligibleRecords.__init__
    patch.setattr(EligibleRecords, "__init__", lambda self, _void: create(self, no_records))


def f51_what_zookeeper_forgot_is_deleted(patch):
    """R20, R21: a topic of the same name has another id, as ZooKeeper went back."""

    async def delete(self, _workers, tp):
        self.delete(tp)

    patch.setattr(LogManager, "keep_as_stray", delete)


def f52_an_older_disk_counts_as_whole(patch):
    """R22: its clean marker or its boot note is that of another registration."""
    trust_disks(patch)


def f52_an_older_disk_of_an_eligible_replica_leads(patch):
    """R22, and what the controller noted of that replica is of a later registration (adr/0007)."""
    trust_disks(patch)


def f53_a_second_process_takes_the_registration(patch):
    """R22: by the session that the copied folder remembers."""
    trust_disks(patch)
    watch = Membership._watch_registration

    async def see_whether_there_is_any(self, store):
        with contextlib.suppress(RegistrationTakenError):
            await watch(self, store)

    patch.setattr(Membership, "_watch_registration", see_whether_there_is_any)


def f26_topic_ids_and_deletions_are_not_durable(patch):
    """R15: a power loss brings a deleted log back, and takes the id that says whose it was."""
    create, write = TopicIdFile.__init__, TopicIdFile.write

    def read(self, topic_id, *, clean):
        del clean
        create(self, topic_id, clean=True)

    def trust(self, *args):
        write(self, *args)
        self.durable, self.unsynced = True, False

    async def nothing(_self, _workers):
        return set()

    patch.setattr(TopicIdFile, "__init__", read)
    patch.setattr(TopicIdFile, "write", trust)
    patch.setattr(LeavingFolders, "make_durable", nothing)
    patch.setattr(control, "_is_unknown", lambda *_: False)


def f54_a_late_end_ends_the_next_transaction(patch):
    """Kafka 3.9 does so, too: before KIP-890 part 2 nothing says which transaction is meant."""
    patch.setattr(ProducerConnections, "check", lambda *_: None)


def f55_what_an_fsync_lost_is_believed_after_a_restart(patch):
    """The server reads it from the page cache and builds on it."""

    def cut(self, path, _data, found):
        file = self._files.open(path)
        file.truncate(found.end)
        file.fsync()
        file.close()
        self._files.fsync_dir(self.folder)

    patch.setattr(Database, "_make_durable", cut)


def f55_a_server_outlives_its_flush_task(patch):
    """It goes on accepting, and answers nobody."""
    patch.setattr(Database, "fail", lambda *_: None)


def trust_disks(patch):
    """Believe what a disk says of itself, as a copy does, too."""
    patch.setattr(SimFiles, "lock_id", lambda *_: "the same")
    patch.setattr(LifeNotes, "compare", lambda *_: "")


def r4_the_high_watermark_is_one_record_ahead(patch):
    """R4: seen when it moves, not only where a leader dies at that moment."""
    true = isr.high_watermark

    def ahead(leader_end_offset, *rest, **more):
        return min(true(leader_end_offset, *rest, **more) + 1, leader_end_offset)

    patch.setattr(isr, "high_watermark", ahead)


def f55_replies_do_not_wait_for_the_disk(patch):
    """The server acknowledges what a power loss takes back."""
    patch.setattr(LogWriter, "sync", lambda _: None)


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
         "producers": 1, "pause_s": 1.0, "crash_detection": True,
         "faults": ("power-loss-at-deletion",)}, ("client: churn-",), range(3, 10),
    ),
    f54_a_late_end_ends_the_next_transaction: (
        {**PLAIN, "hard": False, "seconds": 30.0, "mean_gap_s": 1.0, "producers": 1,
         "consumers": 0, "copiers": 3, "faults": ("late-end-txn",)},
        ("not exactly once: ", "wrong outcome: ", "read_committed: "), range(7, 19),
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


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_its_plan_passes_without_it(plant):
    settings, _, seeds = BUGS[plant]
    plan = Plan(seeds[0], **settings)
    verdict = run(plan)
    assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])
    assert verdict.faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], BUGS))
