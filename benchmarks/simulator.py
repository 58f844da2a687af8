"""How many seconds of simulated clusters a second of processor time gives.

Runs drawn plans as `python -m ottla.sim --drawn --coordinated` does, one after the other in this
process: twelve of them, unless `--seed` and `--seeds` say otherwise. For each it prints the virtual
seconds, the processor seconds (user and system, all threads) and the hash of its trace. Two commits
whose hashes are the same have run the same simulations. `--rounds N` tries each N times and counts
the least: other work on the machine only adds. It asks of `ottla.sim` only what the first drawn
plans had, so that older commits can be measured with it, too:

    PYTHONPATH=/path/to/an/older/commit/src python benchmarks/simulator.py
"""

import argparse
import logging
import os
import sys
from pathlib import Path

import ottla
from ottla.sim.cluster import run
from ottla.sim.drawn_plans import drawn

FIRST_SEED = 9_940_000
PLANS = 12


def processor_seconds():
    """Return the user and system seconds of this process, all threads of it."""
    times = os.times()
    return times.user, times.system


def measure(seed):
    """Run one plan; return its verdict, user and system seconds."""
    user, system = processor_seconds()
    verdict = run(drawn(seed, coordinated=True))
    user_after, system_after = processor_seconds()
    return verdict, user_after - user, system_after - system


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seeds", type=int, default=PLANS)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.CRITICAL)  # as that command has it
    print(f"of {Path(ottla.__file__).parent}")
    virtual_s = user_s = system_s = 0.0
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        tries = [measure(seed) for _ in range(arguments.rounds)]
        verdict, user, system = min(tries, key=lambda found: found[1] + found[2])
        digests = " ".join(sorted({found[0].digest for found in tries}))
        failed += not verdict.passed
        virtual_s += verdict.virtual_s
        user_s += user
        system_s += system
        print(
            f"seed {seed} virtual {verdict.virtual_s:6.2f} s  processor {user + system:6.2f} s "
            f"(system {system:5.2f})  ratio {verdict.virtual_s / (user + system):6.1f}  "
            f"steps {verdict.steps:7}  trace {digests} {'passed' if verdict.passed else 'FAILED'}",
            flush=True,
        )
    spent_s = user_s + system_s
    print(
        f"all {arguments.seeds}: virtual {virtual_s:.1f} s, processor {spent_s:.1f} s (system "
        f"{system_s:.1f}), {virtual_s / spent_s:.1f} virtual seconds for one of the processor"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
