"""The simulator finds what it is for: each bug here is a patch to production code."""

import pytest

from ottla.controller import elections
from ottla.log import producers
from ottla.replication import fetching, isr
from ottla.sim import cluster
from ottla.sim.cluster import run
from ottla.sim.plans import Plan


def high_watermark_ignores_followers(patch):
    """R4."""
    patch.setattr(isr, "high_watermark", lambda leader_end_offset, *_, **__: leader_end_offset)


def anybody_may_lead(patch):
    """A clean election that does not look at the ISR."""

    def lives(state, online):
        return lambda replica: None if online(replica) else "offline"

    patch.setattr(elections, "_in_sync_and_live", lives)


def followers_are_never_told_that_they_diverge(patch):
    """R1, R2."""
    patch.setattr(fetching, "divergence", lambda *_: None)


def sequences_are_not_checked(patch):
    patch.setattr(producers.Producer, "repeated", lambda *_: None)
    patch.setattr(producers.Producers, "_check_sequence", staticmethod(lambda *_: None))


CONSISTENCY = (
    "acked record lost",
    "read not repeatable",
    "replicas differ",
    "duplicate record",
    "reordered",
    "client: ",
    "znodes: ",  # a leader outside the ISR is seen there before anybody lost a record by it
)
# Each with the faults that show it, and the seed that showed it first when this was written.
BUGS = {
    high_watermark_ignores_followers: (("kill", "isolate", "one-way", "pause", "expire"), 8),
    anybody_may_lead: (("isolate", "kill", "kill-all", "one-way"), 0),
    followers_are_never_told_that_they_diverge: (
        ("kill", "isolate", "one-way", "pause", "expire"), 1
    ),
    sequences_are_not_checked: (("reset", "kill", "one-way", "isolate"), 1),
}  # fmt: skip
pytestmark = pytest.mark.slow
SEEDS = 24
"""Of these small plans one in seven shows the bug that shows least."""


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_within_a_few_seeds(plant, monkeypatch):
    faults, first = BUGS[plant]
    monkeypatch.setattr(cluster, "SETTLE_S", 20.0)
    plant(monkeypatch)
    for seed in range(first, first + SEEDS):
        plan = Plan(
            seed,
            seconds=10.0,
            mean_gap_s=1.0,
            partitions=2,
            consumers=1,
            operators=False,
            faults=faults,
        )
        verdict = run(plan)
        if any(line.startswith(CONSISTENCY) for line in verdict.anomalies):
            assert plan.replayed_by().startswith(f"python -m ottla.sim --seed {seed} ")
            return
    pytest.fail("nothing was found")
