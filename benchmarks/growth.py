"""How time and memory of the lake, replicas, timeline and audit jobs grow with the data.

    PYTHONPATH=src:tests:benchmarks python benchmarks/growth.py [--job lake …] [--doublings 3]
Each job runs in one Spark session (local[2]), first on little data to warm up, then on 1, 2, 4 and
8 times as much. For each size: seconds by the clock and of processor time, the resident set of the
largest Python worker while it ran, and of Java. `--write` puts docs/growth.svg and the table in
docs/BENCHMARKS.md. The line through the sizes is fitted by least squares: what a run takes whatever
its size, what each unit adds, and how far the largest size lies off the line through the others.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import replicas as replica_files
import timeline as state_changes
from processor_time import Watch

from ottla.cli.grammar import read
from ottla.pipelines import audit, lake
from ottla.pipelines.replica_files.job import compare
from ottla.pipelines.segments.folders import Place
from ottla.pipelines.session import Wanted, Work, start_session
from ottla.pipelines.timeline import files, job
from ottla.pipelines.timeline.read import Wanted as Lines
from support.cluster import OttlaCluster

ROOT = Path(__file__).parent.parent
PLOT, TABLE = ROOT / "docs" / "growth.svg", ROOT / "docs" / "BENCHMARKS.md"
BEGIN, END = "<!-- growth: begin -->", "<!-- growth: end -->"
PARTITIONS = 4
BATCH_BYTES = 15_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: `amount` in the job's unit."""

    job: str
    unit: str
    amount: int
    seconds: float
    cpu_s: float
    worker_mb: float
    java_mb: float
    load: float


Runs = Iterator[tuple[int, Callable[[], None]]]
"""For each size: how much there is, and what runs the job over it."""


# -- the jobs --------------------------------------------------------------------------------------


def topic_of(cluster: OttlaCluster, name: str, records: int) -> None:
    """Make a topic of JSON objects of 300 bytes."""
    from confluent_kafka import Producer

    command = ["topics", "create", name, "--partitions", str(PARTITIONS), "--replication-factor",
               "1", "--bootstrap-server", cluster.bootstrap]  # fmt: skip
    subprocess.run([sys.executable, "-m", "ottla", *command], check=True, timeout=60)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "compression.type": "lz4",
         "batch.size": 262_144, "queue.buffering.max.messages": 500_000}
    )  # fmt: skip
    values = [
        json.dumps({"n": n, "day": f"2026-01-{1 + n % 28:02}", "note": os.urandom(120).hex()})
        for n in range(5000)
    ]
    for n in range(records):
        while True:
            try:
                producer.produce(name, values[n % 5000], b"k%d" % (n % 1000), n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def in_words(main: Any, arguments: list[str], spark: Any) -> dict[str, Any]:
    """Run a job in the session; return its result."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        options = read(main.Options, arguments)
        assert main.run(options, spark) == 0
    return json.loads(out.getvalue())


def of_lake(spark: Any, folder: Path, sizes: list[int]) -> Runs:
    with OttlaCluster(folder / "cluster", brokers=1) as cluster:
        for number, size in enumerate(sizes):
            name = f"lake-{number}"
            topic_of(cluster, name, size)
            sets = [
                f"cluster.bootstrap_servers={cluster.bootstrap}", f"lake.path={folder}/lake",
                f'lake.topics=["{name}"]', "value.format=json",
                "value.schema=n long, day string, note string",
            ]  # fmt: skip

            def land(name: str = name, size: int = size, sets: list[str] = sets) -> None:
                told = in_words(lake, [x for s in sets for x in ("--set", s)], spark)
                assert told["topics"][name]["rows"] == size

            yield size, land


def of_audit(spark: Any, folder: Path, sizes: list[int]) -> Runs:
    with OttlaCluster(folder / "cluster", brokers=1) as cluster:
        for number, size in enumerate(sizes):
            name = f"audit-{number}"
            topic_of(cluster, name, size)
            sets = [f"cluster.bootstrap_servers={cluster.bootstrap}", f'audit.topics=["{name}"]']

            def count(size: int = size, sets: list[str] = sets) -> None:
                arguments = [x for s in sets for x in ("--set", s)]
                told = in_words(audit, ["--output", "json", *arguments], spark)
                assert sum(one["records"] for one in told["buckets"]) == size

            yield size, count


def of_replicas(spark: Any, folder: Path, sizes: list[int]) -> Runs:
    for number, size in enumerate(sizes):
        root = folder / str(number)
        replica_files.make(root, size, BATCH_BYTES)

        def look(root: Path = root) -> None:
            assert compare(spark, [Place(b, str(root / str(b))) for b in range(3)]).held

        yield size, look


def of_timeline(spark: Any, folder: Path, sizes: list[int]) -> Runs:
    for number, size in enumerate(sizes):
        logs = folder / str(number)
        lines = state_changes.write(logs, size)

        def judge(logs: Path = logs, lines: int = lines) -> None:
            made = job.timeline(spark, files.find([str(logs)]), Lines(), 1000)
            assert made.counts()["terms"] > 0
            assert made.lines == lines
            made.close()

        yield lines, judge


@dataclass(frozen=True, slots=True)
class Job:
    """`first`: the amount of the smallest size; `warm`: of the run before."""

    runs: Callable[[Any, Path, list[int]], Runs]
    unit: str
    warm: int
    first: int
    work: Work


JOBS = {
    "lake": Job(of_lake, "rows", 20_000, 100_000, Work(quick_java=True, modules=lake.MODULES)),
    "replicas": Job(of_replicas, "MB", 60, 400, replica_files.WORK),
    "timeline": Job(of_timeline, "lines", 50_000, 66_000, Work()),
    "audit": Job(of_audit, "records", 10_000, 150_000, Work()),
}


def measure(name: str, doublings: int) -> list[Measured]:
    what = JOBS[name]
    sizes = [what.warm, *(what.first << n for n in range(doublings + 1))]
    found = []
    spark = start_session(f"growth of {name}", Wanted("local[2]"), work=what.work)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, (amount, run) in enumerate(what.runs(spark, Path(folder), sizes)):
                load, watch, began = os.getloadavg()[0], Watch(os.getpid()), time.monotonic()
                run()
                seconds, used = time.monotonic() - began, watch.end()
                if not number:
                    continue
                one = Measured(
                    name, what.unit, amount, round(seconds, 2), round(used.seconds, 2),
                    round(used.largest_worker / 1e6), round(used.largest_java / 1e6),
                    round(load, 1),
                )  # fmt: skip
                found.append(one)
                print(json.dumps(asdict(one)), flush=True)
    finally:
        spark.stop()
    return found


def apart(name: str, doublings: int) -> list[Measured]:
    """Measure a job in a process of its own, with a Java of its own."""
    command = [sys.executable, __file__, "--job", name, "--doublings", str(doublings)]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                print(line, end="", flush=True)
                found.append(Measured(**json.loads(line)))
    assert process.returncode == 0, name
    return found


# -- the table and the plot ------------------------------------------------------------------------


def line_through(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return (at zero, per unit) of the line with the least squares."""
    count = len(points)
    mean_x, mean_y = (sum(p[i] for p in points) / count for i in (0, 1))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points
    )
    return mean_y - slope * mean_x, slope


def section(found: list[Measured]) -> str:
    """Return the table, and of each job how far the largest size is off the line of the others."""
    loads = [one.load for one in found]
    how = (
        f"Measured {time.strftime('%Y-%m-%d', time.gmtime())} by `benchmarks/growth.py --write`: "
        f"{os.cpu_count()} cores, Spark `local[2]`, Python {platform.python_version()}; load "
        f"average {min(loads)} to {max(loads)} before the runs."
    )
    lines = [
        BEGIN,
        how,
        "",
        "| job | data | by the clock | processor time | largest worker | Java |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one.job} | {one.amount:,} {one.unit} | {one.seconds:.1f} s | {one.cpu_s:.1f} s "
        f"| {one.worker_mb:.0f} MB | {one.java_mb:.0f} MB |"
        for one in found
    ]
    lines.append("")
    for name in dict.fromkeys(one.job for one in found):
        some = [one for one in found if one.job == name]
        if len(some) < 3:
            continue
        points = [(one.amount, one.cpu_s) for one in some]
        fixed, each = line_through(points[:-1])
        expected = fixed + each * points[-1][0]
        fixed, each = line_through(points)
        lines.append(
            f"- {name}: {fixed:.1f} s of processor time whatever the size, and {each * 1e6:,.1f} "
            f"µs per {some[0].unit.removesuffix('s')}; the largest size takes "
            f"{points[-1][1] / expected:.2f} times what the line through the smaller ones says"
        )
    lines += ["", "![time and memory by the size of the data](growth.svg)", END]
    return "\n".join(lines)


WIDTH, HEIGHT, LEFT, BOTTOM = 430, 250, 50, 50
COLOURS = {"lake": "#1b6ca8", "replicas": "#c2571a", "timeline": "#3a7d44", "audit": "#7b3f98"}


def chart(found: list[Measured], of: str, title: str, offset: int, *, line: bool) -> list[str]:
    """Return one chart: `of` each run by times of the smallest size, each job by its own."""
    base, left = HEIGHT - BOTTOM, offset + LEFT
    top_y = max(getattr(one, of) for one in found) * 1.1
    smallest = {one.job: one.amount for one in reversed(found)}
    top_x = max(one.amount / smallest[one.job] for one in found)

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + x / top_x * (WIDTH - LEFT - 30),
            base - y / top_y * (base - 35),
        )

    out = [
        f'<text x="{left}" y="20" class="title">{title}</text>',
        f'<path d="M{left} 30V{base}H{offset + WIDTH - 10}" class="axis"/>',
    ]
    for name, colour in COLOURS.items():
        some = [one for one in found if one.job == name]
        if not some:
            continue
        points = [(one.amount / smallest[name], getattr(one, of)) for one in some]
        if line and len(points) > 1:
            fixed, each = line_through(points)
            (x1, y1), (x2, y2) = at(0, max(fixed, 0)), at(top_x, fixed + each * top_x)
            out.append(
                f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" '
                'stroke-dasharray="4 3" fill="none"/>'
            )
        elif len(points) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in points))
            out.append(f'<polyline points="{path}" stroke="{colour}" fill="none"/>')
        for x, y in (at(*p) for p in points):
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        x, y = at(*points[-1])
        out.append(
            f'<text x="{x - 5:.1f}" y="{y - 7:.1f}" class="value" fill="{colour}">'
            f"{points[-1][1]:.3g}</text>"
        )
    for times in (1, 2, 4, 8):
        if times <= top_x:
            x, _ = at(times, 0)
            out.append(f'<text x="{x:.1f}" y="{base + 16}" class="tick">{times} x</text>')
    return out


def plot(found: list[Measured]) -> str:
    style = (
        "text{font:11px sans-serif;fill:#444}.title{font-size:13px}.tick{text-anchor:middle}"
        ".value{text-anchor:end}.axis{stroke:#888;fill:none}"
    )
    units = {one.job: (one.amount, one.unit) for one in reversed(found)}
    legend = "".join(
        f'<circle cx="{LEFT + 8 + 200 * n}" cy="{HEIGHT - 12}" r="4" fill="{COLOURS[name]}"/>'
        f'<text x="{LEFT + 16 + 200 * n}" y="{HEIGHT - 8}">{name} (1 x = {amount:,} {unit})</text>'
        for n, (name, (amount, unit)) in enumerate(sorted(units.items()))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{HEIGHT}">',
            f"<style>{style}</style>",
            '<rect width="100%" height="100%" fill="white"/>',
            *chart(found, "cpu_s", "seconds of processor time, and the line through them", 0,
                   line=True),
            *chart(found, "worker_mb", "MB resident in the largest Python worker", WIDTH,
                   line=False),
            legend,
            "</svg>",
            "",
        ]
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", choices=JOBS, nargs="*", default=list(JOBS))
    parser.add_argument("--doublings", type=int, default=3)
    parser.add_argument(
        "--keep", type=Path, help="lines of JSON to add to, and to draw; with an empty --job alone"
    )
    parser.add_argument("--write", action="store_true", help="into docs")
    args = parser.parse_args()
    if len(args.job) == 1:
        found = measure(args.job[0], args.doublings)
    else:
        found = [one for name in args.job for one in apart(name, args.doublings)]
    if args.keep:
        known = args.keep.read_text().splitlines() if args.keep.exists() else []
        others = [Measured(**json.loads(line)) for line in known]
        found = [one for one in others if one.job not in args.job] + found
        args.keep.write_text("".join(json.dumps(asdict(one)) + "\n" for one in found))
    text = section(found)
    print(text)
    if args.write:
        before, _, rest = TABLE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        TABLE.write_text(before + text + after, encoding="utf-8")
        PLOT.write_text(plot(found), encoding="utf-8")


if __name__ == "__main__":
    main()
