"""The states of a server: the table, Kafka's numbers, and a start that fails."""

import itertools

import pytest

from ottla.broker.services import BROKER_TRANSITIONS, BrokerState, check_broker_transition
from ottla.model.transitions import IllegalTransitionError

B = BrokerState
LIFE = [
    B.NOT_RUNNING,
    B.STARTING,
    B.RECOVERY,
    B.RUNNING,
    B.PENDING_CONTROLLED_SHUTDOWN,
    B.SHUTTING_DOWN,
    B.NOT_RUNNING,
]


def test_the_numbers_are_those_of_kafkas_metric():
    assert {s.name: s.value for s in B} == {
        "NOT_RUNNING": 0,
        "STARTING": 1,
        "RECOVERY": 2,
        "RUNNING": 3,
        "PENDING_CONTROLLED_SHUTDOWN": 6,
        "SHUTTING_DOWN": 7,
        "UNKNOWN": 127,
    }


def test_all_states_from_start_to_stop_are_legal():
    for before, after in itertools.pairwise(LIFE):
        check_broker_transition(before, after)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(B, B)), ids=lambda s: s.name)
def test_only_what_the_table_has_is_legal(before, after):
    if before in BROKER_TRANSITIONS.get(after, ()):
        check_broker_transition(before, after)
        return
    with pytest.raises(IllegalTransitionError, match=f"{before.name} -> {after.name}"):
        check_broker_transition(before, after)


def test_every_state_of_a_running_server_leads_to_its_end():
    for state in (B.STARTING, B.RECOVERY, B.RUNNING, B.PENDING_CONTROLLED_SHUTDOWN):
        check_broker_transition(state, B.SHUTTING_DOWN)


def test_a_start_that_fails_ends_as_not_running(scene):
    name = scene.boot(1, zookeeper_connect="zk:9999", zookeeper_connection_timeout_ms="2000")
    scene.wait(lambda: name in scene.errors, within_s=5)
    assert scene.brokers[name].state is B.NOT_RUNNING


def test_a_second_shutdown_does_nothing(scene):
    broker = scene.up(1)
    scene.simulation.node("b1").call(broker.shutdown())
    assert broker.state is B.NOT_RUNNING
    scene.simulation.node("b1").call(broker.shutdown())
    assert broker.state is B.NOT_RUNNING


def test_a_shutdown_without_zookeeper_ends(scene):
    broker = scene.up(1)
    scene.up(2)
    scene.simulation.node("zk").pause()
    scene.stop(1)  # within a minute
    assert broker.state is B.NOT_RUNNING
    files = scene.simulation.node("b1").disk.children("/data")
    assert ".kafka_cleanshutdown" in files, "the logs were closed well all the same"
    scene.simulation.node("zk").resume()
