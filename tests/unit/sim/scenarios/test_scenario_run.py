"""Runs of scenarios: the same again, within their limits, and what they find."""

import itertools

import msgspec
import pytest

from ottla.sim.scenarios import configured_clients, report, search, worker
from ottla.sim.scenarios.explanation import explain
from ottla.sim.scenarios.fault_schedule import LOSSY
from ottla.sim.scenarios.scenario import FAULTS, checked
from ottla.sim.scenarios.scenario_run import Job, run

pytestmark = pytest.mark.timeout(120)
LOSES = Job(112, (2, 7, 11, 14), 300.0)
"""Faults that leave one replica in sync and then lose it."""
SHORT = {"replica.lag.time.max.ms": 6000, "zookeeper.session.timeout.ms": 6000}
SAFE = {"topic": {"min.insync.replicas": 2}}


def of(values, job):
    return run(checked(values, "test"), job)


def test_one_seed_is_one_run():
    one, two = (of({}, Job(3, seconds=100.0)) for _ in range(2))
    assert msgspec.to_builtins(one) == msgspec.to_builtins(two)
    assert one.faults
    assert of({}, Job(4, seconds=100.0)).faults != one.faults


def test_without_faults_nothing_is_broken_nor_late():
    fast = {"producer": {"enable.idempotence": False}, "faults": []}
    found = of(fast, Job(1, seconds=30.0))
    assert (found.broken, found.faults, found.unhealed, found.defects) == ([], [], "", [])
    assert found.acknowledged > 200
    assert found.read >= found.acknowledged
    assert found.longest_gap[0] < 5


def test_a_topic_that_takes_no_record_is_no_error():
    found = of({"topic": {"max.message.bytes": 1}}, Job(1, seconds=150.0))
    assert (found.acknowledged, found.broken, found.unhealed) == (0, [], "")
    assert found.failed


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_faults_at_a_time_than_asked_for(at_once):
    found = of(SAFE | {"at-once": at_once, "brokers": 4}, Job(5, seconds=240.0))
    assert len(found.faults) > 3
    for fault in found.faults:
        there = [f for f in found.faults if f.at_s <= fault.at_s < f.at_s + f.lasts_s]
        assert len(there) <= at_once
        brokers = [f.broker for f in there if f.broker >= 0]
        assert len(set(brokers)) == len(brokers), "one fault of a broker at a time"


def test_a_fault_that_is_left_out_changes_none_before_it():
    whole = of({}, Job(7, seconds=150.0)).faults
    assert len(whole) > 3
    left = of({}, Job(7, tuple(f.number for f in whole[:3]), 150.0)).faults
    assert [(f.number, f.kind, f.at_s) for f in left] == [
        (f.number, f.kind, f.at_s) for f in whole[:3]
    ]


def test_one_replica_in_sync_is_not_enough_and_two_are():
    scenario = checked({}, "test")
    found = run(scenario, LOSES)
    assert [b.promise for b in found.broken] == ["kept", "reads"]
    kept = explain(scenario, found, found.broken[0], 60.0)
    text = "\n".join(kept.why)
    assert "in sync: broker 0 alone" in text
    assert "min.insync.replicas=1 is content with one replica" in text
    assert "broker 0 lost its disks" in text
    times = [event.at_s for event in kept.events]
    assert times == sorted(times)
    assert sum(event.kind == "record" for event in kept.events) == 1
    assert of(SAFE, LOSES).broken == []


def test_a_lost_record_is_found_whoever_says_it_was_acknowledged(monkeypatch):
    """Plant a producer that takes acks=1 for acks=all: with settings that are safe it is found."""
    produce = configured_clients.produce

    async def careless(*batch, **how):
        return await produce(*batch, **{**how, "acks": 1})

    monkeypatch.setattr(configured_clients, "produce", careless)
    found = of(SAFE, Job(2, seconds=300.0))
    assert any(b.promise == "kept" for b in found.broken)


def test_a_record_that_is_sent_twice_is_found(monkeypatch):
    """Plant a producer that sends again what was acknowledged, without idempotence."""
    produce, sent = configured_clients.produce, itertools.count(1)

    async def twice(*batch, **how):
        found = await produce(*batch, **how)
        if next(sent) == 20:
            await produce(*batch, **how)
        return found

    monkeypatch.setattr(configured_clients, "produce", twice)
    values = SAFE | {"producer": {"enable.idempotence": False}, "faults": []}
    assert [b.promise for b in of(values, Job(1, seconds=30.0)).broken] == ["once"]
    idempotent = of(SAFE | {"faults": []}, Job(1, seconds=30.0))
    assert idempotent.broken == [], "the broker knows the batch"


def test_each_kind_of_fault_happens_and_is_over_at_the_end():
    seen = set()
    for kind in FAULTS:
        found = of(SAFE | {"faults": [kind]}, Job(2, seconds=25.0))
        assert (found.broken, found.unhealed, found.defects) == ([], "", []), kind
        seen |= {f.kind for f in found.faults}
    assert seen == set(FAULTS)
    assert set(LOSSY) < seen


@pytest.mark.processes
@pytest.mark.timeout(400)
def test_a_search_finds_shrinks_and_says_what_helps():
    values = {"producer": {"acks": "1"}, "promises": ["kept"], "server": SHORT, **SAFE}
    scenario = checked(values | {"catch-up-seconds": 10}, "test")
    said = []
    hours = search.search(scenario, 3600.0, 2, 1, said.append)
    assert list(hours.first) == ["kept"]
    assert said
    small = search.counterexample(scenario, hours.first["kept"], "kept", said.append)
    assert 1 <= len(small.faults) < len(hours.first["kept"].faults)
    again = run(scenario, Job(small.seed, tuple(f.number for f in small.faults)))
    assert any(b.promise == "kept" for b in again.broken), "its faults alone break it again"
    remedy = search.helping(scenario, {"kept"}, 250.0, 2, 1, said.append)
    assert remedy.changes == {"acks": "all"}
    assert remedy.helps
    found_all = report.Findings(scenario, hours, {}, remedy)
    found_all.add(small, "kept")
    text = "\n".join(report.lines(found_all))
    assert "acks=1: the leader alone had to have it" in text
    assert "With acks=all: no counterexample in" in text
    page = "".join(report.page(found_all))
    assert "<svg" in page
    assert "script" not in page
    assert "http:" not in page.replace("http-equiv", "")


def test_a_run_that_takes_too_long_is_said_to(monkeypatch):
    monkeypatch.setattr(worker, "LONGEST_RUN_S", 0.05)
    with worker.Worker(checked({}, "test")) as one:
        found = one.run(Job(1))
    assert "took too long" in found.unhealed
    assert found.defects
