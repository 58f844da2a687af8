"""How long a rebalance plan takes to make, and how good it is, beside the bytes any plan needs.

    python benchmarks/rebalance_plan.py [--partitions 50000] [--brokers 50] [--racks 5]

Made-up clusters: 500 topics, three replicas, sizes log-normal (median 0.5 GB, a few of 100 GB and
more), one core, no Spark. Each case: what is wrong, seconds to decide, bytes to move, the least.
"""

import argparse
import random
import resource
import time

from ottla.model.ids import TopicPartition
from ottla.pipelines.rebalancing.deciding import decide
from ottla.pipelines.rebalancing.problem import Broker, Goals, Partition, Problem
from ottla.pipelines.rebalancing.staging import Bounds

GB = 10**9
TOPICS = 500


def made_up(args: argparse.Namespace, *, added: int = 0, drained: int = 0, skew: float = 1.0,
            racked: bool = True) -> Problem:  # fmt: skip
    """A cluster; `skew` above 1 puts more on the brokers with low ids; not `racked`: anywhere."""
    chance = random.Random(1)
    brokers = [
        Broker(b, f"r{b % args.racks}", 200_000 * GB, 1, receives=b >= drained, leaves=b < drained)
        for b in range(args.brokers + added)
    ]
    partitions = []
    for n in range(args.partitions):
        racks = chance.sample(range(args.racks), 3) if racked else [None] * 3
        there: list[int] = []
        while len(there) < 3:
            b = int(args.brokers * chance.random() ** skew)
            if b not in there and (not racked or b % args.racks == racks[len(there)]):
                there.append(b)
        size = int(chance.lognormvariate(20, 1.5))
        tp = TopicPartition(f"t{n % TOPICS}", n // TOPICS)
        partitions.append(Partition(tp, tuple(there), size, size // 1000, there[0]))
    return Problem(brokers, partitions, Goals())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=50_000)
    parser.add_argument("--brokers", type=int, default=50)
    parser.add_argument("--racks", type=int, default=5)
    args = parser.parse_args()
    cases = {
        "five brokers added": made_up(args, added=5),
        "three brokers drained": made_up(args, drained=3),
        "uneven": made_up(args, skew=1.3),
        "uneven, racks ignored so far": made_up(args, skew=1.3, racked=False),
    }
    for name, problem in cases.items():
        began, cpu = time.perf_counter(), time.process_time()
        made = decide(problem, Bounds(max_bytes=1000 * GB))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(
            f"{name}: {took:.1f} s ({cpu:.1f} s of CPU); {made.bytes_to_move / GB:,.0f} GB to "
            f"move, {made.least / GB:,.0f} at least; {len(made.stages)} stages; bytes off "
            f"{made.before.bytes_off:.0%} -> {made.after.bytes_off:.1%}, leaders "
            f"{made.before.leaders_off:,} -> {made.after.leaders_off}, topics "
            f"{made.before.topics_off:,} -> {made.after.topics_off}",
            flush=True,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"largest resident memory: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
