"""`ottla consume --group`: its range assignor beside Kafka's own examples, and its end."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.client import group_consumer
from ottla.client.assignors import assign_range
from ottla.client.group_consumer import GroupConsumer
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from support.fake_client import FakeClient


def test_two_members_two_topics_of_three_partitions():
    given = assign_range({"t0": 3, "t1": 3}, {"c0": ["t0", "t1"], "c1": ["t0", "t1"]})
    assert given == {
        "c0": {"t0": [0, 1], "t1": [0, 1]},
        "c1": {"t0": [2], "t1": [2]},
    }


def test_more_members_than_partitions_and_members_by_id():
    given = assign_range({"t": 2}, {"c": ["t"], "a": ["t"], "b": ["t"]})
    assert given == {"a": {"t": [0]}, "b": {"t": [1]}, "c": {}}


def test_only_who_subscribed_gets_a_topic():
    given = assign_range({"t": 2, "u": 1}, {"a": ["t", "u"], "b": ["t"], "c": ["gone"]})
    assert given == {"a": {"t": [0], "u": [0]}, "b": {"t": [1]}, "c": {}}


class Coordinator(FakeClient):
    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    async def call(self, *_arguments, **_named):
        found = self.outcomes.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.parametrize("silent", [False, True])
def test_a_position_that_could_not_be_committed_at_the_end_is_said(silent, monkeypatch):
    monkeypatch.setattr(group_consumer, "END_S", 0.05)
    answer = OttlaError("the coordinator is gone")
    client = Coordinator(answer, SimpleNamespace(error_code=0))
    if silent:
        client.call = lambda *_, **__: asyncio.sleep(60)
    member = GroupConsumer(client, "g", ["t"], None, from_beginning=True)
    member._member.generation, member._member.member_id = 1, "m"
    member._member.coordinator.broker = 1
    reader = SimpleNamespace(positions={TopicPartition("t", 0): 5})
    asyncio.run(member._end(reader))
    why = "no response within 0 s" if silent else "the coordinator is gone"
    assert client.said == [f"not committed: {why}; some records may be read again"]
    assert silent or client.outcomes == [], "it leaves all the same"
