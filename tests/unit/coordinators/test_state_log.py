"""A coordinator's log: when a partition is served, and what becomes of appends."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.coordinators import state_log
from ottla.coordinators.state_log import AppendSettings, Producer, StateLog
from ottla.log.results import AppendInfo, LogRead
from ottla.model.errors import CorruptRecordError, NotEnoughReplicasError, NotLeaderError
from ottla.model.errors import ErrorCode as E
from ottla.model.ids import TopicPartition
from ottla.replication.purgatory import Purgatory
from ottla.wire.records import Record, build_batch, iter_records, parse_batch_header

TOPIC = "__state"


class Clock:
    """Each look at it costs a millisecond, so that turns end."""

    def __init__(self):
        self.now_s = 0.0

    def monotonic(self):
        self.now_s += 0.001
        return self.now_s

    def wall_ms(self):
        return 1_700_000_000_000


class FakeLog:
    def __init__(self, count):
        self.log_start_offset = 0
        self.batches = []
        self.high_watermark = 0
        self.broken = False
        for n in range(count):
            self.add([Record(key=b"k%d" % n, value=b"v")])

    @property
    def log_end_offset(self):
        return len(self.batches)

    def add(self, records):
        self.batches.append(build_batch(records, base_offset=len(self.batches)))

    def read(self, offset, _max_bytes, _upto):
        if self.broken:
            raise CorruptRecordError("damaged")
        part = b"".join(self.batches[offset : offset + 3])
        return LogRead([part], len(part), offset, False)


class FakePartition:
    def __init__(self, count=0, index=0):
        self.tp = TopicPartition(TOPIC, index)
        self.leader_epoch = 5
        self.log = FakeLog(count)
        self.min_isr = 1
        self.isr = SimpleNamespace(maximal=(0,))
        self.host = SimpleNamespace(may_propose=True)
        self.waiters = []
        self.refusal = None
        self.appended = []

    def local_log(self, *, leader_only):
        assert leader_only
        return self.log

    def append_as_leader(self, records, acks, _wall_ms, origin, *_guard):
        if self.refusal is not None:
            raise self.refusal
        assert origin == "coordinator"
        self.appended.append((bytes(records), acks))
        first = self.log.log_end_offset
        self.log.batches.append(bytes(records))
        return AppendInfo(first, first, -1, -1, 0, False, len(records), 1)

    def await_high_watermark(self, waiter):
        self.waiters.append(waiter)

    def commit(self):
        self.log.high_watermark = self.log.log_end_offset
        for waiter in self.waiters:
            waiter.reached(self)


class Replay:
    def __init__(self, keeper, index):
        self.keeper, self.index = keeper, index
        self.keys = []

    def batch(self, header, batch):
        assert header.base_offset == len(self.keys)
        self.keys.extend(r.key for r in iter_records(batch))

    def finish(self):
        yield
        self.keeper.keys[self.index] = self.keys
        self.keeper.finished += 1
        yield


class Keeper:
    def __init__(self):
        self.keys = {}
        self.unloaded = []
        self.begun = 0
        self.finished = 0

    def begin(self, index):
        self.begun += 1
        return Replay(self, index)

    def unload(self, index):
        self.unloaded.append(index)
        self.keys.pop(index, None)


class Rig:
    def __init__(self, *partitions, **settings):
        self.clock = Clock()
        self.partitions = {p.tp.partition: p for p in partitions}
        self.keeper = Keeper()
        replicas = SimpleNamespace(
            clock=self.clock, purgatory=Purgatory(self.clock), hosted=self.hosted
        )
        self.log = StateLog(
            SimpleNamespace(clock=self.clock), replicas, TOPIC, self.keeper,
            lambda: len(self.partitions), AppendSettings(**settings),
        )  # fmt: skip

    def hosted(self, _topic, index):
        return self.partitions[index]

    async def loaded(self, index=0):
        for _ in range(10_000):
            if self.log.standing(index) is E.NONE:
                return
            await asyncio.sleep(0)
        raise AssertionError(self.log.standing(index))

    def append(self, index=0, **more):
        heard = []
        record = Record(key=b"k", value=b"v")
        self.log.append(index, [record], lambda error, at: heard.append((error, at)), **more)
        return heard


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_partition_is_served_when_all_of_it_has_been_read():
    async def scenario():
        rig = Rig(FakePartition(200))
        assert rig.log.standing(0) is E.NOT_COORDINATOR
        rig.log.gained(rig.partitions[0])
        seen = set()
        while rig.log.standing(0) is not E.NONE:
            seen.add(rig.log.standing(0))
            assert rig.append() == [(E.COORDINATOR_LOAD_IN_PROGRESS, -1)]
            assert rig.log.loading
            await asyncio.sleep(0)
        assert seen == {E.COORDINATOR_LOAD_IN_PROGRESS}
        assert rig.keeper.keys[0] == [b"k%d" % n for n in range(200)]
        assert rig.log.epoch(0) == 5
        assert not rig.log.loading

    run(scenario)


def test_what_was_appended_while_it_was_read_is_read_too():
    async def scenario():
        partition = FakePartition(50)
        rig = Rig(partition)
        rig.log.gained(partition)
        await asyncio.sleep(0)
        partition.log.add([Record(key=b"late", value=b"v")])
        await rig.loaded()
        assert rig.keeper.keys[0][-1] == b"late"

    run(scenario)


def test_losing_it_while_it_is_read_leaves_nothing_behind():
    async def scenario():
        rig = Rig(FakePartition(200))
        rig.log.gained(rig.partitions[0])
        await asyncio.sleep(0)
        rig.log.lost(rig.partitions[0])
        for _ in range(300):
            await asyncio.sleep(0)
        assert rig.log.standing(0) is E.NOT_COORDINATOR
        assert rig.keeper.finished == 0
        assert rig.keeper.keys == {}

    run(scenario)


def test_a_leadership_that_came_back_is_read_anew_and_once():
    async def scenario():
        rig = Rig(FakePartition(200))
        for _ in range(3):
            rig.log.gained(rig.partitions[0])
            await asyncio.sleep(0)
            rig.log.lost(rig.partitions[0])
            rig.partitions[0].leader_epoch += 2
        rig.log.gained(rig.partitions[0])
        await rig.loaded()
        assert rig.keeper.finished == 1
        assert rig.log.epoch(0) == 11

    run(scenario)


def test_a_partition_that_cannot_be_read_is_tried_again(monkeypatch):
    monkeypatch.setattr(state_log, "RETRY_S", 0.01)

    async def scenario():
        rig = Rig(FakePartition(5))
        rig.partitions[0].log.broken = True
        rig.log.gained(rig.partitions[0])
        await asyncio.sleep(0.05)
        assert rig.log.standing(0) is E.COORDINATOR_LOAD_IN_PROGRESS
        assert rig.keeper.begun > 1
        rig.partitions[0].log.broken = False
        while rig.log.standing(0) is not E.NONE:
            await asyncio.sleep(0.01)
        assert len(rig.keeper.keys[0]) == 5

    run(scenario)


def test_an_append_is_reported_when_it_is_committed():
    async def scenario():
        rig = Rig(FakePartition(3))
        rig.log.gained(rig.partitions[0])
        await rig.loaded()
        heard = rig.append()
        await asyncio.sleep(0)
        assert heard == []
        rig.partitions[0].commit()
        await asyncio.sleep(0)
        assert heard == [(E.NONE, 3)]

    run(scenario)


def test_an_append_without_acks_is_reported_at_once():
    async def scenario():
        rig = Rig(FakePartition(3))
        rig.log.gained(rig.partitions[0])
        await rig.loaded()
        assert rig.append(acks=0) == [(E.NONE, 3)]
        assert rig.partitions[0].appended[0][1] == 0

    run(scenario)


def test_an_append_that_waits_too_long_or_loses_its_leader_fails():
    async def scenario():
        rig = Rig(FakePartition(3), timeout_ms=10)
        rig.log.gained(rig.partitions[0])
        await rig.loaded()
        late, lost = rig.append(), rig.append()
        rig.partitions[0].waiters[1].lost(E.NOT_LEADER_OR_FOLLOWER)
        await asyncio.sleep(0.05)
        rig.clock.now_s += 1
        await asyncio.sleep(0.05)
        assert late == [(E.REQUEST_TIMED_OUT, -1)]
        assert lost == [(E.NOT_LEADER_OR_FOLLOWER, -1)]

    run(scenario)


@pytest.mark.parametrize("refusal", [NotLeaderError("x"), NotEnoughReplicasError("x")])
def test_an_append_that_is_refused_says_why(refusal):
    async def scenario():
        rig = Rig(FakePartition(3))
        rig.log.gained(rig.partitions[0])
        await rig.loaded()
        rig.partitions[0].refusal = refusal
        assert rig.append() == [(refusal.code, -1)]

    run(scenario)


def test_records_of_a_transaction_say_whose():
    async def scenario():
        rig = Rig(FakePartition())
        rig.log.gained(rig.partitions[0])
        await rig.loaded()
        rig.append(producer=Producer(13, 2))
        header = parse_batch_header(rig.partitions[0].appended[0][0])
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (13, 2, 0)
        rig.append()
        plain = parse_batch_header(rig.partitions[0].appended[1][0])
        assert not plain.is_transactional
        assert plain.producer_id == -1

    run(scenario)


def test_nothing_is_served_after_the_end():
    async def scenario():
        rig = Rig(FakePartition(200))
        rig.log.gained(rig.partitions[0])
        await asyncio.sleep(0)
        await rig.log.close()
        assert rig.log.standing(0) is E.COORDINATOR_NOT_AVAILABLE
        assert rig.append() == [(E.COORDINATOR_NOT_AVAILABLE, -1)]
        assert rig.keeper.finished == 0

    run(scenario)
