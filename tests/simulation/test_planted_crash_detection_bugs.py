"""Defects of crash detection (R17, F44), each put into the product as a patch.

`PYTHONPATH=src:tests:tests/simulation python tests/simulation/test_planted_crash_detection_bugs.py`
tries each with its seeds one after the other and prints which one tells (docs/TESTING.md has the
numbers).
"""

import asyncio
import sys

import pytest

from ottla.broker.lifecycle.membership import Membership
from ottla.controller import crash_detection
from ottla.sim.cluster import run
from ottla.sim.network import SimNetwork
from ottla.sim.plans import Plan
from ottla.zookeeper.access import ANY_VERSION
from ottla.zookeeper.operations import Set
from ottla.zookeeper.removals import Removals
from support.planting import found, main


def r17_a_timeout_counts_as_refused(patch):
    async def refuses(self, host, port, *, timeout_s):
        try:
            transport, _ = await self.connect(host, port, asyncio.Protocol, timeout_s=timeout_s)
        except OSError:  # TimeoutError is one
            return True
        transport.abort()
        return False

    patch.setattr(SimNetwork, "refuses", refuses)


def r17_one_refusal_is_enough(patch):
    patch.setattr(crash_detection, "ROUNDS", 1)


def r17_a_removal_is_not_fenced(patch):
    """R10: any version of /controller_epoch will do."""
    remove = Removals.remove_registration

    async def unfenced(self, *args, **more):
        self._zk.fence = ANY_VERSION
        return await remove(self, *args, **more)

    patch.setattr(Removals, "remove_registration", unfenced)


def r17_whatever_is_registered_by_then_is_removed(patch):
    removal_of = Removals._removal_of

    def unchecked(self, *args, **more):
        ops = removal_of(self, *args, **more)
        if isinstance(ops, str):
            return ops
        return [op._replace(version=-1) if isinstance(op, Set) else op for op in ops]

    patch.setattr(Removals, "_removal_of", unchecked)


def r17_who_lives_does_not_register_anew(patch):
    async def nothing(_self, _store):
        pass

    patch.setattr(Membership, "_watch_registration", nothing)


def f44_an_orderly_end_is_taken_for_a_crash(patch):
    async def nothing(_self):
        pass

    patch.setattr(Membership, "withdraw", nothing)


pytestmark = pytest.mark.slow
PLAIN = {
    "seconds": 15.0, "mean_gap_s": 1.0, "producers": 1, "no_retry_producers": 0, "consumers": 1,
    "operators": False, "pause_s": 0.5, "crash_detection": True,
}  # fmt: skip
RULES = ("crash detection: ",)
BUGS = {
    r17_a_timeout_counts_as_refused: (
        {**PLAIN, "faults": ("one-way", "isolate", "reset")}, RULES, range(20)
    ),
    r17_one_refusal_is_enough: ({**PLAIN, "faults": ("refused-briefly",)}, RULES, range(20)),
    r17_a_removal_is_not_fenced: (
        {**PLAIN, "faults": ("controller-refused-while-cut-off",)}, RULES, range(20)
    ),
    r17_whatever_is_registered_by_then_is_removed: (
        {**PLAIN, "faults": ("returns-while-removed",)}, RULES, range(20)
    ),
    r17_who_lives_does_not_register_anew: (
        {**PLAIN, "faults": ("refused",)}, ("not healed: ",), range(6)
    ),
    f44_an_orderly_end_is_taken_for_a_crash: (
        {**PLAIN, "faults": ("graceful-restart", "slow-disk")}, RULES, range(20)
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_within_its_seeds(plant):
    assert found(plant, BUGS) is not None


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_its_plan_passes_without_it(plant):
    plan = Plan(0, **BUGS[plant][0])
    verdict = run(plan)
    assert verdict.passed, "\n".join([*verdict.anomalies, plan.replayed_by()])
    assert verdict.faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], BUGS))
