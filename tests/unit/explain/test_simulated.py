"""Journals of simulated clusters: decided again the same, they lead to what ZooKeeper holds."""

import re

import pytest

from ottla.explain.cluster_state import ClusterState
from ottla.explain.history import PartitionHistory
from ottla.explain.journals import Damage, about, find, read
from ottla.explain.replay import Replay
from ottla.explain.spans import Timeline
from ottla.model.journal_schema import JOURNAL_NAME, ProcessGone, TopicFacts, TopicsChanged
from ottla.sim.cluster import Cluster, Plan
from ottla.sim.world import Simulation

QUIET_FAULTS = ("kill", "expire", "pause", "isolate", "graceful-restart")
"""Those that leave the disks alone."""


def journals_of(cluster, folder):
    for node in cluster.broker_nodes():
        for path, inode in node.disk.inodes.items():
            if JOURNAL_NAME in path:
                file = folder / node.name / path.rpartition("/")[2]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(bytes(inode.data))
    return find([folder])


def finished(plan, folder):
    """Run a plan that is to pass; return (verdict, states by partition, journals)."""
    cluster = Cluster(plan, Simulation(plan.seed))
    try:
        verdict = cluster.run()
        stored = cluster.partition_states()
        journals = journals_of(cluster, folder)
    finally:
        cluster.close()
    assert verdict.passed, verdict.anomalies
    return verdict, stored, journals


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "plan",
    [
        Plan(24, seconds=30.0, mean_gap_s=2.0, faults=QUIET_FAULTS),
        Plan(22, seconds=30.0, brokers=5, mean_gap_s=2.0, faults=QUIET_FAULTS),
        Plan(26, seconds=30.0, mean_gap_s=2.0, faults=QUIET_FAULTS, crash_detection=True),
    ],
    ids=["three brokers", "five brokers and moves", "crashes detected"],
)
def test_a_run_is_decided_again_without_a_difference(plan, tmp_path):
    verdict, stored, journals = finished(plan, tmp_path)
    assert verdict.faults
    again, picture, damage = Replay(), ClusterState(), Damage()
    stories = [PartitionHistory(tp) for tp in stored]
    gone = 0
    for entry in read(journals, damage):
        gone += isinstance(entry.facts, ProcessGone)
        for taker in (again, picture, *stories):
            taker.take(entry)
    again.finish()
    assert again.differences == []
    assert bool(gone) == plan.crash_detection
    assert sum(again.checked.values()) > 50
    assert again.checked["procedures"] > 20
    assert picture.active
    for tp, state in stored.items():
        known = picture.part(tp)
        assert known is not None
        found = known.leadership
        assert (found.leader, found.leader_epoch, found.isr) == (
            state["leader"],
            state["leader_epoch"],
            tuple(state["isr"]),
        )
    assert all(story.entries for story in stories)
    for story in stories:
        _check_other_decisions_do_not_matter(journals, story)


def _check_other_decisions_do_not_matter(journals, story):
    """Compare what a partition's story and its picture are without the decisions about others."""
    tp = story.tp
    of_all, of_one, alone = Timeline(), Timeline(), PartitionHistory(tp)
    count = 0
    for entry in read(journals, Damage()):
        of_all.take(entry)
        count += 1
    for entry in read(journals, Damage(), about(tp)):
        facts = entry.facts
        if isinstance(facts, TopicsChanged):
            assert tp.topic in {*facts.new, *facts.gone}
        assert not isinstance(facts, TopicFacts) or facts.topic == tp.topic
        of_one.take(entry)
        alone.take(entry)
        count -= 1
    assert count > 10, "decisions about other partitions were left out"
    assert alone.entries == story.entries
    expected, found = (t.about(tp.topic, tp.partition) for t in (of_all, of_one))
    assert found.changes == expected.changes
    assert expected.changes[tp]
    assert (found.events, found.terms) == (expected.events, expected.terms)


def test_r17_a_process_that_was_gone_is_named_with_the_evidence(tmp_path):
    faults = ("kill",)
    plan = Plan(24, seconds=30.0, mean_gap_s=2.0, faults=faults, crash_detection=True)
    _, stored, journals = finished(plan, tmp_path)
    stories = [PartitionHistory(tp) for tp in stored]
    for entry in read(journals, Damage()):
        for story in stories:
            story.take(entry)
    reasons = [entry.reason for story in stories for entry in story.entries]
    by_controller = "was gone: connection refused at PLAINTEXT://b"
    by_broker = re.compile(r"not registered \(process of broker \d: connection refused at PLAIN")
    assert any(by_controller in reason for reason in reasons)
    assert any(by_broker.search(reason) for reason in reasons)
