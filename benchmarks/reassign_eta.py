"""How well `ottla reassign` tells the end of a move, and how exact its throttle is.

Three brokers with partitions of one topic (factor 2), a producer that goes on, and a fourth broker
that gets its share under a throttle. Every look's estimate is compared with what really came.
    python benchmarks/reassign_eta.py [--kafka] [--partitions 200] [--rate 3000000]
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ottla.admin.session import connected
from ottla.client import proposals, reassignments, topics
from ottla.placement import copy_estimate
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

TOPIC = "moved"


def produce(bootstrap: str, megabytes: int) -> None:
    record = "x" * 9_999 + "\n"
    subprocess.run(
        [sys.executable, "-m", "ottla", "produce", TOPIC, "--partitioner", "random",
         "-b", bootstrap, "--quiet"],
        input=record * (megabytes * 100), text=True, check=True, timeout=600,
    )  # fmt: skip


LOAD = """
import subprocess, sys, time
p = subprocess.Popen([sys.executable, "-m", "ottla", "produce", "moved", "--partitioner", "random",
    "-b", sys.argv[1], "--quiet"], stdin=subprocess.PIPE)
line = b"y" * 999 + b"\\n"
while True:
    p.stdin.write(line * int(int(sys.argv[2]) / 10_000)); p.stdin.flush(); time.sleep(0.1)
"""


def noted_sizes() -> list[tuple[float, copy_estimate.Sizes]]:
    """Return a list that gets every look's sizes, and when they were seen."""
    found: list[tuple[float, copy_estimate.Sizes]] = []
    add = copy_estimate.Estimator.add

    def noted(self: object, now_s: float, sizes: copy_estimate.Sizes) -> object:
        found.append((now_s, sizes))
        return add(self, now_s, sizes)

    copy_estimate.Estimator.add = noted
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kafka", action="store_true", help="brokers of Apache Kafka 3.9")
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rate", type=int, default=3_000_000, help="throttle, bytes/s")
    parser.add_argument("--load", type=int, default=300_000, help="produced meanwhile, bytes/s")
    parser.add_argument("--trace", type=Path, help="write what was seen of sizes here, as JSON")
    args = parser.parse_args()
    kind, more = (Kafka39Cluster, {"heap_mb": 384}) if args.kafka else (OttlaCluster, {})
    with tempfile.TemporaryDirectory() as folder, kind(Path(folder), brokers=4, **more) as cluster:
        return measure(cluster, args)


def measure(cluster: object, args: argparse.Namespace) -> int:
    bootstrap = cluster.bootstrap
    placed = [[p % 3, (p + 1) % 3] for p in range(args.partitions)]
    connected(bootstrap, lambda c: topics.create_topic(c, TOPIC, assignment=placed))
    produce(bootstrap, args.megabytes)
    load = subprocess.Popen([sys.executable, "-c", LOAD, bootstrap, str(args.load)])
    seen: list[tuple[float, object]] = []
    sizes = noted_sizes()

    async def move(client: object) -> float:
        _, proposed = await proposals.propose(client, [TOPIC], [0, 1, 2, 3], None)
        plan = proposed.assignment
        prepared = await reassignments.prepare(client, plan, "plan", additional=False)
        began = time.monotonic()
        await reassignments.execute(client, prepared, args.rate)
        set_s = time.monotonic() - began
        began = time.monotonic()

        def tell(left: int, _: int, estimate: object) -> None:
            if estimate is not None and left:
                seen.append((time.monotonic() - began, estimate))

        left = await reassignments.wait(client, plan, 900, tell)
        took = time.monotonic() - began
        assert left == 0
        await reassignments.clear_throttles(client, [TOPIC])
        size = proposed.copied_bytes / 1e6
        print(f"{proposed.copies} replicas, {size:.0f} MB; throttled after {set_s:.1f} s")
        return took

    try:
        took = connected(bootstrap, move)
    finally:
        load.kill()
        load.wait(10)
    if args.trace:
        samples = [(at - sizes[0][0], *each) for at, each in sizes]
        args.trace.write_text(json.dumps({"rate": args.rate, "took": took, "samples": samples}))
    distinct = [seen[0], *(b for a, b in itertools.pairwise(seen) if a[1] is not b[1])]
    print(f"took {took:.1f} s")
    print(" after  copied      rate    left  really   end off by  left off by")
    worst_end = worst_left = 0.0
    for n, (t, e) in enumerate(distinct):
        if e.left_s is None or e.rate is None:
            continue
        really = took - t
        of_end, of_left = abs(t + e.left_s - took) / took, abs(e.left_s - really) / really
        if t >= took / 3:
            worst_end = max(worst_end, of_end)
            if t <= took * 0.9:
                worst_left = max(worst_left, of_left)
        if n % max(1, len(distinct) // 25) == 0:
            print(
                f"{t:6.1f} {e.copied / 1e6:7.1f} {e.rate / 1e6:9.2f} {e.left_s:7.1f} "
                f"{really:7.1f} {of_end:12.1%} {of_left:12.1%}"
            )
    print(
        f"after the first third: the end is off by {worst_end:.1%} of the whole time at most, "
        f"what is left by {worst_left:.1%} (until 90 % of the time)"
    )
    a = next(one for one in distinct if one[0] >= took * 0.25)
    b = [one for one in distinct if one[0] <= took * 0.9][-1]
    rate = (b[1].copied - a[1].copied) / (b[0] - a[0])
    print(
        f"throttle {args.rate:,} B/s: {rate:,.0f} B/s from 25 to 90 % ({rate / args.rate - 1:+.1%})"
        f", {distinct[-1][1].copied / took:,.0f} B/s over all"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
