"""What a broker's answer to StopReplica does to a deletion, by itself."""

import asyncio
import types

import pytest

from ottla.controller import deletion
from ottla.controller.context import Context
from ottla.controller.states import PartitionReplica, ReplicaState
from ottla.model.cluster import ReplicaAssignment, TopicInfo
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.stop_replica import StopReplicaResponse

FOO, BAR = TopicPartition("foo", 0), TopicPartition("bar", 0)


class ControllerTerm:
    """Notes which replicas were moved where."""

    def __init__(self, context):
        self.context = context
        self.cause = 1
        self.moved = []
        self.moves = types.SimpleNamespace(replicas=self._replicas)
        self.journal = types.SimpleNamespace(event=lambda *_: None)
        self.config = types.SimpleNamespace(flag=lambda _key: True)

    async def _replicas(self, replicas, state):
        self.moved += [(replica, state.name) for replica in replicas]


@pytest.fixture
def term(monkeypatch):
    async def later(_term):
        """What comes next is the stories' to tell."""

    monkeypatch.setattr(deletion, "proceed", later)
    context = Context(1, 0)
    for topic in ("foo", "bar"):
        context.add_topic(TopicInfo(topic, topic.encode() * 6, {0: ReplicaAssignment((2,))}))
        replica = PartitionReplica(TopicPartition(topic, 0), 2)
        context.replica_states.begin(replica, ReplicaState.DELETION_STARTED)
    return ControllerTerm(context)


def answered(term, deletes, error=ErrorCode.NONE, partition_error=ErrorCode.NONE):
    item = StopReplicaResponse.StopReplicaPartitionError
    response = StopReplicaResponse(
        error_code=error,
        partition_errors=[
            item(topic_name=tp.topic, partition_index=0, error_code=partition_error)
            for tp in (FOO, BAR)
        ]
        * (error is ErrorCode.NONE),
    )
    asyncio.run(deletion.replicas_stopped(term, 2, response, frozenset(deletes)))
    return term.moved


def test_a_topic_that_is_only_queued_is_not_touched(term):
    term.context.deleting["foo"] = None
    assert answered(term, [FOO, BAR]) == []


def test_only_topics_whose_deletion_began_are_touched(term):
    term.context.deleting["foo"] = None
    term.context.deletion_started.add("foo")
    assert answered(term, [FOO, BAR]) == [(PartitionReplica(FOO, 2), "DELETION_SUCCESSFUL")]


def test_an_answer_to_a_stop_without_deletion_is_not_one_to_a_deletion(term):
    term.context.deleting["foo"] = None
    term.context.deletion_started.add("foo")
    assert answered(term, []) == []


@pytest.mark.parametrize("whole", [True, False])
def test_an_error_makes_the_replica_wait(term, whole):
    term.context.deleting["foo"] = None
    term.context.deletion_started.add("foo")
    replica = PartitionReplica(FOO, 2)
    error = ErrorCode.KAFKA_STORAGE_ERROR
    kinds = {"error": error} if whole else {"partition_error": error}
    assert answered(term, [FOO, BAR], **kinds) == [(replica, "DELETION_INELIGIBLE")]
    assert term.context.deletion_ineligible == {"foo"}


def test_a_refusal_by_the_next_incarnation_halts_nothing(term):
    # The broker's return has resumed the deletion already; nothing would resume it a second time.
    term.context.deleting["foo"] = None
    term.context.deletion_started.add("foo")
    assert answered(term, [FOO, BAR], error=ErrorCode.STALE_BROKER_EPOCH) == []
    assert term.context.deletion_ineligible == set()
