"""A group's offsets under any order of commits, transactions, removals and appends in doubt.

The log is a list of real batches. Appends are answered out of time, too late, as refused, as
committed on too few replicas. Laws: where nothing is under way, what the coordinator serves is what
the next one reads from the log (R4); whoever asks while a newer offset may be on its way can learn
that (`unstable`); every commit is answered once.

Not drawn: the removal of offsets that stand in an open transaction. Kafka's coordinator and ours
forget them at once, the log shows them again if the transaction is committed.
"""

from types import SimpleNamespace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordinators.coordinator_log import NO_PRODUCER, DelayedAppend, Producer
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.group_records import GroupRecordReader
from ottla.coordinators.offsets import Commit
from ottla.model.errors import ErrorCode as E
from ottla.model.ids import TopicPartition
from ottla.wire.records import (
    ABORT,
    COMMIT,
    build_batch,
    build_control_batch,
    iter_records,
    parse_batch_header,
)

GROUP = "g"
PARTITIONS = [TopicPartition("t", n) for n in range(3)]
PRODUCERS = [Producer(7, 0), Producer(8, 0)]
NUMBERS = {
    "offset.metadata.max.bytes": 4096,
    "offsets.retention.minutes": 10_080,
    "offsets.retention.check.interval.ms": 600_000,
    "offsets.topic.compression.codec": 0,
}


HOST = SimpleNamespace(
    may_propose=True,
    purgatory=SimpleNamespace(park=lambda *_: None, enqueue=lambda append: append.attempt()),
)
"""The rules of the test end the waits, not a timer."""


class Log:
    """Stands for the CoordinatorLog of the coordinator."""

    def __init__(self):
        self.batches = []
        self.waiting = []
        self.refuses = False

    def check_status(self, _index):
        return E.NONE

    def partition_for(self, _key):
        return 0

    @property
    def end(self):
        return sum(parse_batch_header(b).count for b in self.batches)

    def append(
        self, _index, records, completed, *, settled=None, producer=NO_PRODUCER, acks=-1, **_more
    ):
        append = DelayedAppend(completed, settled, HOST)
        if self.refuses:
            append.complete(E.NOT_ENOUGH_REPLICAS)
            return
        at = self.end
        batch = build_batch(
            records,
            base_offset=at,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0 if producer.transactional else -1,
            is_transactional=producer.transactional,
        )
        self.batches.append(bytes(batch))
        append.base_offset = at
        if acks == 0:
            append.complete(E.NONE)
        else:
            self.wait(append, at)

    def mark(self, producer, committed, then):
        at = self.end
        kind = COMMIT if committed else ABORT
        batch = build_control_batch(
            kind,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=at,
        )
        self.batches.append(batch)
        append = DelayedAppend(lambda code, _: then(code), None, HOST)
        append.base_offset = at
        self.wait(append, at)

    def wait(self, append, at):
        append.wait(self, SimpleNamespace(last_offset=at), 0)

    def await_high_watermark(self, _offset, append):
        self.waiting.append(append)

    def read(self):
        found = {}
        reader = GroupRecordReader(lambda group: found.update({group.group_id: group}), 0)
        for batch in self.batches:
            for _ in reader.load_batch(parse_batch_header(batch), iter_records(batch)):
                pass
        for _ in reader.finish():
            pass
        if GROUP not in found:
            return {}
        return {tp: r.commit.offset for tp, r in found[GROUP].offsets.committed.items()}


class OffsetMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        clock = SimpleNamespace(
            monotonic=lambda: self.now / 1000, wall_ms=lambda: self.now, slice_s=0.008
        )
        self.now = 1_700_000_000_000
        config = SimpleNamespace(
            interval_s=lambda _: 600.0,
            integer=lambda name: NUMBERS.get(name, 5_000),
            text=lambda _name: "3.9",
        )
        self.coordinator = GroupCoordinator(SimpleNamespace(clock=clock), config, None, lambda: 1)
        self.log = self.coordinator.log = Log()
        self.late = []
        self.open = {}  # producer -> partitions with offsets in its transaction
        self.ending = {}
        self.answers = []
        self.asked = 0

    def commit(self, offsets, producer=NO_PRODUCER):
        self.now += 1
        self.asked += 1
        commits = {tp: Commit(offset, -1, "", self.now) for tp, offset in offsets.items()}
        heard = []
        self.answers.append(heard)
        request = SimpleNamespace(on_result=heard.append)
        self.coordinator.commit(GROUP, -1, "", None, commits, request, producer=producer)

    offsets = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 9), min_size=1)

    @rule(offsets=offsets, refused=st.booleans())
    def plain(self, offsets, refused):
        self.log.refuses = refused
        self.commit(offsets)
        self.log.refuses = False

    @rule(offsets=offsets, producer=st.sampled_from(PRODUCERS), refused=st.booleans())
    def in_transaction(self, offsets, producer, refused):
        if producer in self.ending:
            return
        self.log.refuses = refused
        self.commit(offsets, producer)
        self.log.refuses = False
        if not refused:
            self.open.setdefault(producer, set()).update(offsets)

    @rule(producer=st.sampled_from(PRODUCERS), committed=st.booleans())
    def end(self, producer, committed):
        if producer in self.open and producer not in self.ending:
            self.ending[producer] = committed
            self.mark(producer)

    def mark(self, producer):
        committed = self.ending[producer]

        def then(error):
            if error is not E.NONE:
                self.mark(producer)  # as the transaction coordinator does
                return
            self.coordinator.complete_transaction(producer.producer_id, [0], committed=committed)
            del self.open[producer], self.ending[producer]

        self.log.mark(producer, committed, then)

    @rule(tp=st.sampled_from(PARTITIONS))
    def delete(self, tp):
        if not any(tp in found for found in self.open.values()):
            self.coordinator.delete_offsets(GROUP, [tp])

    @precondition(lambda self: self.log.waiting)
    @rule(enough=st.sampled_from([True, True, True, False]))
    def watermark_rises(self, enough):
        append = self.log.waiting.pop(0)
        if not append.done:
            append.partition_done(0, E.NONE if enough else E.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    @precondition(lambda self: any(w not in self.late for w in self.log.waiting))
    @rule(data=st.data())
    def too_late(self, data):
        append = data.draw(st.sampled_from([w for w in self.log.waiting if w not in self.late]))
        self.late.append(append)
        append.expire()

    def serves(self):
        _, found = self.coordinator.fetch_offsets(GROUP, None, require_stable=False)
        return {f.tp: f.commit.offset for f in found}

    @invariant()
    def what_is_served_is_what_the_log_says(self):
        if not self.log.waiting and not self.open:
            assert self.serves() == self.log.read()
            _, found = self.coordinator.fetch_offsets(GROUP, PARTITIONS, require_stable=True)
            assert all(f.error is E.NONE for f in found), "stable, but said not to be"

    @invariant()
    def what_may_change_can_be_known(self):
        served, said = self.serves(), self.log.read()
        _, found = self.coordinator.fetch_offsets(GROUP, PARTITIONS, require_stable=True)
        for one in found:
            if one.error is E.NONE:
                assert served.get(one.tp) == said.get(one.tp), "another offset is in the log"

    def teardown(self):
        while self.log.waiting:
            self.watermark_rises(enough=True)
        assert all(len(heard) == 1 for heard in self.answers)
        for producer in list(self.open):
            self.end(producer, committed=True)
        while self.log.waiting:
            self.watermark_rises(enough=True)
        assert not self.open
        self.what_is_served_is_what_the_log_says()


OffsetMachine.TestCase.settings = settings(stateful_step_count=40)
TestOffsets = OffsetMachine.TestCase
