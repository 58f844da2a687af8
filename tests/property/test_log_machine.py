"""A log against a list: any order of appends, reads, truncations, rolls, flushes and restarts."""

import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.log.files import OsFiles
from ottla.log.recovery import Known
from ottla.model.config import default_topic_config
from ottla.model.ids import TopicPartition
from ottla.wire.records import Record, build_batch, crc_ok, iter_batches, iter_records
from support.logs import HandClock, file_world, offset_for_timestamp, open_log

TP = TopicPartition("t", 0)


class Model:
    """What the log must hold: one entry per record, batches as (first, count, epoch)."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.start = 0
        self.end = 0

    def append(self, count: int, epoch: int, value: bytes) -> None:
        self.batches.append((self.end, count, epoch, value))
        self.end += count

    def truncate(self, offset: int) -> None:
        """End at `offset`, or where the batch began that holds it."""
        kept = [b for b in self.batches if b[0] + b[1] <= offset]
        if len(kept) < len(self.batches):
            offset = min(offset, max(self.batches[len(kept)][0], self.start))
        self.batches = kept
        self.end = min(self.end, offset)
        self.start = min(self.start, self.end)

    def holding(self, offset: int) -> list[tuple[int, int, int, bytes]]:
        """Return the batches a read at `offset` may return, in order."""
        return [b for b in self.batches if b[0] + b[1] > offset]


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.world = file_world(HandClock(), OsFiles(max_open=8))
        self.model = Model()
        self.epoch = 0
        self.number = 0
        self.flushed = 0
        self.high_watermark = 0

    @initialize(
        segment=st.sampled_from([300, 900, 5000]),
        interval=st.sampled_from([0, 150, 4096]),
        entries=st.sampled_from([36, 10_000]),
    )
    def begin(self, segment, interval, entries):
        self.config = default_topic_config(
            segment_bytes=str(segment),
            index_interval_bytes=str(interval),
            segment_index_bytes=str(entries),
        )
        self.log = self.open(clean=True)

    def open(self, *, clean, recovery_point=0):
        return open_log(
            TP,
            self.folder,
            self.config,
            self.world,
            Known(clean=clean, recovery_point=recovery_point, log_start_offset=self.model.start),
        )

    def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def batch(self, count, **header):
        self.number += 1
        value = b"%d" % self.number
        records = [Record(timestamp=self.number, key=b"k", value=value) for _ in range(count)]
        return value, build_batch(records, **header)

    # Rules -----------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), codec=st.sampled_from([0, 0, 1, 4]))
    def append_as_leader(self, count, codec):
        value, data = self.batch(count, codec=codec)
        info = self.log.append_as_leader(memoryview(bytearray(data)), self.epoch, 0)
        assert info.first_offset == self.model.end
        self.model.append(count, self.epoch, value)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=5), cut=st.booleans())
    def append_as_follower(self, counts, cut):
        parts = []
        offset = self.model.end
        appended = []
        for count in counts:
            value, data = self.batch(count, base_offset=offset, leader_epoch=self.epoch)
            parts.append(data)
            appended.append((count, value))
            offset += count
        sent = b"".join(parts)
        if cut:
            sent = sent[:-3]
            appended.pop()
        self.log.append_as_follower(memoryview(sent))
        for count, value in appended:
            self.model.append(count, self.epoch, value)

    @rule(step=st.integers(1, 3))
    def new_leader(self, step):
        self.epoch += step

    @rule(data=st.data())
    def truncate(self, data):
        offset = data.draw(st.integers(self.model.start, self.model.end))
        self.log.truncate_to(offset)
        if offset < self.model.end:
            self.model.truncate(offset)
            self.flushed = min(self.flushed, self.model.end)
            self.high_watermark = min(self.high_watermark, self.model.end)
        self.epoch += 1

    @rule(offset=st.integers(0, 50))
    def start_over(self, offset):
        self.log.truncate_fully_and_start_at(offset)
        self.model = Model()
        self.model.start = self.model.end = offset
        self.flushed = min(self.flushed, offset)
        self.high_watermark = offset
        self.epoch += 1

    @rule()
    def roll(self):
        self.log.roll()

    @rule()
    def flush(self):
        self.log.flush()
        self.flushed = self.model.end

    @rule(data=st.data())
    def move_start(self, data):
        self.high_watermark = self.log.set_high_watermark(
            data.draw(st.integers(self.high_watermark, self.model.end))
        )
        offset = data.draw(st.integers(0, self.high_watermark))
        self.log.maybe_increment_log_start_offset(offset)
        self.model.start = max(self.model.start, offset)
        self.log.delete_old_segments(0)

    @rule()
    def forget_caches(self):
        self.log.local.release_idle()
        self.log.local.release_idle()

    @rule()
    def restart_cleanly(self):
        self.log.close()
        assert self.log.recovery_point == self.model.end
        self.log = self.open(clean=True, recovery_point=self.model.end)
        self.flushed = self.model.end
        self.log.set_high_watermark(self.high_watermark)

    @rule(knows=st.booleans())
    def restart_after_kill_9(self, knows):
        self.log.abandon()
        self.log = self.open(clean=False, recovery_point=self.flushed if knows else 0)
        self.log.set_high_watermark(self.high_watermark)

    @rule(data=st.data(), size=st.sampled_from([1, 200, 10_000]), whole=st.booleans())
    def read(self, data, size, whole):
        offset = data.draw(st.integers(self.model.start, self.model.end))
        upto = self.model.end if whole else data.draw(st.integers(offset, self.model.end))
        found = self.log.read(offset, size, upto)
        got = b"".join(found.parts)
        assert len(got) == found.size
        want = [b for b in self.model.holding(offset) if b[0] < upto]
        have = []
        for position, header in iter_batches(got):
            assert crc_ok(got, position, header)
            value = next(iter_records(got, position)).value
            have.append((header.base_offset, header.count, header.partition_leader_epoch, value))
        assert have == want[: len(have)]
        if want and offset < upto:
            assert have, "at least one batch"
        if size == 10_000 and have and self.log.segments[-1].base_offset <= offset:
            assert have == want

    @precondition(lambda self: self.model.batches)
    @rule(data=st.data())
    def search_time(self, data):
        wanted = data.draw(st.integers(0, self.number + 1))
        candidates = [
            (int(value), first)
            for first, count, _, value in self.model.batches
            if int(value) >= wanted and first + count > self.model.start
        ]
        found = offset_for_timestamp(self.log, wanted)
        if not candidates:
            assert found is None
        else:
            assert found is not None
            timestamp, first = candidates[0]
            assert found.timestamp == timestamp
            assert found.offset == max(first, self.model.start)

    # Always ----------------------------------------------------------------------------

    @invariant()
    def ends_agree(self):
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.model.start, self.model.end)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark
        assert log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        bases = [s.base_offset for s in log.segments]
        assert bases == sorted(set(bases))

    @invariant()
    def epochs_agree(self):
        if not hasattr(self, "log"):
            return
        want: dict[int, int] = {}
        for first, _, epoch, _ in self.model.batches:
            want.setdefault(epoch, first)
        live = [e for e in self.log.epochs.entries if e[1] < self.model.end]
        known = sorted(want.items())
        older = [e for e in known if e[1] <= self.model.start]
        known = [e for e in known if e[1] > self.model.start]
        assert live[len(live) - len(known) :] == known
        if older and self.model.holding(self.model.start):
            assert live[0][0] == older[-1][0]


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
