"""A produce that waits: one token, final results, once."""

import types

import pytest

from ottla.log.log import AppendInfo
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.replication import partition as partitions
from ottla.replication.delayed_produce import DelayedProduce, PartitionResult


class Purgatory:
    def __init__(self):
        self.queue = []
        self.parked = []

    def enqueue(self, operation):
        self.queue.append(operation)

    def park(self, operation, wait_ms):
        self.parked.append((operation, wait_ms))


class Connection:
    def __init__(self):
        self.responded = []

    def completed(self, pending):
        self.responded.append(pending.parts)


class Produce(DelayedProduce):
    """Answers with the codes."""

    def respond(self):
        return [result.code for result in self.results]


def partition(host, min_insync_replicas=1):
    made = partitions.Partition(TopicPartition("t", 0), host)
    config = types.SimpleNamespace(min_insync_replicas=min_insync_replicas)
    made.log = types.SimpleNamespace(set_high_watermark=lambda _: None, config=config)
    return made


def reach(which, offset):
    which.advance_high_watermark(offset)


@pytest.fixture
def parked():
    """One produce of two partitions, whose last offset is 4."""
    purgatory, connection = Purgatory(), Connection()
    host = types.SimpleNamespace(broker_id=1, lag_ms=1000.0, may_propose=True, purgatory=purgatory)
    results = [PartitionResult("t", 0), PartitionResult("t", 1)]
    for result in results:
        result.info = AppendInfo(4, 4, -1, -1, 0, False, 70, 1)
    two = [partition(host), partition(host)]
    for one in two:
        one.state.isr = one.state.isr.of((1, 2))
    operation = Produce(connection, host, results, pipelined=True)
    operation.wait(list(enumerate(two)), 500)
    return types.SimpleNamespace(
        host=host,
        purgatory=purgatory,
        responded=connection.responded,
        operation=operation,
        partitions=two,
    )


def test_the_last_partition_ends_it(parked):
    assert parked.purgatory.parked == [(parked.operation, 500)]
    reach(parked.partitions[1], 5)
    assert not parked.purgatory.queue
    reach(parked.partitions[0], 4)
    assert not parked.purgatory.queue, "the record at offset 4 is not below it"
    reach(parked.partitions[0], 5)
    assert parked.purgatory.queue == [parked.operation]
    assert not parked.responded  # not within the step that made it possible
    parked.operation.attempt()
    assert parked.responded == [[ErrorCode.NONE, ErrorCode.NONE]]


def test_too_few_in_sync_when_the_offset_is_reached(parked):
    first = parked.partitions[0]
    first.log.config.min_insync_replicas = 2
    first.state.isr = first.state.isr.of(())
    reach(first, 5)
    reach(parked.partitions[1], 5)
    parked.operation.attempt()
    assert parked.responded == [[ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NONE]]


def test_time_over_without_a_session_sends_clients_to_look_for_the_leader(parked):
    parked.host.may_propose = False
    parked.operation.expire()
    assert parked.responded == [[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2]


def test_time_over(parked):
    reach(parked.partitions[0], 5)
    parked.operation.expire()
    assert parked.responded == [[ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]]
    reach(parked.partitions[1], 5)  # too late: the response has left
    assert [r.code for r in parked.operation.results][1] is ErrorCode.REQUEST_TIMED_OUT
    assert not parked.purgatory.queue
    assert len(parked.responded) == 1


def test_leadership_lost(parked):
    for one in parked.partitions:
        one.fail_produces(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert parked.purgatory.queue == [parked.operation]
    parked.operation.attempt()
    assert parked.responded == [[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2]


def test_a_client_that_left_waits_no_more(parked):
    parked.operation.drop()
    for one in parked.partitions:
        reach(one, 5)
    assert not parked.purgatory.queue
    assert not parked.responded


class Waiter:
    def __init__(self):
        self.done = False

    def partition_done(self, slot, code):
        assert (slot, code) == (0, ErrorCode.NONE)
        self.done = True


@pytest.fixture
def waited_for():
    return partition(types.SimpleNamespace(broker_id=1, lag_ms=1000.0), min_insync_replicas=0)


def test_a_batch_sent_twice_does_not_wait_for_those_after_it(waited_for):
    waiters = {offset: Waiter() for offset in (10, 20, 30)}
    for offset in (10, 30, 20):
        waited_for.await_high_watermark(offset, waiters[offset])
    again = Waiter()
    waited_for.await_high_watermark(10, again)
    reach(waited_for, 10)
    assert again.done
    assert [o for o, w in waiters.items() if not w.done] == [20, 30]
    reach(waited_for, 20)
    assert [o for o, w in waiters.items() if not w.done] == [30]


def test_who_gave_up_does_not_wait_for_ever(waited_for):
    """While the watermark stands still, clients come, run out of time, and come again."""
    kept = [Waiter(), Waiter()]
    waited_for.await_high_watermark(5, kept[0])
    for number in range(10_000):
        waiter = Waiter()
        waited_for.await_high_watermark(10 + number, waiter)
        waiter.done = True
    waited_for.await_high_watermark(10**6, kept[1])
    assert len(waited_for._waiters) <= 2 * partitions.SWEEP_FROM
    kept_done = [w.done for w in kept]
    reach(waited_for, 10**6)
    assert (kept_done, [w.done for w in kept]) == ([False, False], [True, True])
