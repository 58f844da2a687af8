"""Who may delete a broker's registration (R17): each rule broken by a client of ZooKeeper's own."""

import asyncio

import pytest

from ottla.sim.cluster import Cluster
from ottla.sim.crash_rules import ONLY_KILLS, PROMPT_S
from ottla.sim.faults import ALL_NAMES
from ottla.sim.plans import Plan
from ottla.zookeeper.operations import Delete
from ottla.zookeeper.session import Session

QUIET = {"producers": 0, "no_retry_producers": 0, "consumers": 0, "operators": False, "faults": ()}


@pytest.fixture
def cluster():
    cluster = Cluster(Plan(1, crash_detection=True, **QUIET))
    cluster.boot()
    cluster.simulation.run_for(3.0)
    yield cluster
    cluster.close()


def deletes(cluster, node, *paths):
    """Delete znodes in one multi, through a session of that node's own."""

    async def go():
        session = await Session.connect(node.world, "zk:2181", 6000, 6000, lambda _event: None)
        await session.multi([Delete(path) for path in paths])
        await session.close()

    node.call(go())


def other_than(cluster, *nodes):
    return next(n for n in cluster.broker_nodes() if n not in nodes)


def path_of(node):
    return f"/brokers/ids/{node.name.removeprefix('b')}"


def refused(cluster, source, target, seconds):
    """Let one host's connections be refused by another for so long, at both ends of that time."""
    internet = cluster.simulation.internet

    async def go():
        for pause_s in (seconds, 0.0):
            assert await source.world.network.refuses(target.name, 9092, timeout_s=1.0)
            await asyncio.sleep(pause_s)

    internet.refuse(target.name)
    source.call(go())
    internet.accept(target.name)


def test_without_a_refusal_no_registration_may_go(cluster):
    controller = cluster.controller_node()
    victim = other_than(cluster, controller)
    deletes(cluster, controller, path_of(victim))
    assert "never refused" in cluster.crashes.wrong()[0]


@pytest.mark.parametrize(("seconds", "enough"), [(0.03, False), (0.05, True)])
def test_two_refusals_have_to_lie_apart(cluster, seconds, enough):
    controller = cluster.controller_node()
    victim = other_than(cluster, controller)
    refused(cluster, controller, victim, seconds)
    deletes(cluster, controller, path_of(victim))
    without_proof = [line for line in cluster.crashes.wrong() if "refused a connection" in line]
    assert bool(without_proof) != enough


def test_refusals_of_another_are_no_proof(cluster):
    controller = cluster.controller_node()
    victim = other_than(cluster, controller)
    refused(cluster, other_than(cluster, controller, victim), victim, 0.05)
    deletes(cluster, controller, path_of(victim))
    assert "never refused" in cluster.crashes.wrong()[0]


def test_only_the_controller_may_do_it_or_who_deletes_it_as_well(cluster):
    controller = cluster.controller_node()
    one = other_than(cluster, controller)
    other = other_than(cluster, controller, one)
    refused(cluster, one, other, 0.05)
    deletes(cluster, one, path_of(other))
    (line,) = cluster.crashes.wrong()
    assert "is not the controller of the last epoch" in line


def test_who_proves_that_the_controller_is_gone_deletes_both_at_once(cluster):
    controller = cluster.controller_node()
    one = other_than(cluster, controller)
    refused(cluster, one, controller, 0.05)
    deletes(cluster, one, path_of(controller), "/controller")
    assert cluster.crashes.wrong() == []
    assert cluster.crashes.statistics()["removed_alive"] == 1


def test_the_controller_alone_may_not_be_deleted_by_others(cluster):
    controller = cluster.controller_node()
    deletes(cluster, other_than(cluster, controller), "/controller")
    (line,) = cluster.crashes.wrong()
    assert "not together with that broker's registration" in line


def test_a_broker_that_dies_is_removed_and_that_is_right(cluster):
    victim = other_than(cluster, cluster.controller_node())
    victim.crash()
    cluster.simulation.run_for(PROMPT_S)
    assert cluster.crashes.wrong() == []
    assert cluster.crashes.statistics()["removed"] == 1
    assert 40 <= cluster.crashes.statistics()["removed_max_ms"] < 500


def test_a_death_that_nobody_notices_is_told_of(cluster, monkeypatch):
    monkeypatch.setattr("ottla.controller.crash_detection.ROUNDS", 10_000)
    other_than(cluster, cluster.controller_node()).crash()
    cluster.simulation.run_for(2 * PROMPT_S)
    (line,) = cluster.crashes.wrong()
    assert "is still registered" in line


def test_a_host_that_answers_for_its_process_waits_for_the_session(cluster):
    victim = other_than(cluster, cluster.controller_node())
    victim.crash()
    cluster.simulation.internet.answer_for(victim.name)
    cluster.simulation.run_for(3.0)
    assert cluster.crashes.statistics()["removed"] == 0
    assert path_of(victim) in cluster.zookeeper.tree.nodes
    cluster.simulation.run_for(5.0)
    assert path_of(victim) not in cluster.zookeeper.tree.nodes
    victim.boot()
    cluster.simulation.run_for(3.0)
    assert path_of(victim) in cluster.zookeeper.tree.nodes
    assert cluster.crashes.wrong() == []


def test_the_faults_after_which_all_is_to_be_noticed_at_once_exist():
    assert set(ALL_NAMES) >= ONLY_KILLS
