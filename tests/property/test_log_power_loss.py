"""Power fails at any moment (F5, F19): what was flushed is there, the rest is a prefix.

The real log manager on the simulator's disk, which loses, keeps or tears what was not synced.
"""

import asyncio
import random

import pytest

from ottla.log import checkpoints
from ottla.log.manager import LogManager
from ottla.model.ids import TopicPartition
from ottla.sim.files import SimDisk, SimFiles
from ottla.wire.records import Record, iter_records
from support.logs import (
    HandClock,
    batches_of,
    file_world,
    folder_config,
    framed,
    load_logs,
    stop_logs,
    write_recovery_points,
)

TPS = [TopicPartition("t", i) for i in range(3)]
POINTS = f"/disk/{checkpoints.RECOVERY_POINTS}"
CONFIG = folder_config(
    "/disk", log_segment_bytes=700, log_index_interval_bytes=150, log_retention_ms=-1
)


class Machine:
    """One broker's logs over several lives, and what each log must hold."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk()
        self.clock = HandClock()
        self.held: dict[TopicPartition, list[tuple[int, int, bytes]]] = {tp: [] for tp in TPS}
        """(offset, epoch, value) of each batch, one record each"""
        self.before: dict[TopicPartition, list[list[tuple[int, int, bytes]]]] = {
            tp: [] for tp in TPS
        }
        """what each log held before its truncations: one that was not flushed may come undone"""
        self.epoch = 0
        self.sequence = dict.fromkeys(TPS, 0)
        self.number = 0
        self.start()

    def start(self) -> None:
        self.files = SimFiles(self.disk)
        self.world = file_world(self.clock, self.files, self.rng)
        self.manager = LogManager(self.world, CONFIG)
        load_logs(self.manager, lambda _: CONFIG.topic_config({}))
        for tp in TPS:
            self.manager.get_or_create(tp, bytes(range(16)), is_new=True)

    def step(self) -> None:
        tp = self.rng.choice(TPS)
        log = self.manager.get(tp)
        action = self.rng.random()
        self.clock.now_ms += 100
        if action < 0.70:
            self.append(tp)
        elif action < 0.78:
            everything = self.rng.random() < 0.5
            asyncio.run(self.manager.flush_dirty(self.world.workers, everything=everything))
        elif action < 0.86:
            write_recovery_points(self.manager)
        elif action < 0.92:
            self.epoch += 1
        elif action < 0.96:
            log.roll()
        elif log.log_end_offset:
            offset = self.rng.randrange(max(0, log.log_end_offset - 5), log.log_end_offset)
            log.truncate_to(offset)
            self.before[tp].append(self.held[tp])
            self.held[tp] = [b for b in self.held[tp] if b[0] < offset]
            self.epoch += 1
            self.producer_of(tp)

    def producer_of(self, tp) -> None:
        """Let the producer go on where the log says it stopped, as after an answer."""
        self.sequence[tp] = len(self.held[tp])

    def append(self, tp) -> None:
        self.number += 1
        value = b"%d" % self.number
        batch = framed(
            [Record(timestamp=self.number, value=value)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=self.sequence[tp],
        )
        log = self.manager.get(tp)
        info = log.append_as_leader(batch, self.epoch, 0)
        assert not info.duplicate
        self.held[tp].append((info.first_offset, self.epoch, value))
        self.sequence[tp] += 1

    def power_off(self) -> None:
        flushed = {}
        if POINTS in self.disk.inodes:
            flushed = checkpoints.decode_offsets(bytes(self.disk.inodes[POINTS].data))
        for tp in TPS:
            log = self.manager.get(tp)
            if log.flush_state.recovery_point_pending:  # truncated, and nothing appended there yet
                flushed[tp] = min(flushed.get(tp, 0), log.recovery_point)
        self.files.kill()
        self.disk.power_loss(self.rng)
        self.start()
        for tp in TPS:
            self.compare(tp, flushed.get(tp, 0))

    def stop_cleanly(self) -> None:
        stop_logs(self.manager)
        self.files.kill()
        self.disk.power_loss(self.rng)  # after a clean stop there is nothing to lose
        self.start()
        assert self.manager.recovered_logs == 0
        for tp in TPS:
            self.compare(tp, len(self.held[tp]))

    def compare(self, tp, flushed: int) -> None:
        log = self.manager.get(tp)
        assert log.log_start_offset == 0
        found = [
            (header.base_offset, header.partition_leader_epoch, next(iter_records(data, at)).value)
            for data, at, header in batches_of(log)
        ]
        held = self.held[tp]
        histories = [held, *self.before[tp]]
        assert any(found == h[: len(found)] for h in histories), "a prefix, nothing else"
        self.before[tp] = []
        assert len(found) >= flushed, "what was flushed is there"
        self.held[tp] = found
        epochs: dict[int, int] = {}
        for base, epoch, _ in found:
            epochs.setdefault(epoch, base)
        assert log.epochs.entries == sorted(epochs.items())
        self.producer_of(tp)
        if found:
            repeat = framed(
                [Record(timestamp=1, value=b"again")],
                producer_id=7,
                producer_epoch=0,
                base_sequence=len(found) - 1,
            )
            info = log.append_as_leader(repeat, self.epoch, 0)
            assert info.duplicate, "the producer's last batch is remembered"
            assert info.first_offset == len(found) - 1


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_at_any_moment(seed):
    machine = Machine(seed)
    for _ in range(6):
        for _ in range(machine.rng.randrange(5, 60)):
            machine.step()
        if machine.rng.random() < 0.75:
            machine.power_off()
        else:
            machine.stop_cleanly()
