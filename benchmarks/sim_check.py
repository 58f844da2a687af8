"""How soon `ottla sim check` finds what is known to be lost: simulated hours for each loss.

    python benchmarks/sim_check.py [--hours 30] [--processes 2]

Seeds are run one after the other, whatever they find; a search stops at the first find, whose hours
vary. The figures are KNOWN_LOSSES of `ottla.sim.scenarios.report`. Ten simulated minutes take about
two seconds of a CPU.
"""

import argparse
from collections import deque

from ottla.sim.scenarios.report import KNOWN_LOSSES
from ottla.sim.scenarios.scenario import KEPT, checked
from ottla.sim.scenarios.scenario_run import Job
from ottla.sim.scenarios.search import pool_of

SCENARIOS = (
    {"topic": {"min.insync.replicas": "1"}},
    {"topic": {"min.insync.replicas": "2"}, "producer": {"acks": "1"}},
)


def main() -> None:
    parser = argparse.ArgumentParser(description="simulated hours for each known loss")
    parser.add_argument("--hours", type=float, default=30.0)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    for known, values in zip(KNOWN_LOSSES, SCENARIOS, strict=True):
        seconds, losses, seed = 0.0, 0, 1
        waiting = deque()
        with pool_of(checked(values, "benchmark"), arguments.processes) as pool:
            while seconds < arguments.hours * 3600:
                while len(waiting) <= arguments.processes:
                    waiting.append(pool.submit(Job(seed)))
                    seed += 1
                run = waiting.popleft().result()
                seconds += run.seconds
                losses += any(broken.promise == KEPT for broken in run.broken)
        each = f"{seconds / 3600 / losses:.1f} hours each" if losses else "none"
        told = f"{losses} losses in {seconds / 3600:.1f} hours: {each}"
        print(f"{known.settings}: {told}", flush=True)


if __name__ == "__main__":
    main()
