"""A parked produce: final results, once."""

import types

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.replication import partition as partitions
from ottla.replication.isr import IsrState
from ottla.replication.partition_state import AdvanceHighWatermark
from ottla.replication.producing import ParkedProduce, PartitionResult


class Purgatory:
    live = 0

    def __init__(self):
        self.queue = []

    def enqueue(self, operation):
        self.queue.append(operation)


class Partition:
    def __init__(self, isr, min_isr):
        self.isr = IsrState.of(isr)
        self.min_isr = min_isr
        self.waiters = []
        self.host = types.SimpleNamespace(may_propose=True)

    def await_high_watermark(self, waiter):
        self.waiters.append(waiter)


@pytest.fixture
def parked():
    purgatory = Purgatory()
    ended = []
    results = [PartitionResult("t", 0), PartitionResult("t", 1)]
    operation = ParkedProduce(purgatory, results, ended.append)
    partitions = [Partition((1, 2), 2), Partition((1, 2), 2)]
    for result, partition in zip(results, partitions, strict=True):
        operation.wait(result, partition, 5)
    return types.SimpleNamespace(
        purgatory=purgatory,
        ended=ended,
        results=results,
        operation=operation,
        partitions=partitions,
    )


def codes(parked):
    return [r.code for r in parked.results]


def test_the_last_partition_ends_it(parked):
    parked.results[1].reached(parked.partitions[1])
    assert not parked.purgatory.queue
    parked.results[0].reached(parked.partitions[0])
    assert parked.purgatory.queue == [parked.operation]
    assert not parked.ended  # not within the step that made it possible
    parked.operation.attempt()
    assert parked.ended == [parked.operation]
    assert codes(parked) == [ErrorCode.NONE, ErrorCode.NONE]


def test_too_few_in_sync_when_the_offset_is_reached(parked):
    parked.partitions[0].isr = IsrState.of((1,))
    parked.results[0].reached(parked.partitions[0])
    assert parked.results[0].code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_time_over_without_a_session_sends_clients_to_look_for_the_leader(parked):
    parked.partitions[1].host.may_propose = False
    parked.operation.expire()
    assert codes(parked) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_time_over(parked):
    parked.results[0].reached(parked.partitions[0])
    parked.operation.expire()
    assert codes(parked) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    parked.results[1].reached(parked.partitions[1])  # too late: the answer has left
    assert codes(parked) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    assert parked.ended == [parked.operation]


def test_leadership_lost(parked):
    for result in parked.results:
        result.lost(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert codes(parked) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert parked.purgatory.queue == [parked.operation]


class Waiter:
    def __init__(self, required_offset):
        self.required_offset = required_offset
        self.open = True

    def reached(self, partition):
        self.open = False


@pytest.fixture
def waited_for():
    host = types.SimpleNamespace(broker_id=1, lag_ms=1000.0)
    partition = partitions.Partition(TopicPartition("t", 0), host)
    partition.log = types.SimpleNamespace(set_high_watermark=lambda _: None)
    return types.SimpleNamespace(
        partition=partition,
        reach=lambda offset: partition._perform((AdvanceHighWatermark(offset),)),
    )


def test_a_batch_sent_twice_does_not_wait_for_those_after_it(waited_for):
    waiters = {offset: Waiter(offset) for offset in (10, 20, 30)}
    for offset in (10, 30, 20):
        waited_for.partition.await_high_watermark(waiters[offset])
    again = Waiter(10)
    waited_for.partition.await_high_watermark(again)
    waited_for.reach(10)
    assert not again.open
    assert [o for o, w in waiters.items() if w.open] == [20, 30]
    waited_for.reach(20)
    assert [o for o, w in waiters.items() if w.open] == [30]


def test_who_gave_up_does_not_wait_for_ever(waited_for):
    """While the watermark stands still, clients come, run out of time, and come again."""
    kept = [Waiter(5), Waiter(10**6)]
    waited_for.partition.await_high_watermark(kept[0])
    for number in range(10_000):
        waiter = Waiter(10 + number)
        waited_for.partition.await_high_watermark(waiter)
        waiter.open = False
    waited_for.partition.await_high_watermark(kept[1])
    assert len(waited_for.partition._waiters) <= 2 * partitions.SWEEP_FROM
    waited_for.reach(10**6)
    assert [w.open for w in kept] == [False, False]


def test_a_client_that_left_waits_no_more(parked):
    parked.operation.drop()
    assert [r.open for r in parked.results] == [False, False]
