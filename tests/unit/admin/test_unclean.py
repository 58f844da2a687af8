"""Unclean elections before they are held: who would lead, what is lost, what to do instead."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.unclean_elections import Preview, first_difference
from ottla.controller.elections import ElectionKind, elect
from ottla.model.cluster import LeaderAndIsr, ReplicaAssignment
from ottla.model.ids import TopicPartition
from ottla.placement.election_losses import Candidate, LogEnd, Loss, leader_of, losses, parts
from ottla.wire.records import Record, build_batch

TP = TopicPartition("t", 0)


def dead(broker, *, in_sync=False):
    return Candidate(broker, alive=False, in_sync=in_sync, end=None)


def live(broker, epoch, offset, *, in_sync=False):
    return Candidate(broker, alive=True, in_sync=in_sync, end=LogEnd(epoch, offset))


def silent(broker):
    return Candidate(broker, alive=True, in_sync=False, end=None)


def preview(*candidates, longest_log=True):
    return Preview(TP, candidates, leader_of(candidates, longest_log=longest_log))


def test_apache_kafka_elects_the_first_ottla_the_longest_log():
    candidates = (dead(0, in_sync=True), live(1, 3, 50), live(2, 3, 90))
    assert leader_of(candidates, longest_log=False) == 1
    assert leader_of(candidates, longest_log=True) == 2
    assert leader_of((live(1, 3, 90), live(2, 4, 10)), longest_log=True) == 2, "epoch first"
    assert leader_of((live(1, 3, 90), live(2, 3, 90)), longest_log=True) == 1, "the first of equals"


def test_without_a_live_replica_nobody_leads():
    found = preview(dead(0, in_sync=True), dead(1))
    assert found.leader is None
    assert found.losses() == []
    assert found.recommendation == "start broker 0: no replica is alive that could lead"


def test_what_a_dead_replica_in_sync_has_is_lost_from_the_end_of_the_new_leader_on():
    found = preview(dead(0, in_sync=True), live(1, 3, 50))
    assert found.losses() == [Loss(0, 50, None)]
    assert str(found.losses()[0]) == "what broker 0 has from offset 50 on"
    assert found.recommendation.startswith("start broker 0 first: in sync")


def test_a_longer_log_loses_what_it_has_more():
    candidates = (dead(0, in_sync=True), live(1, 3, 50), live(2, 3, 90))
    assert losses(candidates, 1) == [Loss(0, 50, None), Loss(2, 50, 89)]
    assert str(losses(candidates, 1)[1]) == "offsets 50 to 89 of broker 2"
    assert losses(candidates, 2) == [Loss(0, 90, None)]


def test_logs_of_different_leader_epochs_may_differ_earlier():
    assert losses((live(1, 2, 50), live(2, 3, 90)), 1) == [Loss(2, 50, 89, earlier=True)]
    shorter = losses((live(1, 2, 50), live(2, 3, 40)), 1)
    assert shorter == [Loss(2, 39, 39, earlier=True)]
    assert "or from an earlier one" in str(shorter[0])


def test_where_logs_part_is_known_from_their_batches():
    candidates = (live(1, 2, 50), live(2, 3, 90), live(3, 3, 40))
    assert parts(candidates, 1) == [2, 3]
    assert losses(candidates, 1, {2: 30, 3: 40}) == [Loss(2, 30, 89)], "3 has nothing else"
    found = Preview(TP, candidates, 1, {2: 30, 3: 20})
    assert found.losses() == [Loss(2, 30, 89), Loss(3, 20, 39)]
    assert all(loss.earlier is False for loss in found.losses(2)), "known of leader 1 only"


class Replicas:
    """Answers Fetch and ListOffsets for logs that part somewhere."""

    def __init__(self, **logs):
        self.logs = {int(k[1:]): v for k, v in logs.items()}
        self.fetches = 0

    async def call(self, request, broker, **_):
        batches = self.logs[broker]
        if type(request).__name__ == "ListOffsetsRequest":
            assert request.replica_id == -2
            found = SimpleNamespace(
                partition_index=0, error_code=0, offset=batches[0][0], leader_epoch=0
            )
            return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[found])])
        self.fetches += 1
        offset = request.topics[0].partitions[0].fetch_offset
        data = next(data for base, last, data in batches if base <= offset <= last)
        found = SimpleNamespace(partition_index=0, error_code=0, records=data)
        topic = SimpleNamespace(topic="t", partitions=[found])
        return SimpleNamespace(error_code=0, responses=[topic])


def log_of(sizes, epochs):
    base, found = 0, []
    for size, epoch in zip(sizes, epochs, strict=True):
        records = [Record(base + i, 1000, None, b"%d" % epoch) for i in range(size)]
        data = build_batch(records, base_offset=base, leader_epoch=epoch)
        found.append((base, base + size - 1, data))
        base += size
    return found


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.data())
def test_halving_finds_the_first_batch_that_differs(sizes, data):
    """The plain model: look at each batch from the beginning on."""
    n = data.draw(st.integers(0, len(sizes)))
    one = log_of(sizes, [1] * len(sizes))
    other = log_of(sizes, [1] * n + [2] * (len(sizes) - n))
    end = sum(sizes)
    client = Replicas(b1=one, b2=other)
    found = asyncio.run(first_difference(client, TP, 1, 2, end))
    assert found == sum(sizes[:n])
    assert client.fetches <= 2 * (end.bit_length() + 1)


def test_a_replica_that_does_not_respond_is_not_taken_for_empty():
    candidates = (dead(0, in_sync=True), silent(1), live(2, 0, 7))
    assert leader_of(candidates, longest_log=True) == 2
    lost = losses(candidates, 1)
    assert lost == [Loss(0, None, None), Loss(2, None, 6)]
    assert str(lost[1]) == "an unknown part of what broker 2 has"
    assert losses(candidates, 2) == [Loss(0, 7, None)], "1 was not in sync"


def test_a_live_replica_in_sync_will_lead_without_an_unclean_election():
    found = preview(dead(0), live(1, 3, 50, in_sync=True))
    assert found.leader == 1
    assert found.recommendation.startswith("hold no unclean election")


@pytest.mark.parametrize("longest_log", [True, False])
@given(
    drawn=st.lists(
        st.tuples(st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 5)),
        min_size=1,
        max_size=5,
    )
)
def test_who_would_lead_is_who_our_controller_elects(longest_log, drawn):
    """The independent truth is the controller's own rule: `elections.elect`."""
    candidates = [
        Candidate(b, alive, in_sync, LogEnd(epoch, end) if alive else None)
        for b, (alive, in_sync, epoch, end) in enumerate(drawn)
    ]
    isr = tuple(c.broker for c in candidates if c.in_sync)
    replicas = tuple(c.broker for c in candidates)
    ends = {c.broker: tuple(c.end) for c in candidates if c.end is not None}
    outcome = elect(
        ElectionKind.UNCLEAN,
        ReplicaAssignment(replicas),
        LeaderAndIsr(-1, 5, isr),
        lambda b: candidates[b].alive,
        ends=ends if longest_log else None,
    )
    expected = None if outcome.state is None else outcome.state.leader
    assert leader_of(candidates, longest_log=longest_log) == expected
