"""Power fails at any moment (F5): a compacted log loses its end and nothing else.

The real log manager and cleaner on the simulator's disk, which loses any of the pages that were not
synced. Appended are a leader's batches and a follower's, which have gaps where its leader cleaned.
"""

import asyncio
import random
from typing import NamedTuple

import pytest

from ottla.log import checkpoints
from ottla.log.cleaner import LogCleaner
from ottla.log.manager import LogManager
from ottla.log.recovery import Loader
from ottla.model.ids import TopicPartition
from ottla.sim.files import SimDisk, SimFiles
from ottla.wire.records import Record, iter_batches, iter_records
from support.logs import (
    HandClock,
    file_world,
    folder_config,
    framed,
    load_logs,
    stop_logs,
    write_recovery_points,
)

TP = TopicPartition("t", 0)
POINTS = f"/disk/{checkpoints.RECOVERY_POINTS}"
CONFIG = folder_config(
    "/disk",
    log_segment_bytes=6000,
    log_index_interval_bytes=150,
    log_cleanup_policy="compact",
    log_cleaner_min_cleanable_ratio=0,
    log_retention_check_interval_ms=1,
    log_segment_delete_delay_ms=0,
)
TOPIC = CONFIG.topic_config({})
LOOP = asyncio.Runner()


class Held(NamedTuple):
    """A record that was appended."""

    offset: int
    epoch: int
    key: bytes
    value: bytes


class LossError(AssertionError):
    """The log lacks a record, though it has later ones."""


class Machine:
    """One broker with one compacted log, and what was appended to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk()
        self.disk.in_order = seed % 4 == 0
        self.clock = HandClock()
        self.held: list[Held] = []
        self.before: list[list[Held]] = []
        """what it held before its truncations: one that was not flushed may come undone"""
        self.epoch = 0
        self.number = 0
        self.cleanings = self.losses = 0
        self.start()

    def start(self) -> None:
        self.files = SimFiles(self.disk)
        self.world = file_world(self.clock, self.files, self.rng)
        self.manager = LogManager(self.world, CONFIG)
        load_logs(self.manager, lambda _: TOPIC)
        self.log = self.manager.get_or_create(TP, bytes(range(16)), is_new=True)
        self.cleaner = LogCleaner(self.world, CONFIG, self.manager)

    def step(self) -> None:
        rng, log = self.rng, self.log
        self.clock.now_ms += 100
        action = rng.random()
        if action < 0.45:
            self.append(log.log_end_offset)
        elif action < 0.70:
            self.append(log.log_end_offset + rng.choice((0, 1, 3, 40)))
        elif action < 0.76:
            everything = rng.random() < 0.3
            LOOP.run(self.manager.flush_dirty(self.world.workers, everything=everything))
        elif action < 0.80:
            write_recovery_points(self.manager)
        elif action < 0.84:
            self.epoch += 1
        elif action < 0.87:
            log.roll()
        elif action < 0.91:
            log.set_high_watermark(log.log_end_offset)
        elif action < 0.96:
            self.clean()
        elif log.log_end_offset > log.high_watermark:
            self.truncate(rng.randrange(log.high_watermark, log.log_end_offset))

    def append(self, offset: int) -> None:
        rng = self.rng
        records = []
        for i in range(rng.choice((1, 1, 3))):
            self.number += 1
            key = b"%d" % rng.randrange(15)
            value = b"%d" % self.number + b"." * rng.choice((60, 700, 1500))
            records.append(Record(-1, self.number, key, value))
            self.held.append(Held(offset + i, self.epoch, key, value))
        header = {"base_offset": offset, "leader_epoch": self.epoch}
        self.log.append_as_follower(framed(records, **header))

    def clean(self) -> None:
        """Clean what is flushed and replicated; perhaps no checkpoint of it becomes durable."""
        self.cleanings += LOOP.run(self.cleaner.clean_dirtiest())
        self.manager.periodic(self.clock.wall_ms())
        LOOP.run(self.manager.remove_due(self.world.workers))

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.before.append(self.held)
        self.held = [r for r in self.held if r.offset < self.log.log_end_offset]
        self.epoch += 1

    def power_off(self) -> None:
        flushed = 0
        if POINTS in self.disk.inodes:
            points = checkpoints.decode_offsets(bytes(self.disk.inodes[POINTS].data))
            flushed = points.get(TP, 0)
        flushed = min(flushed, self.log.recovery_point)
        self.files.kill()
        self.losses += self.disk.power_loss(self.rng) > 0
        self.start()
        self.compare(flushed)

    def stop_cleanly(self) -> None:
        stop_logs(self.manager)
        self.files.kill()
        self.start()
        self.compare(self.log.log_end_offset)

    def compare(self, flushed: int) -> None:
        """What is there is what was held up to some offset, without what was cleaned away."""
        log = self.log
        found = [
            Held(record.offset, header.partition_leader_epoch, record.key, record.value)
            for data in (segment.file.pread(segment.size, 0) for segment in log.segments)
            for at, header in iter_batches(data)
            for record in iter_records(data, at)
        ]
        fitting = [h for h in (self.held, *self.before) if self.fits(found, h)]
        if not fitting:
            raise LossError(f"{len(found)} records up to {log.log_end_offset} are no one's")
        end = log.log_end_offset
        assert not [r for r in fitting[0] if end <= r.offset < flushed], "it was flushed"
        self.held, self.before = [r for r in fitting[0] if r.offset < end], []
        # No replica truncates what was cleaned: it was replicated then.
        log.set_high_watermark(max(min(flushed, end), log.local.gaps.upto))

    def fits(self, found: list[Held], held: list[Held]) -> bool:
        known = [r for r in held if r.offset < self.log.log_end_offset]
        last = {r.key: r for r in known}
        return set(found) <= set(known) and {r.key: r for r in found} == last


def live(seed: int) -> Machine:
    machine = Machine(seed)
    for _ in range(5):
        for _ in range(machine.rng.randrange(5, 70)):
            machine.step()
        if machine.rng.random() < 0.8:
            machine.power_off()
        else:
            machine.stop_cleanly()
    return machine


@pytest.mark.parametrize("seed", range(60))
def test_only_the_end_of_a_compacted_log_is_lost(seed):
    live(seed)


def test_it_can_fail_and_it_cleans(monkeypatch):
    """Without the gap bound records are missing amid others; logs are cleaned with it, too."""
    machines = [live(seed) for seed in range(10)]
    assert sum(m.cleanings for m in machines) > 10
    assert sum(m.losses for m in machines) > 20
    monkeypatch.setattr(Loader, "_read_gap_bound", lambda *_: None)
    with pytest.raises(LossError):
        all(live(seed) for seed in range(60))
