"""Controller failover with many partitions in ZooKeeper: how long, how much memory, how late.

Fifty registered brokers: one real (Ottla's or Apache Kafka's, the only candidate), 49 fakes of
`fake_brokers.py`. A script fills ZooKeeper with topics of 100 partitions, RF 3, on the fakes; one
fake is the controller. Its session ends: /controller and its /brokers/ids/N go at that moment, and
the real broker is elected: reads everything, elects new leaders for what the dead one led, takes
it out of every ISR, and tells the other brokers. Meanwhile a producer writes to a partition that
the real broker leads.
    python benchmarks/failover.py [--sizes 2000,10000,50000,100000] [--kafka 2000] [--rounds 1]
Times are ZooKeeper's own: from the end of the session to the last change of a state znode (led
again), and to the last request that a fake answered (told). Afterwards every state znode and all
that two of the fakes were told is compared. Writes docs/failover.svg and the table in
docs/BENCHMARKS.md (--no-write: only prints).
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from failover_report import Result, write_report

from ottla.admin.session import world
from ottla.client import topics
from ottla.client.client import Client, parse_bootstrap
from ottla.client.producer import Producer
from ottla.model.cluster import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.net import runtime
from ottla.wire.records import NewRecord
from ottla.zookeeper import znodes
from ottla.zookeeper.access import Write
from ottla.zookeeper.embedded import start_zookeeper
from ottla.zookeeper.operations import Create
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store
from support import kafka_tools
from support.cluster import free_ports
from support.kafka39 import Kafka39Cluster
from support.waiting import until

HERE = Path(__file__).resolve().parent
REAL, VICTIM, FAKES = 0, 1, range(2, 50)
PARTITIONS_PER_TOPIC = 100
REPLICAS = 3
HEALTHY = "healthy"
BEFORE_S = 5.0
QUIET_S = 4.0
LIMIT_S = 240.0
PRODUCE_PAUSE_S = 0.005
ZOOKEEPER_HEAP_MB = 2048


# -- what ZooKeeper holds -------------------------------------------------------------------------


def assignments(partitions: int) -> dict[TopicPartition, tuple[int, ...]]:
    """Spread partitions over the fakes and the victim, the first replica leads."""
    hosts = [VICTIM, *FAKES]
    found = {}
    for n in range(partitions):
        topic, index = divmod(n, PARTITIONS_PER_TOPIC)
        shift = 1 + n // len(hosts) % (len(hosts) - REPLICAS)
        found[TopicPartition(f"topic-{topic:04d}", index)] = (
            hosts[n % len(hosts)],
            hosts[(n + shift) % len(hosts)],
            hosts[(n + shift + 1) % len(hosts)],
        )
    return found


async def populate(store: Store, wanted: dict[TopicPartition, tuple[int, ...]], epoch: int) -> None:
    """Create the topics' znodes as a controller of that epoch would have left them."""
    by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
    for tp, replicas in wanted.items():
        by_topic.setdefault(tp.topic, {})[tp.partition] = ReplicaAssignment(replicas)
    ops = []
    for topic, assignment in by_topic.items():
        info = TopicInfo(topic, os.urandom(16), assignment)
        ops.append(Create(znodes.topic_path(topic), znodes.encode_topic(info)))
        ops.append(Create(znodes.partitions_path(topic), None))
        for partition, one in assignment.items():
            tp = TopicPartition(topic, partition)
            state = LeaderAndIsr(one.replicas[0], 0, one.replicas)
            ops.append(Create(znodes.partition_path(tp), None))
            ops.append(Create(znodes.state_path(tp), znodes.encode_state(state, epoch)))
    for start in range(0, len(ops), 20_000):
        some = [Write(op.path, op) for op in ops[start : start + 20_000]]
        results = await store.zk.write_all(some)
        bad = [r for r in results.values() if isinstance(r, Exception)]
        assert not bad, bad[:3]


async def read_states(
    store: Store, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[LeaderIsrAndControllerEpoch, float]]:
    """Return each state and when it was last written (seconds since 1970, ZooKeeper's clock)."""
    answers = await store.zk.get_many([znodes.state_path(tp) for tp in partitions])
    found = {}
    for tp, answer in zip(partitions, answers, strict=True):
        assert answer is not None, tp
        data, stat = answer
        found[tp] = znodes.decode_state(tp, data, stat.version), stat.mtime / 1000
    return found


async def zookeeper_requests(address: str) -> int:
    """Return how many packets the server has received."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"srvr")
    text = (await reader.read()).decode()
    writer.close()
    return int(text.partition("Received: ")[2].split()[0])


# -- the fakes' process ---------------------------------------------------------------------------


def serves(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class FakeProcess:
    """Speaks to `fake_brokers.py`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "fake_brokers.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, what: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the fakes' process ended"
        return json.loads(line)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)


# -- the real broker ------------------------------------------------------------------------------


@dataclass
class Real:
    """The one real broker."""

    address: str
    pid: int

    def memory_mb(self, what: str) -> float:
        """Return VmRSS (now) or VmHWM (the most ever)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class OttlaBroker:
    """Starts ours, under watch."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        folder.mkdir()
        self.lag = folder / "lag"
        port = free_ports(1)[0]
        config = folder / "broker.properties"
        config.write_text(
            f"broker.id={REAL}\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
            f"log.dirs={folder / 'data'}\nzookeeper.connect={zookeeper}\n"
            "zookeeper.session.timeout.ms=18000\n"
        )
        self.log = folder / "broker.out"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "watched_broker.py"), str(self.lag),
                 "--config", str(config)],
                stdout=out,
                stderr=out,
            )  # fmt: skip
        until(lambda: self.process.poll() is not None or serves(port), 30, "the broker serves")
        if self.process.poll() is not None:
            raise RuntimeError(self.log.read_text(errors="replace")[-3000:])
        self.real = Real(f"127.0.0.1:{port}", self.process.pid)

    def begin(self) -> None:
        os.kill(self.process.pid, signal.SIGUSR2)

    def stop(self) -> list[tuple[float, float, float]]:
        """Stop it hard but for its notes; return when it was late, by how much, and its CPU."""
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        if not self.lag.exists():
            return []
        _, *late = map(json.loads, self.lag.read_text().splitlines())
        return [tuple(entry) for entry in late]


class KafkaBroker:
    """Starts Kafka's."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.cluster = Kafka39Cluster(
            folder, ids=[REAL], zookeeper=zookeeper, heap_mb=1024, session_timeout_ms=18000
        )
        self.cluster.__enter__()
        self.log = self.cluster.log(REAL)
        self.real = Real(self.cluster.address(REAL), self.cluster.pid(REAL))

    def begin(self) -> None:
        pass

    def stop(self) -> list[tuple[float, float, float]]:
        self.cluster.processes[REAL].kill()
        self.cluster.processes[REAL].wait(10)
        return []


SYSTEMS = {"ottla": OttlaBroker, "kafka": KafkaBroker}


# -- a producer meanwhile -------------------------------------------------------------------------


@dataclass
class Producing:
    """One record every few milliseconds, acks=1, to a partition that has nothing to do with it."""

    latencies: list[tuple[float, float]] = field(default_factory=list)
    errors: int = 0

    async def run(self, client: Client) -> None:
        writer = Producer(client, HEALTHY, acks=1, timeout_s=30)
        await writer.open(1)
        while True:
            began = time.time()
            try:
                await writer.send([NewRecord(None, b"x" * 100)])
            except OttlaError:
                self.errors += 1
            self.latencies.append((began, (time.time() - began) * 1000))
            await asyncio.sleep(PRODUCE_PAUSE_S)

    def between(self, start: float, end: float) -> list[float]:
        return [ms for at, ms in self.latencies if start <= at < end]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def lag_figures(
    late: Sequence[tuple[float, float, float]], start: float, end: float
) -> dict[str, float]:
    """Return p99 and maximum of how late the loop was for something that came at any moment.

    A stall of 30 ms counts for all the moments in it: 30 ms late, 29, 28, ...
    """
    stalls = [(ms, cpu) for at, ms, cpu in late if start <= at <= end + 0.05]
    waits = [ms - step for ms, _ in stalls for step in range(int(ms))]
    waits += [0.0] * max(0, int((end - start) * 1000) - len(waits))
    return {
        "lag_p99_ms": percentile(waits, 0.99),
        "lag_max_ms": max((ms for ms, _ in stalls), default=0.0),
        "callback_max_ms": max((cpu for _, cpu in stalls), default=0.0),
        "over_20_ms": float(sum(ms > 20 for ms, _ in stalls)),
    }


# -- one failover ---------------------------------------------------------------------------------


async def wait_controller(store: Store, broker: int, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while await store.election.get_controller_id() != broker:
        assert time.monotonic() < deadline, f"broker {broker} is not the controller"
        await asyncio.sleep(0.05)


async def wait_over(
    fakes: FakeProcess, store: Store, led: Sequence[TopicPartition]
) -> dict[str, Any]:
    """Wait until nobody has been told anything for a while, and nothing is led by the dead one."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        await asyncio.sleep(0.5)
        stats = await asyncio.to_thread(fakes.ask, "stats")
        told = stats["last"]
        if told.get("LeaderAndIsr") and time.time() - max(told.values()) > QUIET_S:
            found = await read_states(store, led)
            if all(known.leader_and_isr.leader != VICTIM for known, _ in found.values()):
                return stats
        assert time.monotonic() < deadline, f"not over within {LIMIT_S:.0f} s: {stats}"


def check(
    found: dict[TopicPartition, tuple[LeaderIsrAndControllerEpoch, float]],
    wanted: dict[TopicPartition, tuple[int, ...]],
    told: dict[int, dict[str, Any]],
) -> None:
    """Compare every state with what had to come of it, and with what two fakes were told."""
    for tp, (known, _) in found.items():
        state, replicas = known.leader_and_isr, wanted[tp]
        live = tuple(r for r in replicas if r != VICTIM)
        assert state.isr == live, (tp, state, replicas)
        assert state.leader == live[0], (tp, state, replicas)
    for broker, lessons in told.items():
        assert lessons["metadata"], f"broker {broker} was told nothing"
        for tp, (known, _) in found.items():
            state = known.leader_and_isr
            expected = [state.leader, state.leader_epoch, list(state.isr)]
            assert lessons["metadata"].get(str(tp)) == expected, (broker, tp, expected)
            if broker in wanted[tp]:
                assert lessons["states"].get(str(tp)) == expected, (broker, tp, expected)


async def one_failover(name: str, partitions: int, folder: Path) -> Result:
    zookeeper = start_zookeeper(folder / "zookeeper", heap_mb=ZOOKEEPER_HEAP_MB)
    address = zookeeper.connect_string
    fakes = FakeProcess()
    broker: Any = None
    session = None
    try:
        broker = SYSTEMS[name](folder / "real", address)
        session = await Session.connect(world(), address, 30_000, 30_000)
        store = Store(session)
        await wait_controller(store, REAL)
        client = Client(world(), parse_bootstrap(broker.real.address), "bench", timeout_s=30)
        await topics.create_topic(client, HEALTHY, partitions=1, replication_factor=1)
        await asyncio.sleep(1)
        await asyncio.to_thread(fakes.ask, "take_over", zookeeper=address, victim=VICTIM, epoch=50)
        await asyncio.sleep(1)
        await asyncio.to_thread(fakes.ask, "register", ids=list(FAKES))
        wanted = assignments(partitions)
        await populate(store, wanted, 50)
        producing = Producing()
        producer = asyncio.create_task(producing.run(client))
        await asyncio.sleep(BEFORE_S)
        asked = await zookeeper_requests(address)
        cpu_s = broker.real.cpu_s()
        rss_before = broker.real.memory_mb("VmRSS")
        broker.begin()
        died = (await asyncio.to_thread(fakes.ask, "die"))["at"]
        led = [tp for tp, replicas in wanted.items() if replicas[0] == VICTIM]
        stats = await wait_over(fakes, store, led)
        asked = await zookeeper_requests(address) - asked - len(led)
        cpu_s = broker.real.cpu_s() - cpu_s
        producer.cancel()
        found = await read_states(store, list(wanted))
        told_at = max(stats["last"].values())
        lessons = {b: await asyncio.to_thread(fakes.ask, "learned", of=b) for b in stats["kept"]}
        check(found, wanted, lessons)
        before = producing.between(died - BEFORE_S + 1, died)
        during = producing.between(died, told_at)
        rss, peak = broker.real.memory_mb("VmRSS"), broker.real.memory_mb("VmHWM")
        await client.close()
        late = await asyncio.to_thread(broker.stop)
        assert not producing.errors, producing.errors
        return Result(
            system=name,
            partitions=partitions,
            led_s=max(found[tp][1] for tp in led) - died,
            written_s=max(at for _, at in found.values()) - died,
            told_s=told_at - died,
            rss_mb=rss,
            rss_before_mb=rss_before,
            peak_mb=peak,
            zookeeper_requests=asked,
            cpu_s=cpu_s,
            requests=stats["requests"],
            sent_mb=sum(stats["bytes"].values()) / 1e6,
            produce_before_p99_ms=percentile(before, 0.99),
            produce_p99_ms=percentile(during, 0.99),
            produce_max_ms=max(during, default=0.0),
            load=os.getloadavg()[0],
            **lag_figures(late, died, told_at),
        )
    finally:
        if session is not None:
            await session.close()
        if broker is not None:
            await asyncio.to_thread(broker.stop)
        fakes.stop()
        zookeeper.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="2000,10000,50000,100000", help="for Ottla")
    parser.add_argument("--kafka", default="2000", help="sizes for Kafka; empty: none")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    ours = [int(size) for size in args.sizes.split(",") if size]
    theirs = [int(size) for size in args.kafka.split(",") if size]
    if theirs and (problem := kafka_tools.why_not()):
        print(f"failover: {problem}", file=sys.stderr)
        return 1
    results: list[Result] = []
    for turn in range(args.rounds):
        for size in sorted({*ours, *theirs}):
            for name in [n for n, sizes in (("kafka", theirs), ("ottla", ours)) if size in sizes]:
                print(f"round {turn + 1} {name} {size}: load {os.getloadavg()[0]:.1f}", flush=True)
                with tempfile.TemporaryDirectory(prefix="ottla-failover-") as folder:
                    result = runtime.run(one_failover, name, size, Path(folder))
                results.append(result)
                print("  " + json.dumps(result.figures()), flush=True)
    write_report(results, write=not args.no_write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
