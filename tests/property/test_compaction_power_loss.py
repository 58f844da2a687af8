"""The machine dies at every file operation of a cleaning; no key's last value is lost.

The real log manager and cleaner on the simulator's disk. What a read_committed consumer makes of
the log (the last value of each key) is the same before, after every death, and after cleaning on.
"""

import asyncio
import random

import pytest

from ottla.log import gap_bound
from ottla.log.cleaner import LogCleaner
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.producer_snapshots import replaying
from ottla.log.producers import Producers
from ottla.log.validate import COORDINATOR
from ottla.model.ids import TopicPartition
from ottla.model.steps import drain
from ottla.sim.files import DiedError, Inode, SimFiles
from ottla.wire.records import ABORT, COMMIT, Record
from support.dying_disk import Disk
from support.logs import (
    HandClock,
    Inline,
    file_world,
    folder_config,
    framed,
    load_logs,
    marker,
    table_of,
    write_high_watermarks,
    write_recovery_points,
)

TP = TopicPartition("t", 0)
CONFIG = folder_config(
    "/disk",
    log_segment_bytes=900,
    log_index_interval_bytes=150,
    log_cleanup_policy="compact",
    log_cleaner_min_cleanable_ratio=0,
    log_cleaner_delete_retention_ms=1000,
    log_retention_check_interval_ms=1,
    log_segment_delete_delay_ms=0,
)
TOPIC = CONFIG.topic_config({})


LOOP = asyncio.Runner()
"""One loop for all: to make one for each of thousands of calls takes longer than the calls."""


class Machine:
    """One log with keys, tombstones, idempotent producers and transactions, by seed."""

    def __init__(self, seed: int, now_ms: float = 0.0, files: dict[str, bytes] | None = None):
        """`files`: what is on the disk already."""
        self.rng = random.Random(seed)
        self.disk = Disk()
        self.clock = HandClock()
        self.clock.now_ms = now_ms
        self.sequence: dict[int, int] = {}
        for path, data in (files or {}).items():
            inode = self.disk.inodes[path] = Inode()
            inode.data, inode.durable = bytearray(data), bytearray(data)
        self.disk.folders |= {"/disk", "/disk/t-0"} if files else set()
        self.start()

    def start(self) -> None:
        files = SimFiles(self.disk)
        self.disk.files = files
        self.disk.operations, self.disk.last = 0, None
        world = file_world(self.clock, files)
        self.manager = LogManager(world, CONFIG)
        load_logs(self.manager, lambda _: TOPIC)
        LOOP.run(self.manager.remove_due(Inline()))
        self.log = self.manager.get_or_create(TP, is_new=True)
        self.cleaner = LogCleaner(world, CONFIG, self.manager)

    def fill(self, steps: int) -> None:
        rng = self.rng
        open_transactions: set[int] = set()
        for _ in range(steps):
            self.clock.now_ms += 1000 * rng.random()
            kind = rng.random()
            producer_id = -1 if kind < 0.4 else rng.choice((1, 2)) if kind < 0.6 else 5
            if kind > 0.9:
                producer_id = 6
            transactional = producer_id in (5, 6)
            self.append(producer_id, transactional)
            if transactional:
                open_transactions.add(producer_id)
                if rng.random() < 0.5:
                    self.end(producer_id, rng.choice((COMMIT, ABORT)))
                    open_transactions.discard(producer_id)
            if rng.random() < 0.03:
                self.log.roll()
        for producer_id in sorted(open_transactions):
            self.end(producer_id, rng.choice((COMMIT, ABORT)))
        self.log.roll()
        self.append(-1, transactional=False)
        self.settle()

    def settle(self) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        LOOP.run(self.manager.flush_dirty(Inline(), everything=True))
        write_recovery_points(self.manager)
        write_high_watermarks(self.manager)

    def append(self, producer_id: int, transactional: bool) -> None:
        rng = self.rng
        records = [
            Record(
                timestamp=self.clock.wall_ms() + rng.randrange(5),
                key=b"key-%d" % rng.randrange(12) + b"." * rng.choice((0, 30)),
                value=None if rng.random() < 0.15 else b"%d" % rng.getrandbits(60),
            )
            for _ in range(rng.randrange(1, 5))
        ]
        header = {}
        if producer_id >= 0:
            sequence = self.sequence.get(producer_id, 0)
            self.sequence[producer_id] = sequence + len(records)
            header = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": transactional,
            }
        batch = framed(records, codec=rng.choice((0, 0, 0, 1, 2, 3, 4)), **header)
        self.log.append_as_leader(batch, 0, self.clock.wall_ms())

    def end(self, producer_id: int, kind: int) -> None:
        batch = marker(kind, producer_id, self.clock.wall_ms())
        self.log.append_as_leader(batch, 0, 0, origin=COORDINATOR)

    def clean(self) -> None:
        while LOOP.run(self.cleaner.clean_dirtiest()):
            pass
        self.manager.periodic(self.clock.wall_ms())
        LOOP.run(self.manager.remove_due(Inline()))

    def clean_and_die(self, operation: int) -> bool:
        """Clean, but die before the given file operation; tell whether it came to that."""
        self.disk.operations, self.disk.last = 0, operation
        try:
            self.clean()
        except DiedError:
            self.power_off()
            return True
        finally:
            self.disk.last = None
        return False

    def power_off(self) -> None:
        """Lose what was not synced, start again, and perhaps die once more on the way up."""
        for _ in range(2):
            assert self.disk.files is not None
            self.disk.files.kill()
            if self.rng.random() < 0.6:
                self.disk.power_loss(self.rng)
            if self.rng.random() < 0.5:
                self.disk.operations, self.disk.last = 0, self.rng.randrange(1, 25)
            try:
                files_before = self.disk.last
                self.start_dying(files_before)
            except DiedError:
                continue
            return
        self.disk.files.kill()
        self.start()

    def start_dying(self, at: int | None) -> None:
        files = SimFiles(self.disk)
        self.disk.files = files
        self.disk.operations, self.disk.last = 0, at
        if at is not None:
            world = file_world(self.clock, files)
            load_logs(LogManager(world, CONFIG), lambda _: TOPIC)
            files.kill()
        self.start()


def sequences(log: Log) -> dict[int, int]:
    """Return each producer's last sequence as the batches alone tell it."""
    producers = Producers(1 << 60)
    drain(replaying(producers, log.segments, log.log_start_offset, log.log_end_offset))
    return {p.id: p.last_sequence for p in producers.producers.values() if p.batches}


# Each seed takes four seconds; the last two are run with `pytest -m alone`.
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.alone) for seed in (2, 3))]
)
def test_death_at_every_file_operation_of_a_cleaning(seed):
    begun = Machine(seed)
    begun.fill(22)
    known, end, remembered = table_of(begun.log), begun.log.log_end_offset, sequences(begun.log)
    size = begun.log.size
    begun.disk.commit()
    inodes = {path: bytes(inode.data) for path, inode in begun.disk.inodes.items()}
    operation = 0
    died = True
    while died:
        operation += 1
        machine = Machine(operation, begun.clock.now_ms, inodes)
        machine.settle()
        died = machine.clean_and_die(operation)
        names = set(machine.disk.children("/disk/t-0")) - {gap_bound.NAME}
        assert not [n for n in names if n.endswith((".cleaned", ".swap", ".deleted"))], names
        for _ in range(2):
            assert machine.log.log_end_offset == end
            assert table_of(machine.log) == known
            assert sequences(machine.log) == remembered
            if not died:
                break
            machine.clean()
        assert machine.log.size < size, "something went"
    assert operation > 15, "it must be able to die"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(12))
def test_cleaning_again_and_again_with_deaths_between(seed):
    machine = Machine(seed)
    for _ in range(6):
        machine.fill(machine.rng.randrange(3, 25))
        known, end = table_of(machine.log), machine.log.log_end_offset
        remembered = sequences(machine.log)
        machine.clean_and_die(machine.rng.randrange(1, 120))
        assert machine.log.log_end_offset == end
        assert table_of(machine.log) == known
        assert sequences(machine.log) == remembered
        machine.clock.now_ms += 2000
