"""Kept seeds, each with what it once found, and fresh ones."""

import os
import random
from dataclasses import replace

import pytest

from ottla.sim.cluster import run
from ottla.sim.drawn_plans import drawn
from ottla.sim.faults import ALL_NAMES, DRAWN, FAULTS, Drawn
from ottla.sim.plans import ALWAYS, Plan

OF_CRASHES, OF_STATEMENTS = DRAWN[Drawn.WITH_CRASH_DETECTION], DRAWN[Drawn.AS_STATEMENT]


def drawn_before(seed, **more):
    """Return what a seed drew before there were faults that wait for a moment."""
    return replace(undetected(seed, **more), faults=(ALWAYS,))


def undetected(seed, **more):
    """Return what a seed drew before refused connections proved that a process is gone."""
    plan = trusting(seed, **more)
    faults = tuple(name for name in plan.faults if name not in OF_CRASHES)
    return replace(plan, crash_detection=False, compacted=False, faults=faults)


def trusting(seed, **more):
    """Return what a seed drew before disks, ids and the coordination server were in doubt."""
    plan = drawn(seed, **more)
    faults = tuple(name for name in plan.faults if name not in OF_STATEMENTS)
    return replace(plan, durable_zookeeper=False, faults=faults)


# What a kept seed's fault once was is told by its id; fixes may have changed its course since.
KEPT = [
    pytest.param(
        Plan(1041, mean_gap_s=2.0),
        id="controller and leader lost power, came back and led on in the same leader epoch",
    ),
    pytest.param(
        Plan(5086, seconds=40.0, mean_gap_s=1.0),
        id="a truncation undone by power loss lay under a later epoch of the checkpoint",
    ),
    pytest.param(
        Plan(30030, seconds=45.0, mean_gap_s=1.3),
        id="a broker with an empty disk was told to lead before it had registered",
    ),
    pytest.param(
        Plan(3, seconds=40.0, mean_gap_s=6.0, operators=False, faults=("kill-all-power-loss",)),
        id="a consumer was told that an offset does not exist which was on its way back",
    ),
    pytest.param(
        Plan(100043, brokers=5, mean_gap_s=2.0),
        id="a cancelled reassignment deleted the last replica in sync",
    ),
    pytest.param(drawn_before(7), id="a broker that was away went on telling of a deleted topic"),
    pytest.param(
        drawn_before(29),
        id="a reassignment resumed in the middle of a deletion brought replicas back",
    ),
    pytest.param(
        drawn_before(1052), id="a replica moved away unseen went on when its topic was deleted, too"
    ),
    pytest.param(
        trusting(779600176),
        id="a power loss brought a deleted topic's records back, without the id that said so",
    ),
    pytest.param(
        Plan(
            8800018,
            brokers=6,
            replicas=2,
            seconds=10.0,
            no_retry_producers=0,
            consumers=1,
            administrators=4,
            mean_gap_s=1.0,
        ),
        id="a controller deleted topics and died before it could tell a broker that was cut off",
    ),
    pytest.param(drawn_before(54), id="a reassignment overwrote a partition that was just added"),
    pytest.param(
        drawn_before(59), id="what a deleted topic had left behind kept the next one away"
    ),
    pytest.param(Plan(2, seconds=20.0), id="every fault, mixed"),
    pytest.param(drawn_before(10, coordinated=True), id="members and copiers, drawn"),
    pytest.param(
        # First found with drawn(9100046, coordinated=True): all brokers start anew amid commits.
        Plan(
            16,
            seconds=20.0,
            no_retry_producers=0,
            consumers=1,
            copiers=3,
            min_isr=1,
            mean_gap_s=1.0,
            pause_s=0.3,
            slowness=4.0,
            operators=False,
            faults=("kill-all", "kill", "isolate", "pause", "one-way"),
        ),
        id="a coordinator that had just started took partitions it was not told of for deleted",
    ),
    pytest.param(Plan(116, seconds=30.0, mean_gap_s=2.0), id="dense faults"),
    pytest.param(
        undetected(9300081, coordinated=True),
        id="partitions went elsewhere while a broker was down that moved them between its log dirs",
    ),
    pytest.param(
        # First found with drawn(9400198, coordinated=True), made smaller.
        Plan(
            9400198,
            seconds=20.0,
            partitions=2,
            unclean_partitions=2,
            producers=1,
            consumers=1,
            administrators=3,
            members=3,
            copiers=3,
            log_dirs=1,
            mean_gap_s=1.0,
            pause_s=1.0,
            slowness=4.0,
            evicted=0.2,
            small_fetches=True,
        ),
        id="a broker started again and forgot that a transaction's marker was not replicated yet",
    ),
    pytest.param(
        Plan(
            9620293,
            brokers=4,
            replicas=4,
            seconds=40.0,
            partitions=1,
            unclean_partitions=1,
            producers=1,
            consumers=1,
            administrators=4,
            members=2,
            copiers=2,
            cooperative=True,
            mean_gap_s=1.5,
            pause_s=0.3,
            slowness=0.0,
            evicted=0.01,
            hard=True,
        ),
        id="a coordinator told an assignment that went with it, and the next one began it again",
    ),
    pytest.param(
        Plan(
            9620259,
            brokers=4,
            replicas=2,
            seconds=40.0,
            unclean_partitions=1,
            consumers=1,
            administrators=2,
            members=2,
            copiers=1,
            mean_gap_s=1.0,
            pause_s=0.6,
            cooperative=True,
            hard=True,
        ),
        id="a coordinator answered from a record that was not committed, and was lost with it",
    ),
    pytest.param(
        # First found with drawn(9900202, coordinated=True), of which these are the first seconds.
        Plan(
            9900202,
            brokers=7,
            replicas=2,
            seconds=25.0,
            partitions=2,
            unclean_partitions=2,
            producers=1,
            consumers=1,
            administrators=1,
            members=2,
            copiers=1,
            mean_gap_s=1.0,
            pause_s=0.6,
            cooperative=True,
        ),
        id="a static member that was away came back with what had become another's",
    ),
    pytest.param(
        # First found with drawn(820000150, coordinated=True), made smaller.
        Plan(
            0,
            seconds=25.0,
            partitions=1,
            unclean_partitions=0,
            producers=1,
            consumers=0,
            members=3,
            mean_gap_s=2.0,
            pause_s=0.4,
            operators=False,
            crash_detection=True,
            hard=True,
            faults=("second-process-while-silent", "kill", "bounce"),
        ),
        id="a member asked its coordinator at the address of a process whose place another took",
    ),
]

FRESH_SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", "3"))


@pytest.mark.parametrize("plan", KEPT)
def test_kept_seed(plan):
    verdict = run(plan)
    assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])
    assert verdict.statistics["acked"] > 25  # drawn producers pause up to a second
    assert verdict.faults


@pytest.mark.parametrize("name", DRAWN[Drawn.ALWAYS])
def test_each_fault_alone(name):
    plan = Plan(11, seconds=12.0, mean_gap_s=3.0, faults=(name,), consumers=1)
    verdict = run(plan)
    assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])
    assert verdict.faults


@pytest.mark.parametrize("name", DRAWN[Drawn.HALF])
def test_each_fault_that_waits_for_a_moment_alone(name):
    plan = Plan(
        1, seconds=20.0, mean_gap_s=2.0, faults=(name,), consumers=1, hard=True, brokers=4,
        replicas=3, administrators=2, copiers=1, operators=False,
    )  # fmt: skip
    verdict = run(plan)
    assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])
    assert verdict.faults


@pytest.mark.parametrize("name", OF_CRASHES)
def test_each_fault_of_crash_detection_alone(name):
    plan = Plan(
        11, seconds=15.0, mean_gap_s=2.0, faults=(name,), consumers=1, copiers=1,
        crash_detection=True,
    )  # fmt: skip
    verdict = run(plan)
    assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])
    assert verdict.faults


@pytest.mark.parametrize("name", [*OF_STATEMENTS, "zookeeper-restart"])
def test_each_fault_of_statements_alone(name):
    """With an administrator, so that there is always something to write to ZooKeeper."""
    plan = Plan(
        11, seconds=15.0, mean_gap_s=3.0, faults=(name,), consumers=1, copiers=1, hard=True,
        administrators=1, durable_zookeeper=True,
    )  # fmt: skip
    verdict = run(plan)
    assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])
    assert verdict.faults


def test_seeds_from_before_there_was_crash_detection_draw_none_of_its_faults():
    plans = [drawn(seed) for seed in range(200)]
    assert {plan.crash_detection for plan in plans} == {False, True}
    for plan in plans:
        assert set(OF_CRASHES) & set(plan.faults) == set(OF_CRASHES if plan.crash_detection else ())
    assert not set(OF_CRASHES) & set(Plan(0).faults)


def test_fresh_seeds():
    """Seeds nobody has seen; a failure prints the command that replays it."""
    for number in range(FRESH_SEEDS):
        seed = random.SystemRandom().randrange(10**9)
        plan = drawn(seed, coordinated=number == 0)
        verdict = run(plan)
        assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])


def test_every_fault_names_its_number():
    assert len(set(ALL_NAMES)) == len(ALL_NAMES) == len(FAULTS)
    assert all(fault.number.startswith("F") for fault in FAULTS)
