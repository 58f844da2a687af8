"""From a kill -9 to led again, and to the next acknowledged record: beside Kafka 3.9 and 4.1.

Three brokers, 2,000 partitions (10 topics x 200, RF 3, min.insync.replicas=2), the same session
timeout of 6 s everywhere: Ottla and Kafka 3.9.1 with ZooKeeper, Kafka 4.1.0 with KRaft (three
combined nodes). A broker is killed: one that leads, one that only follows, the controller's.
Clocks start at the kill. A bare client polls the survivors' Metadata; a producer with acks=all
(librdkafka, the same settings for all) writes to partitions of the victim all the time. Then the
victim is started again, and the next kill waits until every ISR is full.
    python benchmarks/crash.py [--only ottla|kafka39|kafka41] [--part kills|start|restart|rolling]
        [--kills 20] [--times 5] [--kinds leader,follower,controller] [--topics 10]
        [--partitions 200] [--results FILE] [--no-write]
Systems take turns. --results keeps each result as a line of JSON; those that are there already
count, so that a run can be done in pieces or go on after it was stopped. Writes docs/crash.svg
and the tables in docs/BENCHMARKS.md, but not after --only without --results. Each wait is bounded.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import quick
from crash_report import KINDS, PARTS, Report, summary
from crash_view import (
    POLL_S,
    BrokerView,
    Producing,
    full,
    in_sync_without,
    led_without,
    preferred,
)

from ottla.admin.session import world
from ottla.client import elections, topics
from ottla.client.client import Client, parse_bootstrap
from ottla.net import runtime
from ottla.zookeeper.embedded import start_zookeeper
from support import kafka_tools
from support.cluster import BrokerProcesses, OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.kafka41 import VERSION, Kafka41Cluster

SESSION_MS = 6000
TICK_MS = 500
"""ZooKeeper rounds a session's end up to the next tick: the same one for both."""
SETTINGS = {
    "auto_leader_rebalance_enable": "false",
    "default_replication_factor": "3",
    "min_insync_replicas": "2",
}
REPLICAS = 3
KILLS_ON_A_CLUSTER = 5
OUTAGE_LIMIT_S = 90.0
FULL_LIMIT_S = 300.0
ACCEPT_LIMIT_S = 30.0
SAMPLE = 4
"""Partitions that the producer writes to, in a kill; of each broker, in a rolling restart: 2."""
BEFORE_S, AFTER_S, SETTLE_S = 1.5, 1.0, 2.0
GENTLE_POLL_S = 0.1
"""While a producer is measured that others keep waiting: to look on costs brokers time, too."""
RESTART_POLL_S = 0.02
PHASE_S = 2.0
"""Kills come at any moment of this long: brokers ping ZooKeeper every 2 s."""


class Ottla(OttlaCluster):
    """Ours, with the tick of the others' ZooKeeper."""

    def start_zookeeper(self, port: int) -> Any:
        return start_zookeeper(self.folder / "zookeeper", port, heap_mb=256, tick_ms=TICK_MS)


SYSTEMS: dict[str, Callable[..., BrokerProcesses]] = {
    "kafka39": Kafka39Cluster,
    "kafka41": Kafka41Cluster,
    "ottla": Ottla,
}


@dataclass
class Result:
    """One measurement: seconds by name, and what was counted."""

    system: str
    part: str
    kind: str
    load: float
    seconds: dict[str, float]
    counts: dict[str, int] = field(default_factory=dict)


# -- one cluster under observation ----------------------------------------------------------------


@dataclass
class Bench:
    """A running cluster, the topics on it, and a view of each broker."""

    name: str
    cluster: Any
    client: Client
    topics: dict[str, int]
    views: dict[int, BrokerView]
    random: random.Random

    async def look(self, broker: int) -> None:
        """Connect to a broker, once it serves."""
        if broker in self.views:
            self.views.pop(broker).close()
        self.views[broker] = await BrokerView.open(self.cluster.address(broker), self.topics)

    def others(self, broker: int | None = None) -> list[BrokerView]:
        return [view for b, view in self.views.items() if b != broker]

    async def seen(
        self,
        good: Callable[[Any], bool],
        limit_s: float,
        what: str,
        without: int | None = None,
        *,
        poll_s: float = POLL_S,
    ) -> float:
        """Wait until all brokers (but one) say it of every partition; return when the last did."""
        try:
            async with asyncio.timeout(limit_s):
                views = self.others(without)
                return max(await asyncio.gather(*(view.until(good, poll_s) for view in views)))
        except TimeoutError:
            raise AssertionError(f"{self.name}: not {what} within {limit_s:.0f} s") from None

    async def controller(self) -> int:
        if isinstance(self.cluster, Kafka41Cluster):
            return self.cluster.controller()
        (view, *_) = self.others()
        return int((await view.metadata()).controller_id)

    async def leaders(self, without: int | None = None) -> dict[tuple[str, int], int]:
        """Return who leads each partition."""
        (view, *_) = self.others(without)
        found = await view.metadata()
        return {
            (t.name, p.partition_index): p.leader_id for t in found.topics for p in t.partitions
        }

    async def balance(self) -> None:
        """Have every first replica lead."""
        await elections.elect(self.client, elections.Kind.preferred, None)
        await self.seen(preferred, FULL_LIMIT_S, "led by the first replicas")

    async def victim(self, kind: str) -> int:
        """Return a broker of a kind, after making one where there is none."""
        if kind != "follower":
            await self.balance()
        controller = await self.controller()
        assert controller in self.views, f"{self.name}: no controller"
        if kind == "controller":
            return controller
        others = [b for b in self.views if b != controller]
        if kind == "leader":
            return self.random.choice(others)
        leads = Counter((await self.leaders()).values())
        idle = [b for b in others if not leads[b]]
        if not idle:
            idle = others[:1]
            await self.stop(idle[0])
            await self.start(idle[0])
        return idle[0]

    async def stop(self, broker: int) -> None:
        """SIGTERM."""
        self.views.pop(broker).close()
        status = await asyncio.to_thread(self.cluster.terminate, broker)
        assert status in (0, 143), f"{self.name}: broker {broker} ended with {status}"

    async def start(self, broker: int, poll_s: float = POLL_S) -> float:
        """Start a broker that is down; return the seconds until it is in every ISR."""
        began = time.monotonic()
        await asyncio.to_thread(lambda: self.cluster.start_broker(broker, wait=False))
        back = await self.seen(full, FULL_LIMIT_S, "in sync everywhere", broker, poll_s=poll_s)
        await asyncio.to_thread(self.cluster.wait, broker)
        await self.look(broker)
        await self.seen(full, FULL_LIMIT_S, "in sync everywhere")
        return back - began

    async def accepting(self, led: float, without: int) -> float:
        """Ask every new leader for the end of all it leads; return when all were led.

        That is the moment that Metadata gave, unless one of them refused at first.
        """
        deadline = time.monotonic() + ACCEPT_LIMIT_S
        refused_once = False
        while True:
            by_leader: dict[int, list[tuple[str, int]]] = {}
            for partition, leader in (await self.leaders(without)).items():
                by_leader.setdefault(leader, []).append(partition)
            asked = [self.views[b].refusals(some) for b, some in by_leader.items()]
            refused = sum(await asyncio.gather(*asked))
            if not refused:
                return time.monotonic() if refused_once else led
            refused_once = True
            assert time.monotonic() < deadline, f"{self.name}: {refused} leaders refuse"
            await asyncio.sleep(0.005)

    def producing(self, partitions: list[tuple[str, int]]) -> Producing:
        (topic,) = {t for t, _ in partitions}
        return Producing(self.cluster.bootstrap, topic, [p for _, p in partitions])


@contextlib.asynccontextmanager
async def running(name: str, folder: Path, count: int, partitions: int) -> AsyncIterator[Bench]:
    """Start a system, create the topics, wait until every broker knows all of it."""
    cluster = SYSTEMS[name](folder, brokers=3, session_timeout_ms=SESSION_MS, **SETTINGS)
    wanted = {f"crash-{n}": partitions for n in range(count)}
    await asyncio.to_thread(cluster.__enter__)
    try:
        client = Client(world(), parse_bootstrap(cluster.bootstrap), "crash", timeout_s=60)
        for topic in wanted:
            await topics.create_topic(
                client, topic, partitions=partitions, replication_factor=REPLICAS, timeout_ms=90_000
            )
        bench = Bench(name, cluster, client, wanted, {}, random.Random())
        for broker in cluster.ids:
            await bench.look(broker)
        await bench.seen(full, FULL_LIMIT_S, "created")
        await asyncio.sleep(SETTLE_S)
        yield bench
        for view in bench.others():
            view.close()
        await client.close()
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)


# -- what is measured -----------------------------------------------------------------------------


async def seen_by_clients(bench: Bench, dead: int) -> tuple[float, float]:
    """Return when all partitions were led again, and when no ISR named the dead broker."""
    led = await bench.seen(led_without(dead), OUTAGE_LIMIT_S, "led again")
    led = await bench.accepting(led, dead)
    out = await bench.seen(in_sync_without(dead), OUTAGE_LIMIT_S, "in sync without it")
    return led, out


async def kill(bench: Bench, kind: str) -> Result:
    """Kill a broker of a kind, measure, start it again."""
    victim = await bench.victim(kind)
    leaders = await bench.leaders()
    wanted = [tp for tp, leader in leaders.items() if (leader == victim) == (kind != "follower")]
    sample = [tp for tp in wanted if tp[0] == wanted[0][0]][:SAMPLE]
    async with bench.producing(sample) as producing:
        async with asyncio.timeout(OUTAGE_LIMIT_S):
            await producing.until_acked(0)
        await asyncio.sleep(BEFORE_S + bench.random.random() * PHASE_S)
        load = os.getloadavg()[0]
        view = bench.views.pop(victim)
        began = time.monotonic()
        await asyncio.to_thread(bench.cluster.kill, victim)
        gone = time.monotonic()
        view.close()
        (led, out), acks = await asyncio.gather(
            seen_by_clients(bench, victim),
            asyncio.wait_for(producing.until_acked(gone), OUTAGE_LIMIT_S),
        )
        await asyncio.sleep(AFTER_S)
    restart_s = await bench.start(victim)
    await asyncio.sleep(SETTLE_S)
    return Result(
        bench.name,
        "kills",
        kind,
        load,
        {
            "led": led - began,
            "out": out - began,
            "ack": min(acks.values()) - began,
            "last_ack": max(acks.values()) - began,
            "gap": producing.longest_gap(began - BEFORE_S),
            "restart": restart_s,
        },
        {
            "errors": len(producing.errors),
            "victim": victim,
            "partitions": sum(bench.topics.values()),
        },
    )


async def restart(bench: Bench) -> Result:
    """Kill a broker, wait until no ISR names it, start it again."""
    victim = await bench.victim("leader")
    bench.views.pop(victim).close()
    await asyncio.to_thread(bench.cluster.kill, victim)
    await bench.seen(in_sync_without(victim), OUTAGE_LIMIT_S, "in sync without it")
    await asyncio.sleep(SETTLE_S)
    load = os.getloadavg()[0]
    restart_s = await bench.start(victim, RESTART_POLL_S)
    await asyncio.sleep(SETTLE_S)
    return Result(bench.name, "restart", "", load, {"restart": restart_s})


async def rolling(bench: Bench) -> Result:
    """Restart one broker after the other in order, under load."""
    await bench.balance()
    leaders = await bench.leaders()
    sample = []
    for broker in bench.cluster.ids:
        led = [tp for tp, leader in leaders.items() if leader == broker]
        sample += [tp for tp in led if tp[0] == next(iter(bench.topics))][: SAMPLE // 2]
    load = os.getloadavg()[0]
    seconds: dict[str, float] = {}
    async with bench.producing(sample) as producing:
        async with asyncio.timeout(OUTAGE_LIMIT_S):
            await producing.until_acked(0)
        await asyncio.sleep(BEFORE_S)
        began = time.monotonic()
        for broker in bench.cluster.ids:
            at = time.monotonic()
            await bench.stop(broker)
            stopped = time.monotonic()
            back_s = await bench.start(broker, GENTLE_POLL_S)
            await asyncio.sleep(AFTER_S)
            async with asyncio.timeout(OUTAGE_LIMIT_S):  # no partition is silent for good
                await producing.until_acked(time.monotonic())
            seconds[f"gap_{broker}"] = producing.longest_gap(at)
            seconds[f"stop_{broker}"] = stopped - at
            seconds[f"back_{broker}"] = back_s
        seconds["gap"] = producing.longest_gap(began - BEFORE_S)
        seconds["all"] = time.monotonic() - began
    return Result(bench.name, "rolling", "", load, seconds, {"errors": len(producing.errors)})


def start(name: str, folder: Path) -> Result:
    """From the first process to the first record that all replicas have acknowledged."""
    load = os.getloadavg()[0]
    context: Any
    if name == "kafka41":
        context = Kafka41Cluster(folder, 3, **SETTINGS)
        context.format()
    else:
        context = quick.SYSTEMS["ottla" if name == "ottla" else "kafka"](folder)
    began = time.monotonic()
    with context as system:
        quick.first_record(system.bootstrap)
        return Result(name, "start", "", load, {"start": time.monotonic() - began})


# -- turns ----------------------------------------------------------------------------------------


def in_turns(left: dict[str, int], size: int) -> list[tuple[str, int]]:
    """Return (system, how many), so that systems take turns and none gets more than `size`."""
    found = []
    for done in range(0, max(left.values(), default=0), size):
        found += [(name, min(size, n - done)) for name, n in left.items() if n > done]
    return found


async def on_a_cluster(
    name: str, part: str, count: int, args: argparse.Namespace, add: Callable[[Result], None]
) -> None:
    """Measure a part some times on a fresh cluster."""
    with tempfile.TemporaryDirectory(prefix="ottla-crash-") as folder:
        async with running(name, Path(folder), args.topics, args.partitions) as bench:
            for _ in range(count):
                if part == "kills":
                    for kind in args.kinds:
                        add(await kill(bench, kind))
                else:
                    add(await {"restart": restart, "rolling": rolling}[part](bench))


def measure_part(
    part: str, left: dict[str, int], args: argparse.Namespace, add: Callable[[Result], None]
) -> None:
    if part != "start":
        for name, count in in_turns(left, KILLS_ON_A_CLUSTER):
            runtime.run(on_a_cluster, name, part, count, args, add)
        return
    for name, _ in in_turns(left, 1):
        with tempfile.TemporaryDirectory(prefix="ottla-crash-") as folder:
            add(start(name, Path(folder)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(SYSTEMS))
    parser.add_argument("--part", choices=PARTS, help="by default all of them")
    parser.add_argument("--kills", type=int, default=20, help="of each kind, on each system")
    parser.add_argument("--times", type=int, default=5, help="of each other part")
    parser.add_argument("--kinds", default=",".join(KINDS), type=lambda text: text.split(","))
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=200, help="of each topic")
    parser.add_argument("--results", type=Path, help="append to this file; count what it has")
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    if unknown := set(args.kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}")
    return args


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("crash: SIGTERM"))  # stops its cluster, too
    names = [args.only] if args.only else list(SYSTEMS)
    versions = {"kafka39": kafka_tools.VERSION, "kafka41": VERSION}
    for name in set(names) & set(versions):
        if problem := kafka_tools.why_not(versions[name]):
            print(f"crash: {problem}", file=sys.stderr)
            return 1
    report = Report()
    if args.results and args.results.exists():
        for line in args.results.read_text().splitlines():
            report.add(json.loads(line))

    def add(result: Result) -> None:
        found = asdict(result)
        found["seconds"] = {k: round(v, 4) for k, v in result.seconds.items()}
        report.add(found)
        line = json.dumps(found)
        print(line, flush=True)
        if args.results:
            with args.results.open("a") as out:
                out.write(line + "\n")

    for part in [args.part] if args.part else PARTS:
        wanted = args.kills if part == "kills" else args.times
        kinds = args.kinds if part == "kills" else [""]
        left = {n: wanted - min(len(report.of(part, n, kind)) for kind in kinds) for n in names}
        measure_part(part, left, args, add)
    print("\n".join(summary(report)))
    report.tell(write=not args.no_write and (not args.only or args.results is not None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
