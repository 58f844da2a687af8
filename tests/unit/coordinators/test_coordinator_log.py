"""A coordinator's log: when a partition is served, and what becomes of appends."""

import asyncio
import types
from types import SimpleNamespace

import pytest

from ottla.coordinators import coordinator_log
from ottla.coordinators.coordinator_log import (
    AppendSettings,
    CoordinatorLog,
    Producer,
)
from ottla.coordinators.group import Group, GroupState, Member
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.group_records import group_key, group_value
from ottla.coordinators.requests import Sync
from ottla.log.results import AppendInfo, LogRead, NotInMemoryError
from ottla.model.errors import CorruptRecordError, NotEnoughReplicasError, NotLeaderError
from ottla.model.errors import ErrorCode as E
from ottla.model.ids import TopicPartition
from ottla.replication.purgatory import Purgatory
from ottla.wire.records import Record, build_batch, parse_batch_header, read_payload

TOPIC = "__state"


class Clock:
    """Each look at it costs a millisecond, so that turns end."""

    slice_s = 0.008

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
        self.cold = False
        self.stays_cold = False
        self.brought = []
        self.waited_for_disk = 0
        for n in range(count):
            self.add([Record(key=b"k%d" % n, value=b"v")])

    @property
    def log_end_offset(self):
        return len(self.batches)

    def prefetch(self, size, position):
        self.brought.append((size, position))
        self.cold = self.stays_cold

    def add(self, records, **more):
        self.batches.append(build_batch(records, base_offset=len(self.batches), **more))
        self.high_watermark = len(self.batches) - 1 + len(records)

    def read(self, offset, _max_bytes, _upto, now=False):
        if self.broken:
            raise CorruptRecordError("damaged")
        self.waited_for_disk += not now
        if now and self.cold:
            raise NotInMemoryError(self, 100 * offset, 100)
        part = b"".join(self.batches[offset : offset + 3])
        return LogRead([part], len(part), offset, False)


class FakePartition:
    def __init__(self, count=0, index=0):
        self.tp = TopicPartition(TOPIC, index)
        self.state = types.SimpleNamespace(leader_epoch=5)
        self.log = FakeLog(count)
        self.code_when_replicated = E.NONE
        self.waiters = []
        self.awaited = []
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

    def await_high_watermark(self, offset, waiter):
        self.waiters.append(waiter)
        self.awaited.append(offset)

    def commit(self):
        self.log.high_watermark = self.log.log_end_offset
        for waiter in self.waiters:
            waiter.partition_done(0, self.code_when_replicated)


class Loader:
    def __init__(self, listener, index):
        self.listener, self.index = listener, index
        self.keys = []

    def load_batch(self, header, records):
        if header.count == 1:
            assert header.base_offset == len(self.keys)
        for record in records:
            self.keys.append(record.key)
            yield

    def finish(self):
        yield
        self.listener.keys[self.index] = self.keys
        self.listener.finished += 1
        yield


class Listener:
    def __init__(self):
        self.keys = {}
        self.loaded = []
        self.unloaded = []
        self.begun = 0
        self.finished = 0

    def start_loading(self, index):
        self.begun += 1
        return Loader(self, index)

    def on_loaded(self, index):
        self.loaded.append(index)

    def on_resigned(self, index):
        self.unloaded.append(index)

    def remove_state(self, indexes):
        for index in indexes:
            for _ in range(len(self.keys.get(index, ()))):
                yield
            self.keys.pop(index, None)


class Workers:
    """Threads, as the loop sees them: their results come in a later turn."""

    def __init__(self):
        self.ran = []

    async def run(self, function, *args):
        self.ran.append(function)
        await asyncio.sleep(0)
        return function(*args)


class Rig:
    def __init__(self, *partitions, **settings):
        self.clock = Clock()
        self.partitions = {p.tp.partition: p for p in partitions}
        self.listener = Listener()
        self.workers = Workers()
        replicas = SimpleNamespace(
            clock=self.clock,
            purgatory=Purgatory(self.clock),
            hosted=self.hosted,
            may_propose=True,
        )
        self.log = CoordinatorLog(
            SimpleNamespace(clock=self.clock, workers=self.workers), replicas, TOPIC, self.listener,
            lambda: len(self.partitions), AppendSettings(**settings),
        )  # fmt: skip

    def hosted(self, _topic, index):
        return self.partitions[index]

    async def loaded(self, index=0):
        for _ in range(10_000):
            if self.log.check_status(index) is E.NONE:
                return
            await asyncio.sleep(0)
        raise AssertionError(self.log.check_status(index))

    def append(self, index=0, **more):
        """Append a record; return the list of what `completed` is called with."""
        results = []

        def completed(code, base_offset):
            results.append((code, base_offset))

        self.log.append(index, [Record(key=b"k", value=b"v")], completed, **more)
        return results


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_partition_is_served_when_all_of_it_has_been_read():
    async def scenario():
        rig = Rig(FakePartition(200))
        assert rig.log.check_status(0) is E.NOT_COORDINATOR
        rig.log.on_elected(rig.partitions[0])
        seen = set()
        while rig.log.check_status(0) is not E.NONE:
            seen.add(rig.log.check_status(0))
            assert rig.append() == [(E.COORDINATOR_LOAD_IN_PROGRESS, -1)]
            assert rig.log.loading
            await asyncio.sleep(0)
        assert seen == {E.COORDINATOR_LOAD_IN_PROGRESS}
        assert rig.listener.keys[0] == [b"k%d" % n for n in range(200)]
        assert rig.log.epoch(0) == 5
        assert rig.listener.loaded == [0]
        assert not rig.log.loading

    run(scenario)


def test_what_was_appended_while_it_was_read_is_read_too():
    async def scenario():
        partition = FakePartition(50)
        rig = Rig(partition)
        rig.log.on_elected(partition)
        await asyncio.sleep(0)
        partition.log.add([Record(key=b"late", value=b"v")])
        await rig.loaded()
        assert rig.listener.keys[0][-1] == b"late"

    run(scenario)


def test_what_is_not_committed_is_not_served_before_it_is():
    """A record that only this leader has may be lost with it; no response may contain it."""

    async def scenario():
        first, second = FakePartition(6), FakePartition(3, index=1)
        first.log.high_watermark = 5
        rig = Rig(first, second)
        rig.log.on_elected(first)
        rig.log.on_elected(second)
        await rig.loaded(1)  # nobody waits for another partition
        assert rig.log.check_status(0) is E.COORDINATOR_LOAD_IN_PROGRESS
        assert rig.append() == [(E.COORDINATOR_LOAD_IN_PROGRESS, -1)]
        assert rig.listener.finished == 1
        assert first.awaited == [6]
        first.commit()
        await rig.loaded()
        assert (rig.listener.begun, rig.listener.finished) == (2, 2)
        assert len(rig.listener.keys[0]) == 6

    run(scenario)


def test_losing_it_before_it_is_committed_serves_nothing():
    async def scenario():
        partition = FakePartition(6)
        partition.log.high_watermark = 0
        rig = Rig(partition)
        rig.log.on_elected(partition)
        for _ in range(1000):
            await asyncio.sleep(0)
        (waiter,) = partition.waiters
        partition.waiters.clear()
        waiter.partition_done(0, E.NOT_LEADER_OR_FOLLOWER)
        rig.log.on_resigned(partition)
        for _ in range(100):
            await asyncio.sleep(0)
        assert rig.log.check_status(0) is E.NOT_COORDINATOR
        assert rig.listener.finished == 0
        rig.log.on_elected(partition)  # to lead once more: read anew, as a new leadership
        for _ in range(1000):
            await asyncio.sleep(0)
        partition.commit()
        await rig.loaded()
        assert (rig.listener.begun, rig.listener.finished) == (2, 1)

    run(scenario)


@pytest.mark.parametrize("evicted", [False, True])
def test_what_is_not_in_memory_is_brought_by_a_worker(evicted):
    """F22: a cold or slow disk is not waited for by the event loop."""

    async def scenario():
        partition = FakePartition(3)
        rig = Rig(partition)
        log = partition.log
        log.cold, log.stays_cold = True, evicted
        rig.log.on_elected(partition)
        await rig.loaded()
        assert rig.listener.keys[0] == [b"k0", b"k1", b"k2"]
        assert log.brought == [(100, 0)] * (coordinator_log.TRIES_IN_MEMORY if evicted else 1)
        # Where memory is too small for it to stay there, the loop waits after all.
        assert log.waited_for_disk == evicted

    run(scenario)


@pytest.mark.parametrize("codec", [0, 1])
def test_one_large_batch_is_read_in_slices(codec):
    """F9: ten thousand records in one batch are no reason to keep others waiting."""

    async def scenario():
        partition = FakePartition()
        records = [Record(key=b"key-%d" % n, value=b"v") for n in range(10_000)]
        partition.log.add(records, codec=codec)
        # One batch counts as one offset here.
        rig = Rig(partition)
        rig.log.on_elected(partition)
        turns = 0
        while rig.log.check_status(0) is not E.NONE:
            turns += 1
            await asyncio.sleep(0)
        assert len(rig.listener.keys[0]) == 10_000
        # The clock moves by a millisecond with each look, so a slice is no longer than its time.
        assert turns > 10_000 / 10
        assert rig.workers.ran == ([read_payload] if codec else [])

    run(scenario)


def test_losing_it_amid_a_batch_ends_the_reading():
    async def scenario():
        partition = FakePartition()
        partition.log.add([Record(key=b"k", value=b"v")] * 1_000)
        rig = Rig(partition)
        rig.log.on_elected(partition)
        for _ in range(5):
            await asyncio.sleep(0)
        rig.log.on_resigned(partition)
        for _ in range(300):
            await asyncio.sleep(0)
        assert rig.listener.finished == 0
        assert rig.log.check_status(0) is E.NOT_COORDINATOR

    run(scenario)


def test_losing_it_while_it_is_read_leaves_nothing_behind():
    async def scenario():
        rig = Rig(FakePartition(200))
        rig.log.on_elected(rig.partitions[0])
        await asyncio.sleep(0)
        rig.log.on_resigned(rig.partitions[0])
        for _ in range(300):
            await asyncio.sleep(0)
        assert rig.log.check_status(0) is E.NOT_COORDINATOR
        assert rig.listener.finished == 0
        assert rig.listener.keys == {}

    run(scenario)


def test_what_was_served_is_forgotten_in_slices_before_it_is_read_anew():
    """F9: a partition may hold a hundred thousand groups."""

    async def scenario():
        partition = FakePartition()
        partition.log.add([Record(key=b"k", value=b"v")] * 5_000)
        rig = Rig(partition)
        rig.log.on_elected(partition)
        await rig.loaded()
        begun = rig.listener.begun
        rig.log.on_resigned(partition)
        assert rig.log.check_status(0) is E.NOT_COORDINATOR, "at once"
        partition.state.leader_epoch += 1
        rig.log.on_elected(partition)
        turns = 0
        while rig.log.unloading:
            assert rig.listener.begun == begun, "it would be forgotten again"
            turns += 1
            await asyncio.sleep(0)
        assert turns > 5_000 / 10
        await rig.loaded()
        assert len(rig.listener.keys[0]) == 5_000

    run(scenario)


def test_a_leadership_that_came_back_is_read_anew_and_once():
    async def scenario():
        rig = Rig(FakePartition(200))
        for _ in range(3):
            rig.log.on_elected(rig.partitions[0])
            await asyncio.sleep(0)
            rig.log.on_resigned(rig.partitions[0])
            rig.partitions[0].state.leader_epoch += 2
        rig.log.on_elected(rig.partitions[0])
        await rig.loaded()
        assert rig.listener.finished == 1
        assert rig.log.epoch(0) == 11

    run(scenario)


def test_a_partition_that_cannot_be_read_is_tried_again(monkeypatch):
    monkeypatch.setattr(coordinator_log, "RETRY_S", 0.01)

    async def scenario():
        rig = Rig(FakePartition(5))
        rig.partitions[0].log.broken = True
        rig.log.on_elected(rig.partitions[0])
        while rig.listener.begun < 2:
            await asyncio.sleep(0.01)
        assert rig.log.check_status(0) is E.COORDINATOR_LOAD_IN_PROGRESS
        rig.partitions[0].log.broken = False
        while rig.log.check_status(0) is not E.NONE:
            await asyncio.sleep(0.01)
        assert len(rig.listener.keys[0]) == 5

    run(scenario)


def test_an_append_is_reported_when_it_is_committed():
    async def scenario():
        rig = Rig(FakePartition(3))
        rig.log.on_elected(rig.partitions[0])
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
        rig.log.on_elected(rig.partitions[0])
        await rig.loaded()
        assert rig.append(acks=0) == [(E.NONE, 3)]
        assert rig.partitions[0].appended[0][1] == 0

    run(scenario)


def test_an_append_that_waits_too_long_or_loses_its_leader_fails():
    async def scenario():
        rig = Rig(FakePartition(3), timeout_ms=10)
        rig.log.on_elected(rig.partitions[0])
        await rig.loaded()
        late, lost = rig.append(), rig.append()
        rig.partitions[0].waiters[1].partition_done(0, E.NOT_LEADER_OR_FOLLOWER)
        await asyncio.sleep(0.05)
        rig.clock.now_s += 1
        while not late:
            await asyncio.sleep(0.01)
        # In doubt: the offsets say that the batches stand in this log.
        assert late == [(E.REQUEST_TIMED_OUT, 3)]
        assert lost == [(E.NOT_LEADER_OR_FOLLOWER, 4)]

    run(scenario)


@pytest.mark.parametrize("end", [E.NONE, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.NOT_COORDINATOR])
def test_an_append_in_doubt_gets_its_outcome_later(end):
    """R4: a caller that must know whether the log has the batch gets to know it, however late."""

    async def scenario():
        partition = FakePartition(3)
        rig = Rig(partition, timeout_ms=10)
        rig.log.on_elected(partition)
        await rig.loaded()
        later = []
        heard = rig.append(settled=lambda code, base_offset: later.append((code, base_offset)))
        rig.clock.now_s += 1
        while not heard:
            await asyncio.sleep(0.01)
        assert heard == [(E.REQUEST_TIMED_OUT, 3)]
        assert later == []
        if end is E.NOT_COORDINATOR:
            partition.waiters[0].partition_done(0, end)
        else:
            partition.code_when_replicated = end
            partition.commit()
        await asyncio.sleep(0)
        assert heard == [(E.REQUEST_TIMED_OUT, 3)]
        assert later == [(end, 3)]

    run(scenario)


@pytest.mark.parametrize("refusal", [NotLeaderError("x"), NotEnoughReplicasError("x")])
def test_an_append_that_is_refused_has_the_error(refusal):
    async def scenario():
        rig = Rig(FakePartition(3))
        rig.log.on_elected(rig.partitions[0])
        await rig.loaded()
        rig.partitions[0].refusal = refusal
        assert rig.append() == [(refusal.code, -1)]

    run(scenario)


def test_records_of_a_transaction_say_whose():
    async def scenario():
        rig = Rig(FakePartition())
        rig.log.on_elected(rig.partitions[0])
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
        rig.log.on_elected(rig.partitions[0])
        await asyncio.sleep(0)
        await rig.log.close()
        assert rig.log.check_status(0) is E.COORDINATOR_NOT_AVAILABLE
        assert rig.append() == [(E.COORDINATOR_NOT_AVAILABLE, -1)]
        assert rig.listener.finished == 0

    run(scenario)


def test_without_acks_of_all_nothing_that_was_read_is_waited_for():
    async def scenario():
        partition = FakePartition(3)
        partition.log.high_watermark = 0
        rig = Rig(partition, acks=1)
        rig.log.on_elected(partition)
        await rig.loaded()
        assert not partition.waiters

    run(scenario)


def assigned_group():
    member = Member("m", None, "c", "/h", 60_000, 10_000, [("range", b"")])
    group = Group("g", 0)
    group.add(member, "consumer", None)
    group.generation, group.protocol, group.state = 3, "range", GroupState.STABLE
    return group


def coordinator_of(partition):
    """Return a coordinator of groups whose only partition this is."""
    clock = Clock()
    numbers = {"offsets.commit.required.acks": -1, "offsets.topic.compression.codec": 0,
               "offsets.commit.timeout.ms": 10}  # fmt: skip
    config = SimpleNamespace(
        integer=lambda name: numbers.get(name, 5_000), interval_s=lambda _: 5.0,
        text=lambda _: "3.9",
    )  # fmt: skip
    replicas = SimpleNamespace(
        clock=clock, purgatory=Purgatory(clock), hosted=lambda *_: partition
    )  # fmt: skip
    world = SimpleNamespace(clock=clock, workers=Workers())
    return GroupCoordinator(world, config, replicas, lambda: 1)


@pytest.mark.parametrize("end", ["committed", "lost"])
def test_a_loaded_assignment_is_sent_when_it_is_committed(end):
    """The simulator's seed 9620293: generation 3 had two owners of a partition.

    A leader read it beyond its high watermark and told it. The next leader, in sync, did not have
    it, went on from generation 1 and came to another generation 3.
    """

    async def scenario():
        partition, group = FakePartition(), assigned_group()
        value = group_value(group, dict.fromkeys(group.members, b"mine"))
        partition.log.add([Record(key=group_key("g"), value=value)])
        partition.log.high_watermark = 0
        coordinator = coordinator_of(partition)
        coordinator.log.on_elected(partition)
        while not partition.waiters:
            await asyncio.sleep(0)

        def told():
            results = []
            sync = Sync("g", 3, "m", None, "consumer", "range", {})
            coordinator.sync(sync, SimpleNamespace(on_result=results.append))
            return [(result.error, result.assignment) for result in results]

        assert told() == [(E.REBALANCE_IN_PROGRESS, b"")]
        if end == "committed":
            partition.commit()
            while coordinator.validate_group_status("g") is not E.NONE:
                await asyncio.sleep(0)
            assert told() == [(E.NONE, b"mine")]
        else:
            partition.waiters.pop().partition_done(0, E.NOT_LEADER_OR_FOLLOWER)
            coordinator.log.on_resigned(partition)
            assert told() == [(E.NOT_COORDINATOR, b"")]
        await coordinator.close()

    run(scenario)
