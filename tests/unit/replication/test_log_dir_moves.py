"""Moves between log dirs over the real log manager: what is copied, cut, replaced, and survives.

The disk is the simulator's, so that the machine can die at every file operation.
"""

import asyncio
import contextlib
import errno
import random
import types

import pytest

from ottla.log import checkpoints
from ottla.log.log_dir import REPLACED_BY
from ottla.log.manager import LogManager
from ottla.log.results import NotInMemoryError
from ottla.log.validate import COORDINATOR
from ottla.model.errors import ErrorCode, OttlaError, StartupError, StorageError
from ottla.model.ids import TopicPartition
from ottla.replication.log_dir_moves import LogDirMoves
from ottla.replication.partition import Partition
from ottla.replication.throttle import ReplicationQuota
from ottla.sim.files import DiedError, SimFiles
from ottla.wire.records import ABORT, COMMIT, Record
from support.dying_disk import Disk
from support.logs import (
    HandClock,
    Inline,
    facts_of,
    file_world,
    folder_config,
    framed,
    load_logs,
    marker,
    write_high_watermarks,
    write_recovery_points,
)

pytestmark = pytest.mark.timeout(60)

TP = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
A, B, C = "/disk/a", "/disk/b", "/disk/c"
US = 1


class Machine:
    """A broker's log dirs, a partition that it leads, and the moves between them."""

    def __init__(self, dirs=(A, B), **settings):
        self.clock = HandClock()
        self.disk = Disk()
        self.config = folder_config(
            ",".join(dirs),
            log_segment_bytes=900,
            log_index_interval_bytes=150,
            log_segment_delete_delay_ms=0,
            log_retention_ms=-1,
            **settings,
        )
        self.sequence = {}
        self.epoch = 0
        self.start()
        self.log = self.manager.get_or_create(TP, TOPIC_ID, is_new=True)
        self.lead()

    def start(self):
        files = self.disk.files = SimFiles(self.disk)
        self.world = file_world(self.clock, files)
        self.manager = LogManager(self.world, self.config)
        load_logs(self.manager, lambda _: self.config.topic_config({}))
        self.log = self.manager.get(TP)
        self.host = types.SimpleNamespace(
            broker_id=US,
            lag_ms=10_000.0,
            alive=(US,),
            partitions={},
            offline={},
            exists=lambda *tp: tp[0] == "t",
        )
        self.quota = ReplicationQuota(11, 1000.0)
        self.moves = LogDirMoves(self.world, self.host, self.manager, self.quota, 0.001)
        if self.log is not None:
            self.lead()

    def lead(self):
        partition = self.partition = Partition(TP, self.host)
        partition.log, state = self.log, partition.state
        state.topic_id, state.leader_epoch = TOPIC_ID, self.epoch
        state.leader, state.is_leader = US, True
        self.host.partitions[TP] = partition

    def append(self, values=3, size=60, **header):
        records = [Record(timestamp=self.clock.wall_ms(), value=b"x" * size) for _ in range(values)]
        info = self.log.append_as_leader(
            framed(records, **header), self.epoch, self.clock.wall_ms()
        )
        self.log.set_high_watermark(self.log.log_end_offset)
        return info

    def fill(self, seed=0, batches=20):
        """Append plain, idempotent and transactional batches in several epochs."""
        rng = random.Random(seed)
        for _ in range(batches):
            if rng.random() < 0.2:
                self.epoch += 1
                self.partition.state.leader_epoch = self.epoch
            producer = rng.choice((-1, 1, 2))
            if producer < 0:
                self.append(rng.randrange(1, 4))
                continue
            base = self.sequence.get(producer, 0)
            self.sequence[producer] = base + 2
            facts = {"producer_id": producer, "producer_epoch": 0, "base_sequence": base}
            self.append(2, is_transactional=producer == 2, **facts)
            if producer == 2 and rng.random() < 0.7:
                end = marker(rng.choice((ABORT, COMMIT)), 2, self.clock.wall_ms())
                self.log.append_as_leader(end, self.epoch, 0, origin=COORDINATOR)
        self.log.set_high_watermark(self.log.log_end_offset)

    def settle(self):
        """Make everything durable, checkpoints and all."""
        asyncio.run(self.manager.flush_dirty(Inline(), everything=True))
        write_recovery_points(self.manager)
        write_high_watermarks(self.manager)

    @property
    def future(self):
        return self.manager.future(TP)

    def run(self, *what, until=None):
        """Do things inside a loop; then let moves go on to their end, or as far as is said."""

        async def main():
            for one in what:
                one()
            task = self.moves._task
            while task is not None and not task.done() and not (until and until()):
                await asyncio.sleep(0)
            if task is not None and task.done():
                task.result()
            await self.moves.close()

        asyncio.run(main())
        self.log = self.partition.log

    def move(self, path=B, until=None):
        self.run(lambda: self.moves.place(TP, path), until=until)

    def copied(self, bytes_):
        return lambda: self.moves.copied_bytes_total >= bytes_

    def go_on(self):
        """Go on as the next leader epoch has it."""
        self.epoch += 1
        self.partition.state.leader_epoch = self.epoch
        self.moves = LogDirMoves(self.world, self.host, self.manager, self.quota, 0.001)
        self.run(lambda: self.moves.resume(self.partition))


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr("ottla.replication.log_dir_moves.LEAST_BYTES", 700)
    monkeypatch.setattr("ottla.replication.log_dir_moves.MOST_BYTES", 700)
    return Machine()


def half_way(machine, path=B):
    """Begin a move and stop it where some, not all, is copied."""
    machine.move(path, until=machine.copied(1500))
    assert 0 < machine.future.log_end_offset < machine.log.log_end_offset


@pytest.mark.parametrize("seed", range(5))
def test_everything_is_copied(machine, seed):
    machine.fill(seed, 40)
    machine.log.maybe_increment_log_start_offset(seed * 5)
    machine.settle()
    before, old = facts_of(machine.log), machine.log
    assert old.parent_dir == A
    machine.move()
    assert machine.log is not old
    assert machine.log.dir == f"{B}/t-0"
    assert facts_of(machine.log) == before
    assert machine.log.high_watermark == before["range"][1]
    assert machine.log.recovery_point >= old.recovery_point
    assert old.failed is not None
    assert machine.manager.logs() == machine.manager.all_logs() == [machine.log]
    # What the files say is the same as what is in memory.
    machine.settle()
    machine.disk.files.kill()
    machine.start()
    assert facts_of(machine.log) == before


def test_guards_and_epochs_without_records_are_taken_over(machine):
    machine.fill(1)
    guard = machine.log.producers.begin_verification(9, 0, 0, machine.clock.wall_ms())
    machine.log.assign_epoch_start(machine.epoch + 3, machine.log.log_end_offset)
    machine.move()
    assert machine.log.epochs.latest == machine.epoch + 3
    batch = framed(
        [Record(timestamp=1, value=b"v")],
        producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True,
    )  # fmt: skip
    machine.log.append_as_leader(batch, machine.epoch + 3, 0, guard=guard)


def test_an_empty_replica_moves(machine):
    machine.move()
    assert machine.log.dir == f"{B}/t-0"
    machine.append()
    assert machine.log.log_end_offset == 3


def test_records_go_on_coming_meanwhile(machine):
    machine.fill(2, 40)
    added = []

    def load():
        if len(added) < 50:
            machine.log = machine.partition.log
            added.append(machine.append())
        return False

    machine.move(until=load)
    assert machine.log.parent_dir == B
    records = facts_of(machine.log)["records"]
    assert [r[0] for r in records] == list(range(added[-1].last_offset + 1))


@pytest.mark.parametrize("back_to", [0, 5, 15])
def test_the_future_log_is_cut_where_the_current_one_was(machine, back_to):
    machine.fill(4, 60)
    half_way(machine)
    came = machine.future.log_end_offset
    assert came > 15
    machine.log.truncate_to(back_to)
    machine.epoch += 1
    machine.partition.state.leader_epoch = machine.epoch
    for _ in range(30):
        machine.append(values=2, size=77)
    assert machine.log.log_end_offset > came, "by its end alone nobody could tell"
    expected = facts_of(machine.log)["records"]
    machine.go_on()
    assert machine.log.parent_dir == B
    assert facts_of(machine.log)["records"] == expected


def test_a_truncation_amid_the_copying_is_noticed_at_once(machine):
    machine.fill(4, 60)
    done = []

    def cut():
        if not done and machine.moves.copied_bytes_total > 3000:
            done.append(machine.log.log_end_offset)
            machine.log.truncate_to(10)
            for _ in range(40):
                machine.append(values=2, size=77)
            assert machine.log.log_end_offset > machine.future.log_end_offset
        return False

    machine.epoch += 1
    machine.partition.state.leader_epoch = machine.epoch
    machine.log.assign_epoch_start(machine.epoch, machine.log.log_end_offset)
    machine.move(until=cut)
    assert done
    assert machine.log.parent_dir == B
    assert [r[0] for r in facts_of(machine.log)["records"]] == list(
        range(machine.log.log_end_offset)
    )
    assert {len(r[3]) for r in facts_of(machine.log)["records"] if r[0] >= 10} == {77}


def test_a_current_log_that_starts_over_takes_the_future_log_along(machine):
    machine.fill(5, 40)
    half_way(machine)
    machine.log.truncate_fully_and_start_at(1000)
    machine.append()
    machine.go_on()
    assert facts_of(machine.log)["range"] == (1000, 1003)
    assert machine.log.parent_dir == B


def test_records_deleted_meanwhile_do_not_come_back(machine):
    machine.fill(6, 60)
    half_way(machine)
    start = machine.log.log_end_offset - 4
    machine.partition.delete_records_before(start)
    assert machine.partition.low_watermark() == 0, "the future log has them yet"
    machine.go_on()
    assert machine.log.log_start_offset == start
    assert facts_of(machine.log)["range"][0] == start
    assert machine.partition.low_watermark() == start


def test_gaps_of_compaction_are_copied_as_they_are(machine):
    machine.fill(7, 10)
    batch = framed([Record(timestamp=1, value=b"far")])
    batch[0:8] = (10_000).to_bytes(8, "big")
    machine.log.append_as_follower(batch)
    machine.log.set_high_watermark(10_001)
    machine.move()
    assert machine.log.log_end_offset == 10_001
    assert facts_of(machine.log)["records"][-1][0] == 10_000


def test_the_throttle_counts_and_holds(machine):
    machine.fill(8, 60)
    machine.quota.bound = 1000
    machine.move(until=lambda: machine.quota.exceeded(machine.clock.now_ms))
    assert machine.quota.throttled_bytes_total <= 1000 + 700
    assert machine.future is not None
    machine.clock.now_ms += 60_000
    machine.quota.bound = float("inf")
    machine.go_on()
    assert machine.log.parent_dir == B


def test_no_replacement_before_the_copy_is_durable(machine):
    machine.fill(9, 40)
    machine.settle()
    assert machine.log.recovery_point == machine.log.log_end_offset
    end = machine.log.log_end_offset
    machine.move()
    machine.disk.files.kill()
    machine.disk.power_loss(random.Random(3))
    machine.start()
    assert machine.log.log_end_offset == end


def test_a_replica_that_is_about_to_lead_keeps_its_log(machine):
    machine.fill(1)
    machine.partition.state.is_leader = False  # await_leadership: others are asked for what it lost
    rounds = []
    machine.move(until=lambda: rounds.append(1) or len(rounds) > 50)
    assert machine.log.parent_dir == A
    assert machine.moves.copied_bytes_total == 0
    machine.partition.state.is_leader = True
    machine.go_on()
    assert machine.log.parent_dir == B


def test_a_damaged_batch_delays_and_damages_nothing(machine):
    machine.fill(2, 40)
    machine.settle()
    machine.disk.flip_bit(machine.log.segments[1].path(".log"), 80)
    machine.log.local.tail.clear()
    rounds = []
    machine.move(until=lambda: rounds.append(1) or len(rounds) > 500)
    assert machine.log.parent_dir == A
    assert machine.future.log_end_offset <= machine.log.segments[2].base_offset
    assert machine.log.failed is None


@pytest.mark.parametrize("nth", range(12))
def test_descriptors_that_run_out_delay_a_move_or_refuse_it_without_a_trace(
    machine, monkeypatch, nth
):
    machine.fill(2, 40)
    machine.settle()
    openings, opened = [], machine.disk.files.open

    def open_or_fail(path, **how):
        openings.append(path)
        if len(openings) == nth + 1:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return opened(path, **how)

    def time_passes():
        machine.clock.now_ms += 1

    monkeypatch.setattr(machine.disk.files, "open", open_or_fail)
    try:
        machine.move(until=time_passes)
    except OttlaError:
        assert machine.future is None
        assert not [path for path in machine.disk.folders if path.endswith("-future")]
        machine.move(until=time_passes)
    assert len(openings) > nth
    assert machine.log.parent_dir == B
    assert machine.log.topic_id == machine.partition.state.topic_id


def test_what_is_refused(machine):
    def code_of(tp, path):
        with pytest.raises(OttlaError) as caught:
            machine.moves.place(tp, path)
        return caught.value.code

    unknown = TopicPartition("u", 0)
    later = TopicPartition("t", 1)
    assert code_of(TopicPartition("x" * 215, 0), B) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code_of(TP, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert code_of(unknown, B) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(later, A) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert machine.manager.get_or_create(later, is_new=True).parent_dir == A
    machine.host.offline[TP] = None
    assert code_of(TP, B) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_future_log_of_a_topic_that_is_gone_is_dropped(machine):
    machine.fill(1, 40)
    half_way(machine)
    machine.manager._logs.pop(TP)
    machine.log.abandon()
    machine.manager.prefer(TP, A)
    while not machine.disk.files.remove_some(f"{A}/t-0"):
        pass
    machine.log = machine.manager.get_or_create(TP, bytes(16 * [7]), is_new=True)
    machine.lead()
    machine.partition.state.topic_id = bytes(16 * [7])
    machine.run(lambda: machine.moves.resume(machine.partition))
    assert machine.future is None
    assert machine.log.log_end_offset == 0


def test_a_future_log_in_the_dir_of_an_emptied_one_is_dropped(machine):
    machine.fill(1, 40)
    half_way(machine)
    machine.settle()
    machine.disk.files.kill()
    machine.disk.wipe(A)
    machine.disk.folders.add(A)
    machine.start()
    assert machine.log is None
    machine.manager.prefer(TP, B)
    machine.log = machine.manager.get_or_create(TP, TOPIC_ID)
    machine.lead()
    machine.run(lambda: machine.moves.resume(machine.partition))
    assert machine.future is None
    assert machine.log.dir == f"{B}/t-0"


def moved_away(machine):
    """Die amid a move; return when the partition has other replicas, without a request about it."""
    machine.fill(1, 40)
    half_way(machine)
    machine.settle()
    before = facts_of(machine.log)
    machine.disk.files.kill()
    machine.start()
    machine.host.partitions.clear()
    machine.run()
    return before


def test_logs_of_a_partition_that_moved_away_meanwhile_rest_where_they_are(machine):
    """R14, seed 9300081: Kafka keeps both logs of such a replica, too, and copies nothing."""
    before = moved_away(machine)
    assert facts_of(machine.manager.get(TP)) == before
    assert 0 < machine.future.log_end_offset < before["range"][1]
    assert machine.moves.statistics()["moving"] == 0
    assert machine.moves.copied_bytes_total == 0


def test_a_partition_that_comes_back_goes_on_with_its_move(machine):
    """R14, seed 9300081: as Kafka's maybeAddLogDirFetchers does."""
    before = moved_away(machine)
    machine.lead()
    machine.go_on()
    assert machine.log.parent_dir == B
    assert facts_of(machine.log)["records"] == before["records"]
    assert machine.future is None


def test_a_late_stop_replica_deletes_the_future_log_as_well(machine):
    """R15, seed 9300081."""
    moved_away(machine)
    machine.manager.delete_stray_folder(TP)
    assert machine.manager.get(TP) is machine.future is None
    left = machine.disk.children(A) + machine.disk.children(B)
    assert [n for n in left if n.startswith("t-0") and not n.endswith("-delete")] == []


def test_a_death_amid_a_deletion_leaves_no_future_log_alone(monkeypatch):
    """R15: the deletion of a replica that a reassignment removed is not requested again."""
    monkeypatch.setattr("ottla.replication.log_dir_moves.LEAST_BYTES", 700)
    left, operation, died = set(), 0, True
    while died:
        operation += 1
        machine = Machine()
        machine.fill(1, 40)
        half_way(machine)
        machine.settle()
        machine.disk.operations, machine.disk.last = 0, operation
        try:
            machine.manager.delete(TP)
        except DiedError:
            pass
        else:
            died = False
        machine.disk.last = None
        machine.disk.files.kill()
        machine.start()
        left.add((machine.log is not None, machine.future is not None))
    assert left == {(True, True), (True, False), (False, False)}


def test_the_target_fails_at_the_replacement(machine):
    machine.fill(3, 30)
    before = facts_of(machine.log)
    promote = machine.manager.promote_future

    def fail(tp):
        machine.disk.fail(B, ("fsync",))
        return promote(tp)

    machine.manager.promote_future = fail
    machine.move()
    assert machine.manager.offline_dirs == [B]
    assert machine.log.parent_dir == A
    assert machine.partition.log is machine.log
    assert facts_of(machine.log) == before
    assert not machine.disk.files.exists(f"{A}/t-0/{REPLACED_BY}"), "its log goes on"


def test_two_current_logs_without_a_word_keep_the_broker_down(machine):
    machine.fill(3, 30)
    machine.settle()
    disk = machine.disk
    machine.move()
    disk.files.kill()
    disk.add_folder(f"{A}/t-0")
    with pytest.raises(StartupError, match="in two log dirs"):
        machine.start()


def test_two_future_logs_keep_the_broker_down(machine):
    machine.fill(3, 30)
    half_way(machine)
    machine.disk.files.kill()
    machine.disk.add_folder(f"{A}/t-0.{'0' * 32}-future")
    with pytest.raises(StartupError, match="in two log dirs"):
        machine.start()


def test_no_future_log_while_a_dir_is_offline():
    machine = Machine((A, B, C))
    machine.disk.fail(C, ("write",))
    with pytest.raises(StorageError):
        machine.manager.create_future(TP, C)
    assert machine.manager.offline_dirs == [C]
    with pytest.raises(StorageError, match="may lie in an offline"):
        machine.manager.create_future(TP, B)


def dies(machine, operation, rng):
    """Move, but die before a file operation; return whether it came to that. Then start again."""
    machine.disk.operations, machine.disk.last = 0, operation
    try:
        machine.move()
    except DiedError:
        died = True
    else:
        died = False
    machine.disk.last = None
    machine.disk.files.kill()
    if rng.random() < 0.5:
        machine.disk.power_loss(rng)
    for _ in range(rng.randrange(2)):  # and perhaps once more on its way up
        machine.disk.operations, machine.disk.last = 0, rng.randrange(1, 25)
        with contextlib.suppress(DiedError):
            machine.start()
        machine.disk.files.kill()
    machine.disk.last = None
    machine.start()
    return died


def test_death_at_every_file_operation_of_a_move(monkeypatch):
    monkeypatch.setattr("ottla.replication.log_dir_moves.LEAST_BYTES", 2500)
    operation, resumed, done = 0, 0, 0
    died = True
    while died:
        operation += 1
        machine = Machine()
        machine.fill(1, 9)
        machine.log.maybe_increment_log_start_offset(4)
        machine.settle()
        before = facts_of(machine.log)
        died = dies(machine, operation, random.Random(operation))
        assert facts_of(machine.log) == before
        if machine.log.parent_dir == B:
            done += 1
        elif machine.future is not None:
            resumed += 1
            machine.go_on()
        else:
            machine.move()
        assert machine.log.parent_dir == B
        assert facts_of(machine.log)["records"] == before["records"]
        assert [n for n in machine.disk.children(B) if n.endswith("-future")] == []
        assert f"{A}/t-0" not in machine.disk.folders
        machine.settle()
        points = checkpoints.decode_offsets(
            machine.disk.files.read_bytes(f"{B}/{checkpoints.RECOVERY_POINTS}")
        )
        assert points == {TP: before["range"][1]}
    assert operation > 40, "it must be able to die"
    assert resumed > 10
    assert done > 3


def test_what_only_the_disk_has_is_read_by_a_worker(machine):
    machine.fill(2, 30)
    before, read, brought = facts_of(machine.log), machine.log.read, []

    def not_in_memory(offset, max_bytes, upto, min_one=True, now=False):
        if now:
            raise NotInMemoryError(
                types.SimpleNamespace(prefetch=lambda *a: brought.append(a)), 0, 7
            )
        return read(offset, max_bytes, upto, min_one)

    machine.log.read = not_in_memory
    machine.move()
    assert machine.log.parent_dir == B
    assert facts_of(machine.log) == before
    assert len(brought) > 3


def test_a_move_that_begins_while_the_last_checkpoints_are_written_is_made(machine):
    machine.fill()
    machine.settle()
    write, back = machine.manager.write_recovery_points, []

    async def writing(workers):
        if not back:
            back.append(machine.partition.log.parent_dir)
            machine.moves.place(TP, A)
            await asyncio.sleep(0)
        await write(workers)

    machine.manager.write_recovery_points = writing
    before = facts_of(machine.log)["records"]
    machine.move(B)
    assert back == [B]
    assert machine.log.parent_dir == A
    assert machine.manager.future(TP) is None
    assert facts_of(machine.log)["records"] == before
