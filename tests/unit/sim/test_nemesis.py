"""What the nemesis may take away: a loss that is yet to happen counts from when it was settled."""

from random import Random

import pytest

from ottla.sim.cluster import Cluster
from ottla.sim.faults.at_any_time import dropped_pages
from ottla.sim.faults.strike import Strike
from ottla.sim.nemesis import Nemesis
from ottla.sim.plans import Plan


@pytest.fixture(params=(False, True), ids=("gentle", "hard"))
def nemesis(request):
    quiet = {"producers": 0, "no_retry_producers": 0, "consumers": 0, "operators": False}
    cluster = Cluster(Plan(1, replicas=2, partitions=3, faults=(), **quiet))
    cluster.boot()
    cluster.client_node().boot(cluster.serve_clients)
    cluster.simulation.run_for(5.0)
    yield Nemesis(cluster, hard=request.param)
    cluster.close()


def arm(nemesis):
    """Settle that the first broker loses power at an operation that is far away."""
    first, *others = nemesis.cluster.broker_nodes()
    assert nemesis.allowance.may_lose([first])
    first.crash_at_operation(1_000_000, power_loss=True)
    nemesis.cluster.simulation.run_for(1.0)
    return first, others


def test_a_power_loss_that_is_yet_to_happen_counts(nemesis):
    first, others = arm(nemesis)
    assert first.up
    assert nemesis.allowance.weakened()
    assert not any(nemesis.allowance.may_lose([other]) for other in others)


def test_it_counts_until_the_broker_has_its_records_back(nemesis):
    first, _others = arm(nemesis)
    first.crash(power_loss=True)
    assert nemesis.allowance.weakened()
    first.boot()
    nemesis.cluster.simulation.run_for(30.0)
    assert not nemesis.allowance.weakened()


def test_a_disk_that_is_to_drop_pages_counts_until_it_is_replaced(nemesis):
    assert any(dropped_pages(Strike(nemesis.allowance, Random(i))) for i in range(10))
    assert nemesis.allowance.weakened()
    nemesis.cluster.simulation.run_for(60.0)
    assert not nemesis.allowance.weakened()


def test_nobody_loses_power_while_another_is_to_be_killed(nemesis):
    """With two replicas of each partition, that leaves some partition with none in sync."""
    first, *others = nemesis.cluster.broker_nodes()
    first.crash_at_operation(1_000_000)
    assert not any(nemesis.allowance.may_lose([other]) for other in others)
