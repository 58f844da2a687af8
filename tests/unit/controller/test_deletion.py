"""What a broker's response to StopReplica does to a deletion, by itself."""

import asyncio
import types

import pytest

from ottla.controller import deletion, handlers
from ottla.controller.context import Context
from ottla.controller.states import PartitionReplica, ReplicaState
from ottla.model.cluster import ReplicaAssignment, TopicInfo
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.control import StopReplicaResponse

FOO, BAR = TopicPartition("foo", 0), TopicPartition("bar", 0)


class StateChanges:
    """Notes which replicas changed into which state."""

    def __init__(self, context):
        self.context = context
        self.settings = types.SimpleNamespace(delete_topics=True)
        self.outbox = types.SimpleNamespace(record=lambda _event: None)
        self.changed = []

    async def replicas(self, replicas, state):
        self.changed += [(replica, state.name) for replica in replicas]


@pytest.fixture
def changes(monkeypatch):
    async def later(_changes):
        """What comes next is in the stories."""

    monkeypatch.setattr(deletion, "proceed", later)
    context = Context(1, 0)
    for topic in ("foo", "bar"):
        context.add_topic(TopicInfo(topic, topic.encode() * 6, {0: ReplicaAssignment((2,))}))
        replica = PartitionReplica(TopicPartition(topic, 0), 2)
        context.replica_states.begin(replica, ReplicaState.DELETION_STARTED)
    return StateChanges(context)


def answered(changes, deletes, error=ErrorCode.NONE, partition_error=ErrorCode.NONE):
    item = StopReplicaResponse.StopReplicaPartitionError
    response = StopReplicaResponse(
        error_code=error,
        partition_errors=[
            item(topic_name=tp.topic, partition_index=0, error_code=partition_error)
            for tp in (FOO, BAR)
        ]
        * (error is ErrorCode.NONE),
    )
    asyncio.run(handlers.stop_replica_response(changes, 2, response, frozenset(deletes)))
    return changes.changed


def test_a_topic_that_is_only_queued_is_not_touched(changes):
    changes.context.deleting["foo"] = None
    assert answered(changes, [FOO, BAR]) == []


def test_only_topics_whose_deletion_began_are_touched(changes):
    changes.context.deleting["foo"] = None
    changes.context.deletion_started.add("foo")
    assert answered(changes, [FOO, BAR]) == [(PartitionReplica(FOO, 2), "DELETION_SUCCESSFUL")]


def test_a_response_to_a_stop_without_deletion_is_not_one_to_a_deletion(changes):
    changes.context.deleting["foo"] = None
    changes.context.deletion_started.add("foo")
    assert answered(changes, []) == []


@pytest.mark.parametrize("whole", [True, False])
def test_an_error_makes_the_replica_wait(changes, whole):
    changes.context.deleting["foo"] = None
    changes.context.deletion_started.add("foo")
    replica = PartitionReplica(FOO, 2)
    error = ErrorCode.KAFKA_STORAGE_ERROR
    kinds = {"error": error} if whole else {"partition_error": error}
    assert answered(changes, [FOO, BAR], **kinds) == [(replica, "DELETION_INELIGIBLE")]
    assert changes.context.deletion_ineligible == {"foo"}


def test_a_refusal_by_the_next_incarnation_halts_nothing(changes):
    # The broker's return has resumed the deletion already; nothing would resume it a second time.
    changes.context.deleting["foo"] = None
    changes.context.deletion_started.add("foo")
    assert answered(changes, [FOO, BAR], error=ErrorCode.STALE_BROKER_EPOCH) == []
    assert changes.context.deletion_ineligible == set()
