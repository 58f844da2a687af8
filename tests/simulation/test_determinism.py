"""One seed, one trace: whatever the order of sets, and whatever ran before."""

import os
import subprocess
import sys

from ottla.sim.cluster import run
from ottla.sim.plans import Plan

SEED = 7
SECONDS = 8.0


def digest_in_a_process(hash_seed):
    code = (
        "from ottla.sim.cluster import Plan, run\n"
        f"v = run(Plan({SEED}, seconds={SECONDS}, mean_gap_s=1.5))\n"
        "print(v.digest, v.steps, len(v.faults))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.split()


def test_the_trace_is_the_same_under_two_hash_seeds_and_in_this_process():
    first, second = digest_in_a_process("1"), digest_in_a_process("4242")
    assert first == second
    assert int(first[2]) > 0
    here = run(Plan(SEED, seconds=SECONDS, mean_gap_s=1.5))
    assert [here.digest, str(here.steps), str(len(here.faults))] == first


def test_another_seed_is_another_trace():
    plan = {"seconds": 2.0, "faults": ()}
    assert run(Plan(1, **plan)).digest != run(Plan(2, **plan)).digest
