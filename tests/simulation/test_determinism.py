"""One seed, one trace: whatever the order of sets, what is logged, and whatever ran before."""

import logging
import os
import subprocess
import sys
import weakref

import pytest

from ottla.model.state_changes import LOGGER_NAME, TRACE
from ottla.sim import cluster, world
from ottla.sim.cluster import run
from ottla.sim.plans import Plan

SEED = 7
SECONDS = 8.0


STATEMENTS = {
    "durable_zookeeper": True,
    "faults": ("zookeeper-restart", "second-process", "swapped-disks", "late-request", "kill"),
}


def digest_in_a_process(more):
    code = (
        "from ottla.sim.cluster import Plan, run\n"
        f"v = run(Plan({SEED}, seconds={SECONDS}, mean_gap_s=1.5, **{more!r}))\n"
        "print(v.digest, v.steps, len(v.faults))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("more", [{}, STATEMENTS], ids=["plain", "statements"])
def test_the_trace_is_the_same_in_a_process_with_another_hash_seed(more):
    there = digest_in_a_process(more)
    assert int(there[2]) > 0
    here = run(Plan(SEED, seconds=SECONDS, mean_gap_s=1.5, **more))
    assert [here.digest, str(here.steps), str(len(here.faults))] == there


def test_another_seed_is_another_trace():
    plan = {"seconds": 2.0, "faults": ()}
    assert run(Plan(1, **plan)).digest != run(Plan(2, **plan)).digest


COORDINATED = Plan(
    9100046, brokers=3, unclean_partitions=1, administrators=2, members=2, copiers=1, mean_gap_s=1.0
)
UNTIL_S = 20.0


class Listener(logging.Handler):
    """Somebody who reads every line, as a file does; counts them by their loggers."""

    def __init__(self):
        super().__init__()
        self.lines = {}

    def emit(self, record):
        record.getMessage()
        self.lines[record.name] = self.lines.get(record.name, 0) + 1


@pytest.fixture(scope="module")
def digest_at():
    """Return a function that runs a plan while ours is logged from a level on: trace, lines."""
    loggers = [logging.getLogger("ottla"), logging.getLogger(LOGGER_NAME)]
    before = [logger.level for logger in loggers]

    def go(level):
        listener = Listener()
        for logger in loggers:
            logger.setLevel(level)
            logger.addHandler(listener)
        try:
            verdict = run(COORDINATED, until_s=UNTIL_S)
        finally:
            for logger in loggers:
                logger.removeHandler(listener)
        return (verdict.digest, verdict.steps), listener.lines

    yield go
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="module")
def silent(digest_at):
    """Return the trace of the plan when nobody reads and garbage is hardly collected."""
    trace, lines = digest_at(logging.CRITICAL + 1)
    assert not lines
    return trace


def test_the_trace_is_the_same_when_every_line_is_read(digest_at, silent):
    trace, lines = digest_at(TRACE)
    assert lines[LOGGER_NAME] > 10
    assert len(lines) > 10
    assert trace == silent


def test_the_trace_is_the_same_when_garbage_is_collected_often(digest_at, silent, monkeypatch):
    monkeypatch.setattr(world, "PATIENT_COLLECTOR", (200, 3, 3))
    assert digest_at(logging.CRITICAL)[0] == silent


def test_a_run_keeps_no_memory(monkeypatch):
    """Thousands of seeds run in one process, and the collector is told to be patient."""
    clusters = []

    class Noted(cluster.Cluster):
        def __init__(self, *given):
            super().__init__(*given)
            clusters.append(weakref.ref(self))

    monkeypatch.setattr(cluster, "Cluster", Noted)
    assert run(Plan(1, seconds=2.0, faults=("kill",))).passed
    assert [one() for one in clusters] == [None]
