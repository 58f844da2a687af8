"""What the controller reads and writes is in its journal, and is read from there as it was."""

import asyncio
import inspect
import json
from types import SimpleNamespace
from typing import get_type_hints

import msgspec
import pytest

from ottla.controller import cluster_state
from ottla.controller.cluster_state import ClusterState, plain
from ottla.controller.found import FoundCluster, FoundStatements, FoundTopic, Stated
from ottla.controller.journal import Journal
from ottla.model.cluster import (
    BrokerInfo,
    Eligible,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicIdNote,
    TopicInfo,
)
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.zookeeper.znodes import Features

TP = TopicPartition("a-b", 7)
ID = b"0123456789abcdef"
BROKER = BrokerInfo(1, (Endpoint("h", 9092),), "r1", 12, {"f": (1, 2)})
TOPIC = TopicInfo("a-b", ID, {0: ReplicaAssignment((1, 2), (2,), ())})
STATE = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 2, (1, 3), 4, 1), 5)
ELIGIBLE = Eligible(ID, 3, 2, ((1, 9),), 4)
RESULTS = {
    "read_isrs": {TP: (1, 2)},
    "read_changed_states": {TP: STATE},
    "find_cluster": FoundCluster(["x"], [], [BROKER], ["a-b"]),
    "find_statements": FoundStatements((1,), (2,), (3,), ("a-b",)),
    "read_brokers": [BROKER],
    "read_broker": BROKER,
    "remove_registration": "it lives",
    "read_statements": Stated((1, 2), (3,)),
    "read_log_ends": {TP: {1: (2, 30)}},
    "read_changed_partitions": [TP],
    "read_failed_brokers": [1, 2],
    "read_topic_changes": (["new"], ["gone"]),
    "read_topics": [FoundTopic(TOPIC, 5, 6)],
    "write_topic_id": False,
    "write_assignments": True,
    "read_topic_id_notes": {"t": TopicIdNote(ID, 4, by_creation=True)},
    "read_topic_ids_here": {"t": {ID}},
    "draw_topic_id": ID,
    "read_unclean_topics": {"t": True},
    "read_min_isr": {"t": 2},
    "read_features": (Features(enabled=True, levels={"f": 1}), 3),
    "read_standing_eligible": {TP},
    "write_eligible": {TP: ELIGIBLE},
    "read_reassignments": {TP: (3, 1)},
    "read_preferred_election": [TP],
    "allocate_producer_ids": (0, 999),
}
NAMES = ["read_isr_changes", "read_log_dir_events", "read_topic_deletions"]
RESULTS |= {name: ["one", "two"] for name in NAMES}


def recorded_methods():
    return {
        name: method
        for name, method in inspect.getmembers(ClusterState, inspect.isfunction)
        if inspect.iscoroutinefunction(inspect.unwrap(method))
        and hasattr(method, "__wrapped__")
        and "result=False" not in inspect.getsource(method)
    }


def test_each_result_has_an_example():
    wanted = {
        name
        for name, method in recorded_methods().items()
        if get_type_hints(method)["return"] is not type(None)
    }
    assert wanted == set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_read_as_it_was_written(name):
    read = cluster_state._reader(get_type_hints(getattr(ClusterState, name))["return"])
    result = RESULTS[name]
    assert read(json.loads(msgspec.json.encode(plain(result)))) == result


@pytest.mark.parametrize("name", ["read_broker", "read_features", "read_reassignments"])
def test_none_stays_none(name):
    read = cluster_state._reader(get_type_hints(getattr(ClusterState, name))["return"])
    assert read(None) is None


def state_over(**store):
    lines = []
    clock = SimpleNamespace(wall_ms=lambda: 1)
    journal = Journal(lambda line: lines.append(json.loads(line)), clock, 1, 3)
    term = SimpleNamespace(
        store=SimpleNamespace(**store), journal=journal, watcher=lambda _event: None
    )
    return ClusterState(term), lines


def test_a_call_is_recorded_with_what_it_was_asked_and_returned():
    async def names(_watch):
        return ["b", "c"]

    state, lines = state_over(topics=SimpleNamespace(get_names=names))
    found = asyncio.run(state.read_topic_changes({"a", "b"}))
    assert found == (["c"], ["a"])
    (line,) = lines
    assert line["event"] == "EffectPerformed"
    assert line["inputs"] == {"effect": "ReadTopicChanges", "answer": [["c"], ["a"]]}


def test_a_failure_is_recorded_and_raised():
    async def fails(*_arguments):
        raise OttlaError("no")

    state, lines = state_over(
        topics=SimpleNamespace(delete_deletions=fails), states=SimpleNamespace(get=fails)
    )
    with pytest.raises(OttlaError):
        asyncio.run(state.delete_topic_deletions(["t"]))
    with pytest.raises(OttlaError):
        asyncio.run(state.read_states([TP]))
    first, second = (line["inputs"] for line in lines)
    assert first == {
        "effect": "DeleteTopicDeletions", "arguments": {"topics": ["t"]}, "error": "OttlaError: no",
    }  # fmt: skip
    assert second == {"effect": "ReadStates", "error": "OttlaError: no"}
