"""Administrators move replicas between log dirs while all else goes on (KIP-113)."""

from ottla.replication.log_dir_moves import LogDirMoves
from ottla.sim.cluster import run
from ottla.sim.drawn_plans import drawn
from ottla.sim.plans import Plan

PLAN = Plan(
    5,
    seconds=12.0,
    mean_gap_s=3.0,
    partitions=2,
    producers=1,
    no_retry_producers=0,
    consumers=1,
    administrators=3,
    operators=False,
    faults=("reset", "slow"),
)


def test_replicas_move_and_all_agree_afterwards():
    verdict = run(PLAN)
    assert verdict.passed, verdict.anomalies
    assert verdict.statistics["log_dir_moves"] >= 3


def test_a_move_that_never_ends_is_found(monkeypatch):
    def announced_only(self, partition, future):
        partition.future = future

    monkeypatch.setattr(LogDirMoves, "_add", announced_only)
    monkeypatch.setattr("ottla.sim.cluster.SETTLE_S", 20.0)
    verdict = run(PLAN)
    assert any("is still on its way to" in line for line in verdict.anomalies), verdict.anomalies


def test_drawn_runs_with_log_dirs_to_choose_from_have_somebody_who_moves_replicas():
    plans = [drawn(seed) for seed in range(200)]
    assert all(plan.administrators for plan in plans if plan.log_dirs > 1)
    assert sum(plan.log_dirs > 1 for plan in plans) > 120
    assert {plan.log_dirs for plan in plans} == {1, 2, 3}
