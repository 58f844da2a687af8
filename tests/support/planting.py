"""Defects put into the product as patches, and the seeds whose runs tell of them.

A table of defects has, for each function that puts one in: the plan's settings, what a run says
of it, and the seeds that are tried.
"""

import contextlib
import sys
import time

import pytest

from ottla.sim import cluster
from ottla.sim.cluster import run
from ottla.sim.plans import Plan


def found(plant, bugs):
    """Return the seed that tells of a planted bug, and in what words; None where none does."""
    settings, words, seeds = bugs[plant]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        patch.setattr(cluster, "SETTLE_S", 40.0)
        for seed in seeds:
            told = [
                line for line in run(Plan(seed, **settings)).anomalies if line.startswith(words)
            ]
            if told:
                return seed, told[0]
    return None


def main(names, bugs):
    """Try each defect with its seeds, print what tells of it; return how many are missed."""
    missed = 0
    for plant in bugs:
        if names and not any(plant.__name__.startswith(name) for name in names):
            continue
        began = time.process_time()
        with contextlib.redirect_stderr(None):
            what = found(plant, bugs)
        missed += what is None
        took_s = time.process_time() - began
        sys.stdout.write(f"{plant.__name__}: {what} after {took_s:.0f} s of CPU time\n")
        sys.stdout.flush()
    return missed
