"""The last stable offset against a list: any order of transactions, truncations and restarts."""

import shutil
import tempfile
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.log.files import OsFiles
from ottla.log.recovery import Known
from ottla.log.validate import COORDINATOR
from ottla.model.config import default_topic_config
from ottla.model.ids import TopicPartition
from ottla.wire.records import ABORT, COMMIT, Record
from support.logs import HandClock, file_world, framed, marker, open_log

TP = TopicPartition("t", 0)
PRODUCERS = st.integers(1, 4)


class Entry(NamedTuple):
    """One record of the log: whose it is, and whether it ends a transaction."""

    producer_id: int
    ends: bool


class StableMachine(RuleBasedStateMachine):
    """`entries` is the log; its high watermark is checkpointed now and then, and at clean stops."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.world = file_world(HandClock(), OsFiles(max_open=8))
        self.entries: list[Entry] = []
        self.flushed = 0
        self.high_watermark = 0
        self.checkpointed = 0

    @initialize(segment=st.sampled_from([200, 400, 5000]))
    def begin(self, segment):
        self.config = default_topic_config(segment_bytes=str(segment))
        self.log = self.open(clean=True)

    def open(self, *, clean):
        log = open_log(
            TP,
            self.folder,
            self.config,
            self.world,
            Known(clean=clean, recovery_point=self.flushed, high_watermark=self.checkpointed),
        )
        self.high_watermark = log.set_high_watermark(self.checkpointed)
        return log

    def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3))
    def write(self, producer_id, count):
        records = [Record(timestamp=1000, key=b"k", value=b"v" * 20) for _ in range(count)]
        batch = framed(records, producer_id=producer_id, producer_epoch=0, is_transactional=True)
        self.log.append_as_leader(batch, 0, 0, origin=COORDINATOR)
        self.entries += [Entry(producer_id, False)] * count

    @rule(producer_id=PRODUCERS, kind=st.sampled_from([COMMIT, ABORT]))
    def end(self, producer_id, kind):
        batch = marker(kind, producer_id, 1000)
        self.log.append_as_leader(batch, 0, 0, origin=COORDINATOR)
        self.entries.append(Entry(producer_id, True))

    @rule(data=st.data(), noted=st.booleans())
    def replicate(self, data, noted):
        offset = data.draw(st.integers(self.high_watermark, len(self.entries)))
        self.high_watermark = self.log.set_high_watermark(offset)
        if noted:
            self.checkpointed = offset

    @rule()
    def roll(self):
        self.log.roll()

    @rule()
    def flush(self):
        self.log.flush()
        self.flushed = len(self.entries)

    @rule(data=st.data())
    def truncate(self, data):
        offset = data.draw(st.integers(0, len(self.entries)))
        self.log.truncate_to(offset)
        offset = self.log.log_end_offset  # a batch goes whole
        del self.entries[offset:]
        self.flushed = min(self.flushed, offset)
        self.high_watermark = min(self.high_watermark, offset)

    @rule()
    def restart_cleanly(self):
        self.log.close()
        self.flushed = len(self.entries)
        self.checkpointed = self.high_watermark
        self.log = self.open(clean=True)

    @rule()
    def restart_after_kill_9(self):
        self.log.abandon()
        self.log = self.open(clean=False)

    @invariant()
    def no_undecided_transaction_is_passed(self):
        if not hasattr(self, "log"):
            return
        unstable = self.high_watermark
        first: dict[int, int] = {}
        for offset, entry in enumerate(self.entries):
            if not entry.ends:
                first.setdefault(entry.producer_id, offset)
            elif entry.producer_id in first:
                began = first.pop(entry.producer_id)
                if offset >= self.high_watermark:
                    unstable = min(unstable, began)
        assert self.log.high_watermark == self.high_watermark
        assert self.log.last_stable_offset == min([unstable, *first.values()])


TestLastStable = StableMachine.TestCase
TestLastStable.settings = settings(stateful_step_count=40)
