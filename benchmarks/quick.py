"""Side by side: Apache Kafka 3.9 and Ottla, in one run, on one machine, by Kafka's own tools.

Rounds alternate (Kafka, Ottla, Kafka, Ottla, ...), each on fresh clusters of three brokers and a
real ZooKeeper; medians are quoted and the load average is printed before every round. Nothing else
should run meanwhile. About fifteen minutes; every step has a bound.
    python benchmarks/quick.py [--rounds 3] [--only kafka|ottla] [--no-write]
        [--part data|consume|control]
Writes the table into docs/BENCHMARKS.md.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import consuming
import control_plane
import perf_tools

from ottla.admin.session import connected
from ottla.client import topics
from ottla.client.producer import Producer
from ottla.local import cluster as local_cluster
from ottla.local import processes
from ottla.local.cluster_dir import ClusterDir
from ottla.model.errors import OttlaError
from ottla.model.protocol import ACKS_ALL
from ottla.wire.records import NewRecord
from support import kafka_tools
from support.kafka39 import Kafka39Cluster

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))


# Users have compiled modules; without them each start of a broker would compile all anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "docs" / "BENCHMARKS.md"
BEGIN, END = "<!-- quick: begin -->", "<!-- quick: end -->"
SETTLE_S = 4
WARM_UP_RECORDS = 300_000
RF1_RECORDS = 2_000_000
RF3_RECORDS = 1_000_000
MANY_TOPICS, MANY_PARTITIONS = 10, 200


@dataclass(frozen=True)
class Scenario:
    """One line of the table. `goal` bounds ours / Kafka, or ours alone where it has a unit."""

    key: str
    what: str
    unit: str
    higher_is_better: bool
    goal: str
    passes: str


SCENARIOS = [
    Scenario("start_s", "ZooKeeper + 3 brokers, to the first acks=all record", "s", False,
             "< 6 s", "ours < 6"),
    Scenario("idle_mb", "resident memory of an idle broker", "MB", False, "< 80 MB", "ours < 80"),
    Scenario("e2e_p50_ms", "EndToEndLatency, RF 3, acks=all, p50", "ms", False,
             "< 10 ms", "ours < 10"),
    Scenario("e2e_avg_ms", "EndToEndLatency, RF 3, acks=all, mean", "ms", False, "", ""),
    Scenario("e2e_p99_ms", "EndToEndLatency, RF 3, acks=all, p99", "ms", False, "", ""),
    Scenario("rf1_rec_s", "ProducerPerformance 100 B, 64 KiB batches, RF 1, acks=1", "rec/s", True,
             ">= 1.0 x", "ratio >= 1.0"),
    Scenario("rf3_rec_s", "ProducerPerformance 100 B, 64 KiB batches, RF 3, acks=all", "rec/s",
             True, ">= 0.8 x", "ratio >= 0.8"),
    Scenario("consume_hot1_rec_s", "ConsumerPerformance, 1 consumer, hot", "rec/s", True,
             ">= 1.0 x", "ratio >= 1.0"),
    Scenario("consume_hot3_rec_s", "... 3 consumers, hot", "rec/s", True,
             ">= 1.0 x", "ratio >= 1.0"),
    Scenario("consume_hot_cpu_s_gb", "... CPU seconds of the brokers per GB consumed, hot", "s",
             False, "<= 1.0 x", "ratio <= 1.0"),
    Scenario("consume_zstd_rec_s", "... 1 consumer, zstd, hot", "rec/s", True,
             ">= 1.0 x", "ratio >= 1.0"),
    Scenario("consume_zstd_cpu_s_gb", "... CPU seconds of the brokers per GB, zstd, hot", "s",
             False, "<= 1.0 x", "ratio <= 1.0"),
    Scenario("consume_cold1_rec_s", "... 1 consumer, cold", "rec/s", True,
             ">= 1.0 x", "ratio >= 1.0"),
    Scenario("consume_cold3_rec_s", "... 3 consumers, cold", "rec/s", True,
             ">= 1.0 x", "ratio >= 1.0"),
    Scenario("consume_cold_cpu_s_gb", "... CPU seconds of the brokers per GB consumed, cold", "s",
             False, "<= 1.0 x", "ratio <= 1.0"),
    Scenario("create_s", "create 10 topics x 200 partitions RF 3, until every leader is known", "s",
             False, "<= 1/3", "ratio <= 0.3333"),
    Scenario("many_mb", "resident memory of a broker after that", "MB", False, "", ""),
    Scenario("shutdown_led_s", "SIGTERM of one of them, until it leads nothing", "s", False,
             "<= 1/3", "ratio <= 0.3333"),
    Scenario("shutdown_end_s", "... until its process has ended", "s", False,
             "<= 1/3", "ratio <= 0.3333"),
    Scenario("restart_isr_s", "its restart, until it is back in every ISR", "s", False,
             "<= 1/3", "ratio <= 0.3333"),
    Scenario("kill_follower_s", "kill -9 of a broker that only follows: from the loss of its znode "
             "until no ISR has it", "s", False, "<= 1/3", "ratio <= 0.3333"),
    Scenario("kill_leader_s", "kill -9 of a leader: ... until every partition is led again", "s",
             False, "<= 1/3", "ratio <= 0.3333"),
    Scenario("kill_controller_s", "kill -9 of the controller: ... until every partition is led "
             "again", "s", False, "<= 1/3", "ratio <= 0.3333"),
]  # fmt: skip


# -- the two systems ----------------------------------------------------------------------------


@dataclass
class System:
    """A running cluster, whichever it is, as `control_plane.Cluster`."""

    bootstrap: str
    zookeeper: str
    pid: Callable[[int], int]
    start: Callable[[int], None]

    @property
    def pids(self) -> list[int]:
        return [self.pid(broker) for broker in range(3)]

    def signal(self, broker: int, number: int) -> None:
        os.kill(self.pid(broker), number)

    def gone(self, broker: int) -> bool:
        process = processes.identify(self.pid(broker))
        return process is None or not processes.alive(process)

    def resident_mb(self) -> float:
        """Return the mean resident memory of a broker."""
        found = [processes.identify(pid) for pid in self.pids]
        sizes = [processes.resident_bytes(p) or 0 for p in found if p is not None]
        return statistics.mean(sizes) / 1e6


SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2"}


@contextlib.contextmanager
def kafka(folder: Path) -> Iterator[System]:
    with Kafka39Cluster(
        folder, 3, **{k.replace(".", "_"): v for k, v in SETTINGS.items()}
    ) as cluster:
        yield System(cluster.bootstrap, cluster.zookeeper, cluster.pid, cluster.start_broker)


@contextlib.contextmanager
def ottla(folder: Path) -> Iterator[System]:
    where = ClusterDir(folder)
    try:
        wanted = local_cluster.Wanted(3, settings=SETTINGS, any_ports=True)
        cluster, _ = local_cluster.up(where, wanted)

        def pid(broker: int) -> int:
            process = where.existing().brokers[broker].process
            assert process is not None
            return process.pid

        def start(_broker: int) -> None:
            local_cluster.up(where, wanted)  # starts what is dead

        yield System(cluster.bootstrap, cluster.zookeeper.address, pid, start)
    finally:
        if where.load() is not None:
            local_cluster.down(where)


SYSTEMS = {"kafka": kafka, "ottla": ottla}
PARTS = ("data", "consume", "control")


# -- measuring ----------------------------------------------------------------------------------


def first_record(
    bootstrap: str,
    replicas: int = 3,
    *,
    settings: dict[str, str] | None = None,
    pause_s: float = 0.02,
) -> None:
    """Create a topic and have one record acknowledged by all replicas, trying until it works.

    `settings` are the topic's; `pause_s` is what a refused creation waits before the next.
    """

    async def try_once(client: object) -> None:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OttlaError):
                await topics.create_topic(
                    client, "first", partitions=1, replication_factor=replicas, settings=settings
                )
                break
            assert time.monotonic() < deadline, "no topic within a minute"
            await asyncio.sleep(pause_s)
        writer = Producer(client, "first", acks=ACKS_ALL, timeout_s=60)
        await writer.open(1)
        await writer.send([NewRecord(None, b"first light")])

    connected(bootstrap, try_once)


def create_topic(bootstrap: str, name: str, partitions: int, replicas: int) -> None:
    async def create(client: object) -> None:
        await topics.create_topic(client, name, partitions=partitions, replication_factor=replicas)
        await all_led(client, {name: partitions})

    connected(bootstrap, create)


async def all_led(client: object, wanted: dict[str, int]) -> None:
    """Wait until every broker knows a leader of every partition."""
    from ottla.wire.messages.cluster import MetadataRequest

    deadline = time.monotonic() + 120
    for broker in await client.broker_ids():
        while True:
            request = MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in wanted],
                allow_auto_topic_creation=False,
            )
            response = await client.call(request, broker)
            led = sum(p.leader_id >= 0 for t in response.topics for p in t.partitions)
            if led == sum(wanted.values()):
                break
            assert time.monotonic() < deadline, f"{led} of {sum(wanted.values())} are led"
            await asyncio.sleep(0.05)


def create_many(bootstrap: str) -> float:
    """Return the seconds until 2,000 partitions are led, as every broker sees it."""

    async def create(client: object) -> float:
        names = [f"many{n}" for n in range(MANY_TOPICS)]
        began = time.monotonic()
        for name in names:
            await topics.create_topic(
                client, name, partitions=MANY_PARTITIONS, replication_factor=3, timeout_ms=90_000
            )
        await all_led(client, dict.fromkeys(names, MANY_PARTITIONS))
        return time.monotonic() - began

    return connected(bootstrap, create)


def one_round(name: str, folder: Path, parts: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    began = time.monotonic()
    with SYSTEMS[name](folder) as system:
        first_record(system.bootstrap)
        found["start_s"] = time.monotonic() - began
        time.sleep(SETTLE_S)
        found["idle_mb"] = system.resident_mb()
        if "data" in parts:
            found |= data_plane(system, folder)
        if "consume" in parts:
            found |= consuming.measure(system, folder, create_topic)
        if "control" in parts:
            found["create_s"] = create_many(system.bootstrap)
            found["many_mb"] = system.resident_mb()
            found |= control_plane.measure(system)
    return found


def data_plane(system: System, folder: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    produce = perf_tools.producer_performance
    create_topic(system.bootstrap, "rf1", 1, 1)
    create_topic(system.bootstrap, "rf3", 3, 3)
    for topic, acks in (("rf1", "1"), ("rf3", "all")):
        # Warm: a JVM compiles what runs often, and the figures are of a broker that has run.
        produce(system.bootstrap, topic, WARM_UP_RECORDS, acks)
    found["rf1_rec_s"] = produce(system.bootstrap, "rf1", RF1_RECORDS, "1")
    found["rf3_rec_s"] = produce(system.bootstrap, "rf3", RF3_RECORDS, "all")
    create_topic(system.bootstrap, "latency", 1, 3)
    return found | perf_tools.end_to_end(system.bootstrap, "latency", folder)


# -- telling ------------------------------------------------------------------------------------


def number(value: float, unit: str) -> str:
    if unit == "rec/s":
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def verdict(scenario: Scenario, ours: float, ratio: float) -> str:
    if not scenario.passes:
        return ""
    left, operator, bound = scenario.passes.split()
    value = ours if left == "ours" else ratio
    holds = {"<": value < float(bound), "<=": value <= float(bound), ">=": value >= float(bound)}
    return "held" if holds[operator] else "missed"


def table(rounds: dict[str, list[dict[str, float]]]) -> list[str]:
    lines = [
        "| scenario | Kafka 3.9.1 | Ottla | ours / Kafka | goal | |",
        "|---|---:|---:|---:|---|---|",
    ]
    for scenario in SCENARIOS:
        if any(scenario.key not in r for n in SYSTEMS for r in rounds[n]):
            continue
        medians = [statistics.median(r[scenario.key] for r in rounds[n]) for n in SYSTEMS]
        theirs, ours = medians
        ratio = ours / theirs if theirs else float("inf")
        lines.append(
            f"| {scenario.what} | {number(theirs, scenario.unit)} {scenario.unit} "
            f"| {number(ours, scenario.unit)} {scenario.unit} | {ratio:.2f} | {scenario.goal} "
            f"| {verdict(scenario, ours, ratio)} |"
        )
    return lines


def section(rounds: dict[str, list[dict[str, float]]], loads: list[float]) -> str:
    spread = ", ".join(f"{load:.1f}" for load in loads)
    how = (
        f"Measured {time.strftime('%Y-%m-%d', time.gmtime())} by `make bench-quick`: "
        f"{len(rounds['ottla'])} rounds each, alternating, medians; {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, {platform.system()}. "
        f"Load average before each round: {spread}."
    )
    return "\n".join([BEGIN, how, "", *table(rounds), END])


def write(text: str) -> None:
    page = BENCHMARKS.read_text() if BENCHMARKS.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    BENCHMARKS.write_text(before + text + after)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(SYSTEMS))
    parser.add_argument("--part", choices=PARTS, help="measure only this; writes nothing")
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    problem = kafka_tools.why_not()
    if problem:
        print(f"bench-quick: {problem}", file=sys.stderr)
        return 1
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
    loads = []
    for turn in range(args.rounds):
        for name in [args.only] if args.only else SYSTEMS:
            load = os.getloadavg()[0]
            loads.append(load)
            print(f"round {turn + 1} {name}: load average {load:.2f}", flush=True)
            with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
                found = one_round(name, Path(folder), [args.part] if args.part else PARTS)
            rounds[name].append(found)
            print("  " + json.dumps({k: round(v, 2) for k, v in found.items()}), flush=True)
    if args.only:
        return 0
    text = section(rounds, loads)
    print(text)
    if not args.no_write and not args.part:
        write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
