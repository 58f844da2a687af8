"""Drain: which replicas a broker has, where the brokers' metadata differ for a moment."""

import asyncio

import pytest

from ottla.admin.operations import drain
from ottla.model.errors import ConnectionLostError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.cluster import MetadataResponse

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition
Broker = MetadataResponse.MetadataResponseBroker


class Brokers:
    """Each broker's own metadata: replicas by partition of the topic t; None does not respond."""

    def __init__(self, known):
        self._known = known

    async def metadata(self, topics=None):
        return self._response({} if topics is not None else self._known[0])

    async def call(self, request, broker):
        assert request.topics is None
        if self._known[broker] is None:
            raise ConnectionLostError("closed")
        return self._response(self._known[broker])

    def _response(self, replicas):
        partitions = [Partition(partition_index=n, replica_nodes=r) for n, r in replicas.items()]
        return MetadataResponse(
            brokers=[Broker(node_id=n, host="h", port=1) for n in self._known],
            topics=[Topic(name="t", partitions=partitions)],
        )


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({0: {}, 1: {0: [1, 2]}, 2: {}}, {0: (1, 2)}),  # 0 and 2 have not heard of the topic
        ({0: {0: [0, 1]}, 1: {0: [1, 2]}, 2: {0: [0, 1]}}, {0: (1, 2)}),  # 1 does not know the end
        ({0: {0: [0, 1]}, 1: None, 2: {0: [0, 1]}}, {}),  # 1 died
        ({0: {0: [0, 1], 1: [2, 0]}, 1: {1: [2, 0]}, 2: {}}, {1: (2, 0)}),
    ],
)
def test_a_replica_that_any_broker_knows_of_counts(known, expected, monkeypatch):
    monkeypatch.setattr(drain, "AGREED_WITHIN_S", 0.0)
    found, live = asyncio.run(drain.replicas_on(Brokers(known), 2))
    assert found == {TopicPartition("t", n): replicas for n, replicas in expected.items()}
    assert sorted(live) == [0, 1, 2]


def test_brokers_that_differ_are_asked_again(monkeypatch):
    """Broker 0 shows the replicas of a move that has just ended until it is asked once more."""
    monkeypatch.setattr(drain, "LOOK_AGAIN_S", 0.0)
    brokers = Brokers({0: {0: [0, 1, 2]}, 1: {}, 2: {}})
    asked = []

    class Late(Brokers):
        async def call(self, request, broker):
            asked.append(broker)
            if len(asked) > 3:
                self._known[0] = {}
            return await super().call(request, broker)

    brokers.__class__ = Late
    found, _ = asyncio.run(drain.replicas_on(brokers, 2))
    assert found == {}
    assert asked == [0, 1, 2] * 2
