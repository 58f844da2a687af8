"""A new controller's first steps; brokers that restarted while there was none (R8, F11)."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.controller import failover
from ottla.controller.batch import LEADER_AND_ISR, UPDATE_METADATA
from ottla.controller.broker_epochs import restarted_unseen
from ottla.controller.cluster_state import ClusterState
from ottla.controller.context import Context, Settings
from ottla.controller.eligibility import Eligibility
from ottla.controller.journal import Journal
from ottla.controller.outbox import Outbox
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model.cluster import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
    UpdateResult,
)
from ottla.model.ids import TopicPartition
from ottla.wire.codec import decode_request

TP = TopicPartition("t", 0)


def context(epochs, isr, leader):
    context = Context(epoch=2)
    context.set_brokers(BrokerInfo(b, (), epoch=epoch) for b, epoch in epochs.items())
    context.add_topic(TopicInfo("t", b"i" * 16, {0: ReplicaAssignment((1, 2, 3))}))
    state = LeaderAndIsr(leader, 7, isr)
    context.leadership[TP] = LeaderIsrAndControllerEpoch(state, 1)
    return context


@pytest.mark.parametrize(
    ("epochs", "isr", "expected"),
    [
        ({1: 10, 2: 11, 3: 12}, (1, 2, 3), []),
        ({1: 60, 2: 11, 3: 12}, (1, 2, 3), [1]),
        ({1: 60, 2: 11, 3: 61}, (1, 2, 3), [1, 3]),
        # No broker is known to have stayed up: none is better than another.
        ({1: 60, 2: 61, 3: 62}, (1, 2, 3), []),
        ({1: 60}, (1,), []),
        # The others of the ISR are gone, or the one that lived on is not in it.
        ({1: 60}, (1, 2), []),
        ({1: 60, 2: 11}, (1,), []),
        # Not in the ISR: nothing to lose.
        ({1: 60, 2: 11, 3: 12}, (2, 3), []),
    ],
)
def test_members_that_restarted_since_their_state_was_written(epochs, isr, expected):
    found = restarted_unseen(context(epochs, isr, isr[0]), {TP: 50})
    assert found == [PartitionReplica(TP, b) for b in expected]


def test_topics_on_their_way_out_are_left_alone():
    there = context({1: 60, 2: 11, 3: 12}, (1, 2, 3), 1)
    there.deleting["t"] = None
    assert restarted_unseen(there, {TP: 50}) == []


# --- the first steps -----------------------------------------------------------------------------


class Cluster:
    """Brokers 1, 2 and 3; partition n is led by broker n % 3 + 1.

    `happened` has what was read, written and sent, in order: (what, partitions).
    """

    def __init__(self, partitions, dead=(1,)):
        self.context = Context(EPOCH, 9)
        live = [b for b in (1, 2, 3) if b not in dead]
        self.context.set_brokers(BrokerInfo(b, (Endpoint(f"h{b}", 1),), epoch=b) for b in live)
        assigned = {n: [(n + k) % 3 + 1 for k in range(3)] for n in range(partitions)}
        self.context.add_topic(
            TopicInfo("t", b"i" * 16, {n: ReplicaAssignment(tuple(r)) for n, r in assigned.items()})
        )
        self.states = {}
        for tp in self.context.partitions():
            replicas = self.context.assignment(tp).replicas
            state = LeaderAndIsr(replicas[0], 0, replicas, 7)
            self.states[tp] = LeaderIsrAndControllerEpoch(state, EPOCH - 1)
        self.context.leadership = dict(self.states)
        self.happened = []

    def fail_over(self):
        self.settings = Settings(2, "PLAINTEXT", delete_topics=False)
        self.journal = Journal(None, None, 2, 5)
        self.channels = self
        self.store = SimpleNamespace(
            states=SimpleNamespace(get=self.read, update=self.write),
            topics=SimpleNamespace(get_deletions=self.deletions),
            admin_requests=SimpleNamespace(is_reassigning=self.is_reassigning),
        )
        cluster, outbox = ClusterState(self), Outbox(self)
        eligibility = Eligibility(self.context, cluster)
        changes = StateChanges(self.context, self.settings, cluster, outbox, eligibility, cause=1)
        changes.states_just_read = True
        asyncio.run(failover.take_over(changes, dict.fromkeys(self.states, 0)))

    async def deletions(self, _watch):
        return []

    async def read(self, partitions):
        self.happened.append(("read", [tp.partition for tp in partitions]))
        return {tp: self.states[tp] for tp in partitions}

    async def write(self, states, epoch, _newcomers, _records):
        result = UpdateResult()
        self.happened.append(("write", [tp.partition for tp in states]))
        for tp, state in states.items():
            if state.partition_epoch != self.states[tp].leader_and_isr.partition_epoch:
                result.retry.append(tp)
                continue
            new = LeaderAndIsr(
                state.leader, state.leader_epoch, state.isr, state.partition_epoch + 1
            )
            self.states[tp] = LeaderIsrAndControllerEpoch(new, epoch)
            result.finished[tp] = new
        return result

    async def is_reassigning(self, _watch):
        return False

    def watcher(self, *_event):
        return None

    def send(self, request):
        message = decode_request(request.api_key, request.version, b"".join(request.encode()))
        sent = [s.partition_index for t in message.topic_states for s in t.partition_states]
        self.happened.append((f"{request.api_key} to {request.broker}", sent))


EPOCH = 5
EVERYBODY = (3, 2)
"""The controller's own broker last."""


def sent(key, partitions):
    return [(f"{key} to {broker}", partitions) for broker in EVERYBODY]


def test_leaders_are_elected_first_and_a_slice_is_sent_before_the_next_is_written(monkeypatch):
    """And nothing is read that was read just before."""
    monkeypatch.setattr(failover, "WRITE_SLICE", 1)
    cluster = Cluster(5)
    cluster.fail_over()
    happened = cluster.happened
    assert happened[:2] == sent(UPDATE_METADATA, []), "who lives comes first"
    slices = [happened[2:8], happened[8:14]]
    for number, metadata, (removed, elected, *requests) in zip(
        (0, 3), ([0, 1, 2, 3, 4], [3]), slices, strict=True
    ):
        assert removed == elected == ("write", [number])
        assert sorted(requests) == sorted(
            sent(LEADER_AND_ISR, [number]) + sent(UPDATE_METADATA, metadata)
        )
    assert happened[14] == ("write", [1, 2, 4]), "the other ISRs with the dead broker"
    assert [what for what, _ in happened[15:]].count("write") == 0
    assert "read" not in [what for what, _ in happened]


@pytest.mark.parametrize("dead", [(), (1,)])
@pytest.mark.parametrize("partitions", [1, 5])
def test_the_first_metadata_of_topics_names_all_partitions(dead, partitions):
    """A broker that has just started would take fewer for all there are."""
    cluster = Cluster(partitions, dead)
    cluster.fail_over()
    metadata = [
        sorted(some)
        for what, some in cluster.happened
        if what == f"{UPDATE_METADATA} to 3" and some
    ]
    assert metadata[0] == list(range(partitions))


def test_a_jvm_broker_is_sent_all_its_replicas_first():
    """It writes its file of high watermarks anew at its first LeaderAndIsr."""
    cluster = Cluster(5)
    cluster.context.unstated = {1, 3}
    cluster.fail_over()
    everything = [0, 1, 2, 3, 4]
    requests = [(what, some) for what, some in cluster.happened if "to 3" in what]
    assert requests[:3] == [
        (f"{UPDATE_METADATA} to 3", []),
        (f"{LEADER_AND_ISR} to 3", everything),
        (f"{UPDATE_METADATA} to 3", everything),
    ]
    all_of_it = (f"{LEADER_AND_ISR} to 3", everything)
    assert cluster.happened.index(all_of_it) < cluster.happened.index(("write", [0, 3]))
    assert cluster.happened.count(all_of_it) == 1
    assert cluster.context.replica_states[PartitionReplica(TP, 3)] is ReplicaState.ONLINE


def test_each_partition_is_written_as_by_kafka():
    cluster = Cluster(3)
    cluster.fail_over()
    by_partition = {tp.partition: s.leader_and_isr for tp, s in cluster.states.items()}
    # Out of the ISR, without a leader, then elected; the others only out of the ISR.
    assert by_partition == {
        0: LeaderAndIsr(2, 2, (2, 3), 9),
        1: LeaderAndIsr(2, 1, (2, 3), 8),
        2: LeaderAndIsr(3, 1, (3, 2), 8),
    }
    states = cluster.context.partition_states
    assert states.all_in(PartitionState.ONLINE) == list(cluster.states)
    replicas = cluster.context.replica_states
    for tp in cluster.states:
        assert replicas[PartitionReplica(tp, 1)] is ReplicaState.OFFLINE
        assert replicas[PartitionReplica(tp, 2)] is ReplicaState.ONLINE


def test_a_state_that_changed_since_it_was_read_is_read_and_decided_once_more():
    """By a leader of an older version, which writes its ISR itself: broker 2 left it."""
    cluster = Cluster(1)
    newer = LeaderAndIsr(1, 0, (1, 3), 8)
    cluster.states[TP] = LeaderIsrAndControllerEpoch(newer, EPOCH - 1)
    cluster.fail_over()
    assert cluster.states[TP].leader_and_isr == LeaderAndIsr(3, 2, (3,), 10)
    assert [what for what, _ in cluster.happened if what in ("read", "write")] == [
        "write", "read", "write", "write",
    ]  # fmt: skip
