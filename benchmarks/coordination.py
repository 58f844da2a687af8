"""Our ZooKeeper server beside a real one: reads, sets and multi-creates, on the same machine.

    python benchmarks/coordination.py [--rounds 3] [--only own|java]

Both fsync. Each figure is the median of the rounds; a round of one server follows a round of the
other, so that whatever else the machine does meets both. The client is one process with our
`Session` and a window of requests under way, as the controller has; `one by one` has one.
"""

import argparse
import asyncio
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ottla.admin.session import world
from ottla.net import runtime
from ottla.zookeeper.embedded import ZooKeeperProcess, start_own_zookeeper, start_zookeeper
from ottla.zookeeper.operations import Create
from ottla.zookeeper.session import Session

WINDOW = 200
READS, SETS, MULTIS, MULTI_SIZE, SINGLE = 10_000, 6_000, 300, 100, 300
STARTERS: dict[str, Callable[[Path], ZooKeeperProcess]] = {
    "own": lambda folder: start_own_zookeeper(folder, 0),
    "java": lambda folder: start_zookeeper(folder, 0, heap_mb=512),
}


async def pipelined(count: int, call: Callable[[int], "asyncio.Future[object]"]) -> float:
    """Return calls a second with WINDOW of them under way."""
    started_s = time.perf_counter()
    waiting: list[asyncio.Future[object]] = []
    for i in range(count):
        waiting.append(call(i))
        if len(waiting) >= WINDOW:
            await waiting[len(waiting) // 2]
            waiting = [w for w in waiting if not w.done()]
    await asyncio.gather(*waiting)
    return count / (time.perf_counter() - started_s)


async def measure(address: str, name: str) -> dict[str, float]:
    session = await Session.connect(world(), address, 30_000, 20_000)
    root = f"/bench-{name}"
    await session.create(root)
    for i in range(100):
        await session.create(f"{root}/r{i}", b"x" * 100)
    found = {
        "reads /s": await pipelined(READS, lambda i: session.get(f"{root}/r{i % 100}")),
        "sets /s": await pipelined(SETS, lambda i: session.set(f"{root}/r{i % 100}", b"y" * 100)),
    }

    def create(i: int) -> "asyncio.Future[list[object]]":
        return session.multi([Create(f"{root}/m{i}-{j}", b"z" * 100) for j in range(MULTI_SIZE)])

    found["creates in multis /s"] = MULTI_SIZE * await pipelined(MULTIS, create)
    times_s = []
    for _ in range(SINGLE):
        started_s = time.perf_counter()
        await session.set(f"{root}/r0", b"one")
        times_s.append(time.perf_counter() - started_s)
    found["one set, ms"] = statistics.median(times_s) * 1000
    await session.close()
    return found


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(STARTERS))
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(STARTERS)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as scratch:
        servers = {}
        try:
            for name in names:
                started_s = time.perf_counter()
                servers[name] = STARTERS[name](Path(scratch) / name)
                first = {"start, s": time.perf_counter() - started_s}
                first["memory idle, MB"] = resident_mb(servers[name].pid)
                found[name].append(first)
            for i in range(arguments.rounds):
                for name in names:
                    address = servers[name].connect_string
                    found[name].append(runtime.run(measure, address, f"{name}-{i}"))
        finally:
            for server in servers.values():
                server.stop()
    print(f"load {os.getloadavg()[0]:.1f}, medians of {arguments.rounds} rounds")
    for key in [*found[names[0]][0], *found[names[0]][1]]:
        medians = [statistics.median(r[key] for r in found[n] if key in r) for n in names]
        print(
            f"{key:22}" + "".join(f"{n}: {m:12,.2f}  " for n, m in zip(names, medians, strict=True))
        )


if __name__ == "__main__":
    main()
