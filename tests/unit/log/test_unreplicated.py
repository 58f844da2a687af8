"""Transactions whose markers are above the high watermark, over restarts and truncations."""

import pytest

from ottla.log import recovery, transactions
from ottla.log.validate import COORDINATOR
from ottla.model.ids import TopicPartition
from ottla.wire.records import ABORT, COMMIT
from support.logs import load_logs, stop_logs, write_high_watermarks, write_recovery_points


def end(kit, log, producer_id, kind=COMMIT):
    return log.append_as_leader(kit.marker(producer_id, kind=kind), 0, 0, origin=COORDINATOR)


def begun(kit, **settings):
    """Return a log with a transaction in 2..4 and its marker, not replicated yet, at 5."""
    log = kit.open(**settings)
    kit.fill(log, 2)
    kit.send(log, sequence=0, count=3, txn=True)
    end(kit, log, 1)
    log.set_high_watermark(5)
    assert (log.last_stable_offset, log.log_end_offset) == (2, 6)
    return log


def noted(kit):
    return (kit.folder / transactions.UNREPLICATED_FILE).exists()


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_a_marker_that_is_not_replicated_is_waited_for_after_a_clean_stop(kit, kind):
    log = kit.open()
    kit.send(log, sequence=0, count=3, txn=True)
    end(kit, log, 1, kind)
    log.set_high_watermark(3)
    log = kit.reopen(log, clean=True, high_watermark=3)
    log.set_high_watermark(3)
    assert log.last_stable_offset == 0
    log.set_high_watermark(4)
    assert log.last_stable_offset == 4


def test_only_while_there_is_such_a_transaction_there_is_a_file_of_it(kit):
    log = kit.reopen(begun(kit), clean=True, high_watermark=5)
    log.set_high_watermark(6)
    assert noted(kit)
    log = kit.reopen(log, clean=True, high_watermark=6)
    log.set_high_watermark(6)
    assert not noted(kit)
    kit.reopen(log, clean=True, high_watermark=6)
    assert not noted(kit)


def test_a_start_that_ended_early_leaves_the_file_for_the_next(kit):
    kit.reopen(begun(kit), clean=True, high_watermark=5).abandon()
    log = kit.open(clean=True, recovery_point=6, high_watermark=5)
    log.set_high_watermark(5)
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("why", ["longer", "truncated", "unclean", "garbage"])
def test_a_file_that_is_not_of_this_log_as_it_is_counts_for_nothing(kit, why):
    log = kit.open()
    kit.fill(log, 6)
    log.close()
    (kit.folder / transactions.UNREPLICATED_FILE).write_bytes(
        {
            "longer": transactions.encode_unreplicated(5, {2: 4}),
            "truncated": transactions.encode_unreplicated(7, {2: 5}),
            "unclean": transactions.encode_unreplicated(6, {2: 5}),
            "garbage": b"log_end_offset=6\ndecided=2\ndecided=2..x\ndecided=5..2\n\xff=1..2",
        }[why]
    )
    log = kit.open(clean=why != "unclean", recovery_point=6, high_watermark=5)
    log.set_high_watermark(5)
    assert log.last_stable_offset == 5
    kit.reopen(log, clean=True)
    assert not noted(kit)


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_roll_too(kit, clean):
    log = begun(kit)
    log.roll()
    log.flush()
    kit.fill(log, 1)
    log = kit.reopen(log, clean=clean, recovery_point=7 if clean else 6, high_watermark=5)
    log.set_high_watermark(5)
    assert log.last_stable_offset == 2
    log.set_high_watermark(6)
    assert log.last_stable_offset == 6


def test_a_crash_after_a_checkpoint_that_knew_less_reads_from_there(kit):
    log = begun(kit)
    log.roll()
    log.set_high_watermark(6)
    kit.fill(log, 1)
    log.roll()
    log.flush()
    log = kit.reopen(log, recovery_point=7, high_watermark=4)
    log.set_high_watermark(4)
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("less", [0, 1])
def test_a_crash_far_behind_the_high_watermark_does_not_read_everything(kit, monkeypatch, less):
    log = kit.open()
    kit.fill(log, 1)
    log.roll()
    kit.send(log, sequence=0, txn=True)
    end(kit, log, 1)
    log.roll()
    log.flush()
    monkeypatch.setattr(recovery, "_MOST_REPLAYED", log.segments[1].size - less)
    log = kit.reopen(log, recovery_point=3, high_watermark=2)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 1 + less, "as in Kafka, where that is too much"


def test_what_a_later_snapshot_knows_stands(kit):
    """Of producer 9 the batches no longer tell; producer 1's transaction has ended."""
    kit.clock.wall = 1000  # the time of the batches: nobody has expired
    log = kit.open()
    kit.send(log, sequence=0, txn=True)
    log.roll()
    kit.send(log, sequence=0, producer_id=9)
    end(kit, log, 1)
    log.roll()
    log.flush()
    log.abandon()
    (kit.folder / f"{1:020d}.log").write_bytes(b"")  # as compaction leaves nothing of it
    log = kit.open(recovery_point=3, high_watermark=1)
    assert set(log.producers.producers) == {1, 9}
    assert log.producers.first_unstable_offset is None


def test_damage_between_the_snapshots_is_noted_and_hides_no_producer(kit):
    kit.clock.wall = 1000  # the time of the batches: nobody has expired
    log = kit.open()
    kit.send(log, sequence=0, txn=True)
    first = log.segments[0].size
    kit.send(log, sequence=1, txn=True)
    kit.send(log, sequence=0, producer_id=2)
    log.roll()
    log.flush()
    path = kit.folder / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[first + 16] = 7  # the magic byte
    path.write_bytes(data)
    log = kit.reopen(log, recovery_point=3, high_watermark=1)
    assert set(log.producers.producers) == {1, 2}
    assert log.damaged is not None


def test_truncation_above_the_high_watermark_forgets_only_what_it_cut(kit):
    log = begun(kit)
    log.roll()
    kit.send(log, sequence=0, producer_id=2, txn=True)
    end(kit, log, 2)
    assert log.truncate_to(7)
    assert log.last_stable_offset == 2
    log.set_high_watermark(6)
    assert log.last_stable_offset == 6
    log.set_high_watermark(7)
    assert log.last_stable_offset == 6, "the second marker was cut"


def test_a_transaction_that_was_cut_holds_nothing_back(kit):
    log = kit.open()
    kit.send(log, sequence=0, count=3, txn=True)
    end(kit, log, 1)
    assert log.truncate_to(0)
    kit.fill(log, 4)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("how", ["clean", "killed", "given up", "killed before a checkpoint"])
def test_a_broker_that_starts_again(kit, how):
    def started():
        manager = kit.manager()
        load_logs(manager, lambda _: kit.config())
        return manager

    manager = started()
    other = manager.get_or_create(TopicPartition("o", 0), bytes(15) + b"2", is_new=True)
    if how == "killed before a checkpoint":
        write_high_watermarks(manager)
    log = manager.get_or_create(kit.tp, bytes(15) + b"1", is_new=True)
    kit.send(log, sequence=0, count=3, txn=True)
    end(kit, log, 1)
    log.set_high_watermark(2)
    log.roll()
    log.flush()
    kit.fill(other, 1)
    if how == "killed before a checkpoint":
        write_recovery_points(manager)
        manager.abandon()
    elif how == "killed":
        write_recovery_points(manager)
        write_high_watermarks(manager)
        manager.abandon()
    else:
        stop_logs(manager)
    if how == "given up":
        started().abort_startup()
    log = started().get(kit.tp)
    log.set_high_watermark(3)
    assert log.last_stable_offset == 0
    log.set_high_watermark(4)
    assert log.last_stable_offset == 4
