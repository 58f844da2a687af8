"""Every state change of both state machines, one by one, and what it writes and sends.

The cases are those of Kafka's PartitionStateMachineTest and ReplicaStateMachineTest, under their
names (docs/CHECKLIST.md). The store is a table of states; what brokers are sent is noted.
"""

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from ottla.controller.batch import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ottla.controller.cluster_state import ClusterState
from ottla.controller.context import Context, Settings
from ottla.controller.elections import ElectionKind
from ottla.controller.eligibility import Eligibility
from ottla.controller.journal import Journal
from ottla.controller.outbox import Outbox
from ottla.controller.plan import Failure
from ottla.controller.requests import alter_partition
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionReplica,
    PartitionState,
    ReplicaState,
)
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
from ottla.wire.messages.control import AlterPartitionRequest
from ottla.zookeeper.errors import ConnectionLossError, NodeExistsError, NoNodeError

P, R = PartitionState, ReplicaState
TP = TopicPartition("t", 0)
REPLICA = PartitionReplica(TP, 1)
EPOCH = 5


class States:
    """The state znodes, and ways in which they fail."""

    def __init__(self):
        self.states = {}
        self.create_error = None
        self.read_error = None
        self.update_error = None
        self.settings = {}
        self.updates = 0
        self.writes = []
        self.newcomers = None

    async def get(self, partitions):
        if self.read_error is not None:
            raise self.read_error
        return {tp: self.states[tp] for tp in partitions if tp in self.states}

    async def create(self, states):
        if isinstance(self.create_error, ConnectionLossError):
            raise self.create_error
        if self.create_error is None:
            self.states.update(states)
        return dict.fromkeys(states, self.create_error)

    async def update(self, states, epoch, newcomers, _records):
        assert epoch == EPOCH
        self.newcomers = newcomers
        self.writes.append(len(states))
        result = UpdateResult()
        for tp, state in states.items():
            self.updates += 1
            if self.update_error is not None:
                result.finished[tp] = self.update_error
                continue
            new = LeaderAndIsr(
                state.leader, state.leader_epoch, state.isr, state.partition_epoch + 1,
                state.recovery_state,
            )  # fmt: skip
            self.states[tp] = LeaderIsrAndControllerEpoch(new, epoch)
            result.finished[tp] = new
        return result

    async def get_many(self, _kind, names):
        return {name: self.settings.get(name, {}) for name in names}


class World:
    def __init__(self, *live, replicas=(1, 2, 3), topic="t", controller_id=9):
        self.context = Context(EPOCH, 9)
        self.context.set_brokers(BrokerInfo(b, (Endpoint(f"h{b}", 1),), epoch=b) for b in live)
        self.context.add_topic(TopicInfo(topic, b"i" * 16, {0: ReplicaAssignment(replicas)}))
        self.znodes = States()
        self.store = SimpleNamespace(states=self.znodes, configs=self.znodes)
        self.sent = []
        self.unclean = False
        self.settings = Settings(controller_id, "PLAINTEXT")
        self.journal = Journal(None, None, 1, EPOCH)  # without a sink it asks for no time
        self.channels = self
        cluster, outbox = ClusterState(self), Outbox(self)
        eligibility = Eligibility(self.context, cluster)
        self.changes = StateChanges(
            self.context, self.settings, cluster, outbox, eligibility, cause=1
        )

    def unclean_by_default(self):
        return self.unclean

    def partitions(self, *how):
        return asyncio.run(self.changes.partitions(*how))

    def replicas(self, *how):
        return asyncio.run(self.changes.replicas(*how))

    def send(self, request):
        message = decode_request(request.api_key, request.version, b"".join(request.encode()))
        self.sent.append((request.broker, request.api_key, message))

    def known(self, leader, isr, epoch=0):
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, epoch, tuple(isr), 7), EPOCH)
        self.context.leadership[TP] = self.znodes.states[TP] = state

    def partition(self, before, after, kind=None):
        self.context.partition_states.begin(TP, before)
        return self.partitions([TP], after, kind)

    def replica(self, before, after, replica=REPLICA):
        self.context.replica_states.begin(replica, before)
        self.replicas([replica], after)
        return self.context.replica_states[replica]

    @property
    def state(self):
        return self.context.partition_states[TP]

    @property
    def leadership(self):
        return self.context.leadership[TP].leader_and_isr

    def who(self, api):
        return [broker for broker, key, _ in self.sent if key == api]


# --- PartitionStateMachineTest ------------------------------------------------------------------

ILLEGAL_PARTITIONS = [
    (before, after)
    for before, after in itertools.product(P, P)
    if before not in PARTITION_TRANSITIONS[after]
]


@pytest.mark.parametrize(
    ("before", "after"), ILLEGAL_PARTITIONS, ids=lambda s: s.name.lower().replace("_", "-")
)
def test_an_illegal_change_of_a_partition_changes_nothing(before, after):
    world = World(1)
    if before is P.NON_EXISTENT:
        assert world.partitions([TP], after, ElectionKind.OFFLINE) == {}
    else:
        assert world.partition(before, after, ElectionKind.OFFLINE) == {}
    assert world.state is before
    assert not world.sent


def test_nonexistent_to_new():
    world = World(1)
    world.partitions([TP], P.NEW)
    assert world.state is P.NEW
    assert not world.sent


def test_new_to_online():
    world = World(1, 2)
    world.partition(P.NEW, P.ONLINE)
    assert world.state is P.ONLINE
    assert world.leadership == LeaderAndIsr(1, 0, (1, 2), 0)
    assert world.znodes.states[TP].controller_epoch == EPOCH
    assert world.who(LEADER_AND_ISR) == [1, 2]
    (message,) = [m for b, key, m in world.sent if (b, key) == (1, LEADER_AND_ISR)]
    assert message.topic_states[0].partition_states[0].is_new


def test_new_to_online_without_zookeeper():
    world = World(1)
    world.znodes.create_error = ConnectionLossError("test")
    with pytest.raises(ConnectionLossError):
        world.partition(P.NEW, P.ONLINE)
    assert world.state is P.NEW
    assert not world.sent


def test_new_to_online_with_a_state_already_there():
    world = World(1)
    world.znodes.create_error = NodeExistsError("test")
    world.partition(P.NEW, P.ONLINE)
    assert world.state is P.NEW
    assert world.who(LEADER_AND_ISR) == []
    assert TP not in world.context.leadership


def test_new_to_online_without_live_replicas():
    world = World(7)
    world.partition(P.NEW, P.ONLINE)
    assert world.state is P.NEW
    assert TP not in world.znodes.states


@pytest.mark.parametrize("before", [P.NEW, P.ONLINE])
def test_to_offline(before):
    world = World(1)
    world.known(1, [1])
    world.partition(before, P.OFFLINE)
    assert world.state is P.OFFLINE
    assert not world.znodes.updates


def test_online_to_online():
    world = World(1, 2)
    world.known(2, [2, 1])
    world.partition(P.ONLINE, P.ONLINE, ElectionKind.PREFERRED)
    assert world.state is P.ONLINE
    assert world.leadership == LeaderAndIsr(1, 1, (2, 1), 8)
    assert world.who(LEADER_AND_ISR) == [1, 2]
    assert not world.sent[0][2].topic_states[0].partition_states[0].is_new


def test_online_to_online_for_controlled_shutdown():
    world = World(1, 2)
    world.context.shutting_down.add(1)
    world.known(1, [1, 2])
    world.partition(P.ONLINE, P.ONLINE, ElectionKind.CONTROLLED_SHUTDOWN)
    assert world.leadership == LeaderAndIsr(2, 1, (2,), 8)
    assert world.who(LEADER_AND_ISR) == [1, 2], "the one that shuts down is told, too"


def test_offline_to_online():
    world = World(1)
    world.known(-1, [1])
    world.partition(P.OFFLINE, P.ONLINE, ElectionKind.OFFLINE)
    assert world.state is P.ONLINE
    assert world.leadership == LeaderAndIsr(1, 1, (1,), 8)
    assert world.who(LEADER_AND_ISR) == [1]


def test_two_thousand_partitions_are_elected_together():
    """In steps of a thousand the last one of 1,001 was led a tenth of a second after the others."""
    world, count = World(2, 3), 2000
    partitions = [TopicPartition("t", n) for n in range(count)]
    assignments = {n: ReplicaAssignment((1, 2, 3)) for n in range(count)}
    world.context.add_topic(TopicInfo("t", b"i" * 16, assignments))
    for tp in partitions:
        led = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2, 3), 7), EPOCH)
        world.context.leadership[tp] = world.znodes.states[tp] = led
        world.context.partition_states.begin(tp, P.OFFLINE)
    world.partitions(partitions, P.ONLINE, ElectionKind.OFFLINE)
    assert world.znodes.writes == [count]
    after = {world.context.leadership[tp].leader_and_isr for tp in partitions}
    assert after == {LeaderAndIsr(2, 1, (2, 3), 8)}, "each is settled"
    assert world.who(LEADER_AND_ISR) == [2, 3]


@pytest.mark.parametrize("where", ["broker", "topic"])
def test_offline_to_online_uncleanly(where):
    world = World(2)
    world.known(1, [1])
    world.unclean = where == "broker"
    world.znodes.settings["t"] = (
        {"unclean.leader.election.enable": "true"} if where == "topic" else {}
    )
    world.partition(P.OFFLINE, P.ONLINE, ElectionKind.OFFLINE)
    assert world.leadership == LeaderAndIsr(2, 1, (2,), 8, 1)
    assert world.who(LEADER_AND_ISR) == [2]


def test_an_unclean_election_that_the_topic_forbids():
    world = World(2)
    world.known(1, [1])
    world.unclean = True
    world.znodes.settings["t"] = {"unclean.leader.election.enable": "false"}
    outcomes = world.partition(P.OFFLINE, P.ONLINE, ElectionKind.OFFLINE)
    assert isinstance(outcomes[TP], Failure)
    assert world.state is P.OFFLINE


def test_offline_to_online_without_zookeeper():
    world = World(1)
    world.known(1, [1])
    world.znodes.read_error = ConnectionLossError("test")
    with pytest.raises(ConnectionLossError):
        world.partition(P.OFFLINE, P.ONLINE, ElectionKind.OFFLINE)
    assert world.state is P.OFFLINE
    assert not world.sent


@pytest.mark.parametrize("case", ["no state", "cannot be written"])
def test_offline_to_online_with_an_error(case):
    world = World(1)
    world.known(1, [1])
    if case == "no state":
        del world.znodes.states[TP]
    else:
        world.znodes.update_error = NoNodeError("test")
    outcomes = world.partition(P.OFFLINE, P.ONLINE, ElectionKind.OFFLINE)
    assert isinstance(outcomes[TP], Failure)
    assert world.state is P.OFFLINE
    assert world.who(LEADER_AND_ISR) == []


def test_offline_to_nonexistent():
    world = World(1)
    world.partition(P.OFFLINE, P.NON_EXISTENT)
    assert world.state is P.NON_EXISTENT


def test_offline_partitions_are_counted():
    world = World(1, replicas=(1,))
    for before, after, count in (
        (P.NEW, P.OFFLINE, 1),
        (P.OFFLINE, P.OFFLINE, 1),
        (P.OFFLINE, P.NON_EXISTENT, 0),
        (P.ONLINE, P.OFFLINE, 1),
    ):
        world.partition(before, after)
        assert world.context.statistics()["offline_partitions"] == count, (before, after)
    world.known(1, [1])
    world.partition(P.OFFLINE, P.ONLINE, ElectionKind.OFFLINE)
    assert world.context.statistics()["offline_partitions"] == 0


def test_topics_on_their_way_out_are_not_counted_as_offline():
    world = World(1)
    world.context.deleting["t"] = None
    world.context.deletion_started.add("t")
    world.partition(P.ONLINE, P.OFFLINE)
    assert world.context.statistics()["offline_partitions"] == 0
    world.partition(P.OFFLINE, P.NON_EXISTENT)
    assert world.context.statistics()["offline_partitions"] == 0


def test_a_topic_that_begins_to_be_deleted_is_no_longer_counted():
    world = World(1)
    world.partition(P.ONLINE, P.OFFLINE)
    assert world.context.statistics()["offline_partitions"] == 1
    world.context.deletion_started.add("t")
    assert world.context.statistics()["offline_partitions"] == 0


# --- ReplicaStateMachineTest --------------------------------------------------------------------

ILLEGAL_REPLICAS = [
    (before, after)
    for before, after in itertools.product(R, R)
    if before not in REPLICA_TRANSITIONS[after]
]


@pytest.mark.parametrize(
    ("before", "after"), ILLEGAL_REPLICAS, ids=lambda s: s.name.lower().replace("_", "-")
)
def test_an_illegal_change_of_a_replica_changes_nothing(before, after):
    world = World(1, 2)
    world.known(1, [1, 2])
    if before is R.NON_EXISTENT:
        world.replicas([REPLICA], after)
        assert world.context.replica_states[REPLICA] is before
    else:
        assert world.replica(before, after) is before
    assert not world.sent
    assert not world.znodes.updates


def test_replica_nonexistent_to_new():
    world = World(1, 2)
    world.known(2, [2])
    world.replicas([REPLICA], R.NEW)
    assert world.context.replica_states[REPLICA] is R.NEW
    assert world.who(LEADER_AND_ISR) == [1]
    assert world.sent[0][2].topic_states[0].partition_states[0].is_new


def test_a_replica_that_leads_cannot_be_new():
    world = World(1)
    world.known(1, [1])
    world.replicas([REPLICA], R.NEW)
    assert world.context.replica_states[REPLICA] is R.NON_EXISTENT
    assert not world.sent


def test_replica_new_to_online():
    world = World(1)
    assert world.replica(R.NEW, R.ONLINE) is R.ONLINE
    assert not world.sent, "it was told when it was new"


def test_replica_new_to_offline():
    world = World(1, 2)
    assert world.replica(R.NEW, R.OFFLINE) is R.OFFLINE
    assert world.who(STOP_REPLICA) == [1]
    assert not world.sent[-1][2].topic_states[0].partition_states[0].delete_partition
    assert set(world.who(UPDATE_METADATA)) == {1, 2}


@pytest.mark.parametrize("before", [R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE])
def test_replica_to_online(before):
    world = World(1, 2)
    world.known(2, [2, 1])
    assert world.replica(before, R.ONLINE) is R.ONLINE
    assert world.who(LEADER_AND_ISR) == [1]
    sent = world.sent[0][2].topic_states[0].partition_states[0]
    assert (sent.leader, sent.isr, sent.is_new) == (2, [2, 1], False)


def test_replica_online_to_offline():
    world = World(1, 2, 3)
    world.known(1, [1, 2, 3])
    assert world.replica(R.ONLINE, R.OFFLINE) is R.OFFLINE
    assert world.leadership == LeaderAndIsr(-1, 1, (2, 3), 8)
    assert world.who(STOP_REPLICA) == [1]
    assert world.who(LEADER_AND_ISR) == [2, 3]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (R.OFFLINE, R.DELETION_INELIGIBLE),
        (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
        (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
    ],
)
def test_replica_changes_that_no_broker_is_sent(before, after):
    world = World(1)
    assert world.replica(before, after) is after
    assert not world.sent


def test_replica_offline_to_deletion_started():
    world = World(1)
    assert world.replica(R.OFFLINE, R.DELETION_STARTED) is R.DELETION_STARTED
    ((broker, key, message),) = world.sent
    assert (broker, key) == (1, STOP_REPLICA)
    assert message.topic_states[0].partition_states[0].delete_partition


def test_replica_deletion_successful_to_nonexistent():
    world = World(1)
    assert world.replica(R.DELETION_SUCCESSFUL, R.NON_EXISTENT) is R.NON_EXISTENT
    assert world.context.assignment(TP) == ReplicaAssignment((2, 3))
    assert not world.sent


# --- the order in which requests are queued ---------------------------------------------------


def test_the_controllers_own_broker_is_sent_its_requests_after_the_others():
    """It would handle them in this process before anything is sent to the others."""
    world = World(1, 2, 3, controller_id=1)
    world.known(2, [1, 2, 3])
    assert world.replica(R.ONLINE, R.ONLINE) is R.ONLINE
    assert [(b, key) for b, key, _ in world.sent] == [
        (2, UPDATE_METADATA),
        (3, UPDATE_METADATA),
        (1, LEADER_AND_ISR),
        (1, UPDATE_METADATA),
    ]


# --- AlterPartition -----------------------------------------------------------------------------


def test_r18_the_write_of_an_isr_names_the_registrations_of_those_let_in():
    """So the store can refuse it for one that registered anew (tests/contracts)."""
    world = World(1, 2, 3)
    world.known(1, (1, 2))
    isr = [
        AlterPartitionRequest.BrokerState(broker_id=b, broker_epoch=world.context.brokers[b].epoch)
        for b in (1, 2, 3)
    ]
    partition = AlterPartitionRequest.PartitionData(
        partition_index=0, leader_epoch=0, new_isr_with_epochs=isr, partition_epoch=7
    )
    topic = AlterPartitionRequest.TopicData(topic_id=b"i" * 16, partitions=[partition])
    request = AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[topic])
    asyncio.run(alter_partition(world.changes, request, [].append))
    assert world.leadership.isr == (1, 2, 3)
    assert world.znodes.newcomers == {TP: {3: world.context.brokers[3].epoch}}
