"""Lines per second of the timeline job, and how it grows with the data.

    python benchmarks/timeline.py [--lines 250000] [--doublings 2] [--master local[2]]

Writes state-change logs of three brokers as Kafka 3.9 has them at TRACE (the lines of failovers:
metadata, requests, roles, decisions) to a temporary folder, reads them, applies all rules and
writes nothing but the result's counts; once before that to warm up. Prints a line of JSON per size,
with the CPU time of Spark's JVM, of its Python workers and of this process (the driver): on a busy
machine that says more than the clock. `us_per_line` is all CPU time by lines, in microseconds.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from ottla.pipelines.session import Wanted as Session
from ottla.pipelines.session import start_session
from ottla.pipelines.timeline import files, job
from ottla.pipelines.timeline.command import work_of
from ottla.pipelines.timeline.read import Wanted

PARTITIONS = 1000
STATE = (
    "PartitionState(topicName='flights', partitionIndex={p}, controllerEpoch=1, leader={b}, "
    "leaderEpoch={e}, isr=[0, 1, 2], {v}={e}, replicas=[0, 1, 2], {more}=[])"
)
CACHED = (
    "TRACE [Broker id={w}] Cached leader info UpdateMetadata"
    + STATE.replace("{v}", "zkVersion").replace("{more}", "offlineReplicas")
    + " for partition flights-{p} in response to UpdateMetadata request sent by controller 0 "
    "epoch 1 with correlation id 7"
)
ASKED = (
    "TRACE [Broker id={w}] Received LeaderAndIsr request LeaderAndIsr"
    + STATE.replace("{v}", "partitionEpoch").replace("{more}", "addingReplicas")
    + " correlation id 7 from controller 0 epoch 1"
)
LED = (
    "INFO [Broker id={w}] Leader flights-{p} with topic id Some(hD15WMViXciYbFu4oOXmPQ) starts at "
    "leader epoch {e} from offset 0 with partition epoch {e}, high watermark 0, ISR [0,1,2], "
    "adding replicas [] and removing replicas [] . Previous leader Some(0) and previous leader "
    "epoch was {before}."
)
FOLLOWED = (
    "INFO [Broker id={w}] Follower flights-{p} starts at leader epoch {e} from offset 0 with "
    "partition epoch {e} and high watermark 0. Current leader is {b}. Previous leader Some(0) and "
    "previous leader epoch was {before}."
)
DECIDED = (
    "INFO [Controller id=0 epoch=1] Changed partition flights-{p} from OnlinePartition to "
    "OnlinePartition with state LeaderAndIsr(leader={b}, leaderEpoch={e}, isrWithBrokerEpoch=List("
    "BrokerState(brokerId=0, brokerEpoch=-1), BrokerState(brokerId=1, brokerEpoch=-1)), "
    "leaderRecoveryState=RECOVERED, partitionEpoch={e})"
)
REPLICA = (
    "TRACE [Controller id=0 epoch=1] Changed state of replica {b} for partition flights-{p} from "
    "OnlineReplica to OnlineReplica"
)


def write(folder: Path, lines: int) -> int:
    """Write about so many lines; return how many."""
    folder.mkdir()
    logs = [(folder / f"state-change.log.{b}").open("w", encoding="utf-8") for b in range(3)]
    written = 0

    def put(broker: int, ms: int, text: str, **facts: int) -> None:
        clock = f"2026-11-22 {ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d},"
        line = text.format(w=broker, **facts)
        logs[broker].write(f"[{clock}{ms % 1000:03d}] {line} (state.change.logger)\n")

    epoch = 0
    while written < lines:
        for p in range(PARTITIONS):
            ms = epoch * 20_000 + p
            facts = {"p": p, "e": epoch, "b": (p + epoch) % 3, "before": epoch - 1}
            put(0, ms, DECIDED, **facts)
            put(0, ms, REPLICA, **facts)
            for broker in range(3):
                put(broker, ms + 10, ASKED, **facts)
                put(broker, ms + 12, LED if broker == facts["b"] else FOLLOWED, **facts)
                put(broker, ms + 20, CACHED, **facts)
        written += 11 * PARTITIONS
        epoch += 1
    for log in logs:
        log.close()
    return written


def measure(spark, folder: Path, lines: int, pid: int) -> dict[str, float]:
    started, cpu = time.perf_counter(), cpu_s(pid)
    made = job.timeline(spark, files.find([str(folder)]), Wanted(), 1000)
    counts = made.counts()
    took = time.perf_counter() - started
    jvm, workers, driver = (after - before for after, before in zip(cpu_s(pid), cpu, strict=True))
    assert made.lines == lines, (made.lines, lines)
    size = sum(p.stat().st_size for p in folder.iterdir())
    made.close()
    return {
        "lines": lines,
        "mb": round(size / 1e6),
        "seconds": round(took, 1),
        "lines_per_s": round(lines / took),
        "jvm_cpu_s": round(jvm, 1),
        "workers_cpu_s": round(workers, 1),
        "driver_cpu_s": round(driver, 1),
        "us_per_line": round((jvm + workers + driver) * 1e6 / lines, 1),
        "terms": counts["terms"],
        "load": round(os.getloadavg()[0], 1),
    }


def cpu_s(jvm: int) -> tuple[float, float, float]:
    """Return the seconds of CPU time used so far by the JVM, by its Python workers, and by us.

    Workers are the JVM's descendants; what those had used that have ended is in their parent's
    count of children.
    """
    parents, used, with_ended = {}, {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]]
            parents[int(folder.name)] = int(fields[1])
            used[int(folder.name)], with_ended[int(folder.name)] = sum(ticks[:2]), sum(ticks)
    below = {jvm}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    ended = with_ended[jvm] - used[jvm]
    return used[jvm], ended + sum(with_ended[pid] for pid in below - {jvm}), time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=250_000)
    parser.add_argument("--doublings", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    spark = start_session(
        "timeline benchmark", Session(options.master, {}), work=work_of(events=False)
    )
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001 - no public way
    try:
        with tempfile.TemporaryDirectory() as folder:
            for size in (0, *range(options.doublings + 1)):  # the first to warm up
                logs = Path(folder) / f"{time.monotonic_ns()}"
                lines = write(logs, options.lines << size)
                print(json.dumps(measure(spark, logs, lines, pid)), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
