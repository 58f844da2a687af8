"""A broker dies at every single step of a procedure of the controller; all of it is finished.

Fault F4 by enumeration, over topic creation and growth (F1), deletion (F26), reassignment (F24,
F27) and preferred election. A step is a transaction of ZooKeeper or a control request on its way.
The same at 1,000 partitions: docs/TESTING.md.
"""

import os

import pytest

from ottla.broker.requests.control import update_metadata
from ottla.controller import reassignment
from ottla.sim.crash_points import (
    Scene,
    _in_a_fork,
    choose,
    count_steps,
    enumerate_deaths,
    main,
)


@pytest.fixture(scope="module", autouse=True)
def _codecs():
    """Have messages' codecs compiled here, once, and not in the fork of each death."""
    scene = Scene("reassign", 1, 5, 1)
    scene.begin()
    while scene.steps < 30:
        assert scene.step()
    assert scene.survive("controller") == []
    scene.close()


LEAST = {"create": 10, "expand": 8, "delete": 20, "elect": 10, "reassign": 40}
SLOW = [pytest.mark.slow, pytest.mark.timeout(400)]  # half a minute, several on a busy machine


@pytest.mark.parametrize(
    ("what", "partitions", "victim", "every"),
    [
        ("create", 3, "controller", 3),
        pytest.param("create", 3, "controller", 1, marks=SLOW),
        pytest.param("expand", 3, "controller", 2, marks=SLOW),
        pytest.param("delete", 3, "controller", 1, marks=SLOW),
        pytest.param("delete", 3, "original", 3, marks=SLOW),
        pytest.param("elect", 8, "controller", 2, marks=SLOW),
        ("reassign", 1, "controller", 12),
        pytest.param("reassign", 1, "controller", 1, marks=SLOW),
        pytest.param("reassign", 1, "target", 4, marks=SLOW),
        pytest.param("reassign", 1, "original", 4, marks=SLOW),
    ],
)
def test_it_may_die_at_any_step(what, partitions, victim, every):
    outcome = enumerate_deaths(what, partitions, victim, chosen=lambda step: step % every == 0)
    assert outcome.failures == {}
    assert outcome.steps >= LEAST[what]
    assert outcome.tried == outcome.steps // every


@pytest.mark.slow
def test_steps_of_a_big_deletion():
    outcome = enumerate_deaths("delete", 300, chosen=lambda step: step % 8 == 0)
    assert outcome.failures == {}
    assert outcome.tried >= 3


def test_steps_are_counted_and_chosen():
    steps = count_steps("create", 1, 3, 1)
    assert steps >= 5
    assert choose(steps, 10**6, 1) == set(range(1, steps + 1))
    some = choose(1000, 80, 1)
    assert len(some) == 80
    assert {1, 10, 991, 1000} <= some


def first_failure_with(told, steps, **scene):
    """Die at these steps of a reassignment until a failure tells so; return its step, or None.

    A death that nobody mends is simulated until patience ends: each costs up to a second of CPU.
    """
    shown = []

    def look(outcome):
        shown.extend(step for step, lines in outcome.failures.items() if told in lines[0])

    enumerate_deaths(
        "reassign", 1, **scene, chosen=lambda step: step in steps and not shown, progress=look
    )
    return shown[0] if shown else None


@pytest.mark.slow
def test_a_new_controller_that_does_not_go_on_is_found(monkeypatch):
    monkeypatch.setattr(reassignment, "on_controller_failover", reassignment.on_znode_changed)
    assert first_failure_with("stuck", range(40, 50), brokers=6, seed=2)


def test_the_command_says_what_it_tried(capfd):
    assert main(["--what", "create", "--partitions", "1", "--step", "2"]) == 0
    assert "tried=1 failed=0" in capfd.readouterr().out


@pytest.mark.slow
def test_a_replica_that_never_hears_that_it_is_out_is_found(monkeypatch):
    monkeypatch.setattr(update_metadata, "stop_unassigned", lambda *_: [])
    assert first_failure_with("replicas: partitions", range(40, 48), seed=3)


def test_a_fork_that_cannot_report_ends_all_the_same(tmp_path):
    """It went on as a second copy of what had forked it: here, of all the tests that follow."""
    process, went_on = os.getpid(), tmp_path / "went on"
    try:
        found = _in_a_fork(lambda: [object()])
    finally:
        if os.getpid() != process:
            went_on.touch()
            os._exit(0)
    assert found == ["the simulation was killed: status 256"]
    assert not went_on.exists()
