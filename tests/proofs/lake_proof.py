"""The lake proof: drivers and leaders killed amid batches, and every record once for every reader.

Each round produces records (a tenth of them garbage), starts the job as a process, kills it with
kill -9 at a point of its second batch (each of POINTS in turn, then at random moments), in every
third round also a broker, and reads the folders as they are then: nothing may stand twice, or in
part. After every third round a compaction is killed, too. At the end a run without kills,
`--verify`, a compaction, and all readers: pyarrow, Spark and DuckDB, against
what the producer was told. Last an unclean election cuts off what has landed, and the log grows
past it: the job must refuse. With `--format delta` the tables are Delta tables, too: after each
kill delta-rs and a reader of the protocol of our own must see what is committed, or one batch less.
    python tests/proofs/lake_proof.py --rounds 12
    python tests/proofs/lake_proof.py --rounds 13 --format delta
Exit status 0 only if every round held.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.wire.messages.cluster import MetadataRequest
from support.cluster import OttlaCluster, add_zookeeper_option, at_least_one
from support.delta_readers import by_delta_rs, by_protocol
from support.landed import (
    Produced,
    by_duckdb,
    by_library,
    differences,
    kill_when,
    numbered,
    places,
    settings_of,
)
from support.seen import ask

TOPIC = "proof"
PARTITIONS = 3
BATCH = 1_000
FETCH_BYTES = 2_000
"""So few that a batch takes many fetches: brokers die amid them."""
POINTS = {
    "staged": "_staging/{n}-*",
    "being written": "_staging/{n}-*/attempts/*",
    "rows written": "_staging/{n}-*/data/event_date=*",
    "set aside for Spark's parser": "_staging/{n}-*/attempts/*/aside.parquet",
    "dead letters being written": "_staging/{n}-*/dead",
    "manifest written": "_staging/{n}-*/data/_manifest.json",
    "dead letters moved": "dead/batch={n}",
    "committed": "data/batch={n}",
}
DELTA_POINTS = {"version of the Delta table written": "delta/data/_delta_log/{n:020d}.json"}


def batch_of_records(first: int, count: int) -> list[tuple[bytes, bytes | None]]:
    good = numbered(first, count)
    bad = [b"no json", b'{"n": "x"}', b'{"n": 1, "note": "\xff"}', b"", b"[1]"]
    return [
        (key, bad[n // 10 % len(bad)] if n % 10 == 3 else value)
        for n, (key, value) in enumerate(good)
    ]


def next_batch(table: Path) -> int:
    """Return the number that the next batch will have: compaction leaves gaps in them."""
    return max((int(p.name[6:]) + 1 for p in (table / "data").glob("batch=*")), default=0)


def versions(table: Path) -> int:
    """Return how many versions the Delta table of the rows has; 0 if it is none."""
    return len(list((table / "delta/data/_delta_log").glob("*.json")))


def delta_now(table: Path, produced: Produced) -> list[str]:
    """Read the Delta tables as strangers do just now; return what is doubled, foreign or missing.

    They may be one batch behind the folder `data`.
    """
    if not versions(table):
        return []
    found = {}
    for name, read in (("delta-rs", by_delta_rs), ("the protocol", by_protocol)):
        rows = places(read(table / "delta/data"))
        found[name] = {place: row["batch"] for place, row in rows.items()}
    wrong = [f"readers of Delta differ: {[len(f) for f in found.values()]} rows"]
    wrong *= found["delta-rs"] != found["the protocol"]
    there = found["delta-rs"]
    wrong += [
        f"Delta: {place} was never produced" for place in there if place not in produced.acked
    ]
    landed = {p: row["batch"] for p, row in places(by_library(table / "data")).items()}
    newest = max(landed.values(), default=-1)
    behind = {place: batch for place, batch in landed.items() if batch != newest}
    if there not in (landed, behind):
        wrong.append(f"Delta has {len(there)} rows, {len(landed)} have landed")
    return wrong


def seen_now(table: Path, produced: Produced) -> list[str]:
    """Read the folders as a stranger does just now; return what is doubled, foreign or torn."""
    if not next_batch(table):
        return []
    wrong = []
    rows = places(by_library(table / "data"))
    wrong += [f"{p} was never produced" for p in rows if p not in produced.acked]
    for manifest in (table / "data").glob("batch=*/_manifest.json"):
        told = json.loads(manifest.read_bytes())
        batch = told["batch"]
        expected = sum(part["rows"] for parts in told["partitions"].values() for part in parts)
        there = sum(row["batch"] == batch for row in rows.values())
        if there != expected:
            wrong.append(f"batch {batch} has {there} rows, its manifest says {expected}")
    return wrong + delta_now(table, produced)


def killer_of(cluster: OttlaCluster, table: Path, point: str) -> threading.Thread:
    """Kill a broker when the first batch of this run is being read."""

    def kill() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if list(table.glob(point)):
                cluster.kill(1)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def one_round(
    number: int,
    cluster: OttlaCluster,
    produced: Produced,
    table: Path,
    sets: list[str],
    size: int,
    points: Mapping[str, str],
) -> tuple[dict[str, object], list[str]]:
    records = batch_of_records(number * size, size)
    produced.send(records, **{"batch.size": FETCH_BYTES})
    before = next_batch(table)
    sets = [*sets, f"layout.gather={str(bool(number % 2)).lower()}"]
    names = list(points)
    if number < len(names):
        what = names[number]
        pattern = points[what].format(n=before + 1)

        def moment() -> Any:
            return list(table.glob(pattern))
    else:
        # A moment between the first batch's beginning and what it took to do all batches.
        wait = random.uniform(0, 5)
        what = f"{wait:.2f} s after the first batch began"
        moment = after(wait, lambda: list(table.glob(f"_staging/{before}-*")))
    broker = number % 3 == 2
    thread = killer_of(cluster, table, f"_staging/{before}-*/attempts/*") if broker else None
    try:
        killed = kill_when(sets, moment)
    finally:
        if thread is not None:
            thread.join(130)
    wrong = seen_now(table, produced)
    if thread is not None and not cluster.running(1):
        cluster.start_broker(1)
    facts: dict[str, object] = {
        "round": number + 1,
        "at": what,
        "driver_killed": killed,
        "leader_killed": broker,
        "batches": f"{before} -> {next_batch(table)}",
    }
    if number < len(names) and not killed:
        wrong.append(f"the job was done before the point {what!r} was seen")
    return {**facts, "wrong": len(wrong)}, wrong


def compaction(
    number: int, produced: Produced, table: Path, sets: list[str]
) -> tuple[dict[str, object], list[str]]:
    """Kill a compaction at a moment; what it read and wrote must be there once."""
    before = next_batch(table)
    wait = random.uniform(0, 0.4)
    staged = after(wait, lambda: list(table.glob(f"_staging/{before}-*")))
    killed = kill_when(sets, staged, "--compact")
    wrong = seen_now(table, produced)
    facts: dict[str, object] = {
        "after round": number + 1,
        "at": f"{wait:.2f} s after the compaction began",
        "killed": killed,
        "exchanged": next_batch(table) > before,
        "wrong": len(wrong),
    }
    return facts, wrong


def after(wait_s: float, began: Callable[[], Any]) -> Callable[[], bool]:
    since: list[float] = []

    def moment() -> bool:
        if not since and began():
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] >= wait_s

    return moment


def final(sets: list[str], table: Path, produced: Produced) -> list[str]:
    """Land the rest without kills, and compact; return what is wrong in any reader."""
    done = run_job(sets, "--verify")
    print(done.stdout.strip(), flush=True)
    if done.returncode == 0:
        done = run_job(sets, "--compact")
        print(done.stdout.strip(), flush=True)
    wrong = [] if done.returncode == 0 else [f"exit code {done.returncode}: {done.stderr}"]
    rows, dead = by_library(table / "data"), by_library(table / "dead")
    wrong += [f"pyarrow: {w}" for w in differences(rows, produced, dead)]
    counts = {"acknowledged": len(produced.acked), "pyarrow": len(rows) + len(dead)}
    rows, dead = by_duckdb(table / "data"), by_duckdb(table / "dead")
    wrong += [f"DuckDB: {w}" for w in differences(rows, produced, dead)]
    counts["duckdb"] = len(rows) + len(dead)
    if versions(table):
        rows, dead = by_delta_rs(table / "delta/data"), by_delta_rs(table / "delta/dead")
        wrong += [f"delta-rs: {w}" for w in differences(rows, produced, dead)]
        wrong += delta_now(table, produced)
        counts["delta-rs"] = len(rows) + len(dead)
    counts["spark"] = by_spark_alone(table)
    if len(set(counts.values())) > 1:
        wrong.append(f"readers disagree: {counts}")
    print(json.dumps(counts))
    return wrong


def by_spark_alone(table: Path) -> int:
    """Count with a Spark that knows nothing of the job."""
    code = (
        "from ottla.pipelines.session import start_session; s = start_session('count');"
        f"print(sum(s.read.parquet('{table}/' + k).select('kafka_partition', 'kafka_offset')"
        ".distinct().count() for k in ('data', 'dead')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=True
    )
    return int(done.stdout.split()[-1])


def unclean(cluster: OttlaCluster, path: Path) -> list[str]:
    """Let an unclean election cut what has landed, and the log grow past it: it must be told."""
    topic = "unclean"
    create_topic(cluster, topic, 1, 2, "unclean.leader.election.enable=true")
    produced = Produced(cluster.bootstrap, topic).send(numbered(0, 10))
    sets = settings_of(cluster.bootstrap, path, [topic])
    answer = ask(cluster.address(0), MetadataRequest(topics=[named(topic)]), 9)
    found = answer.topics[0].partitions[0]
    leader = found.leader_id
    (follower,) = set(found.replica_nodes) - {leader}
    cluster.kill(follower)
    produced.send(numbered(10, 20))
    wrong = [] if (done := run_job(sets)).returncode == 0 else [f"first run: {done.stderr}"]
    cluster.kill(leader)
    cluster.start_broker(follower)
    alive = ",".join(cluster.address(b) for b in cluster.ids if b != leader)
    Produced(alive, topic).send(numbered(100, 50))
    done = run_job(settings_of(alive, path, [topic]))
    told = f"{topic}-0 was cut to 10 offsets in the cluster, offsets up to 30 have landed"
    if done.returncode != 1 or told not in done.stderr:
        wrong.append(f"an unclean election was not told: {done.returncode} {done.stderr}")
    cluster.start_broker(leader)
    print(json.dumps({"unclean": done.stderr.strip().splitlines()[-1:], "wrong": len(wrong)}))
    return wrong


def named(topic: str) -> Any:
    return MetadataRequest.MetadataRequestTopic(name=topic)


def run_job(sets: list[str], *flags: str) -> subprocess.CompletedProcess[str]:
    arguments = [x for s in sets for x in ("--set", s)]
    command = [sys.executable, "-m", "ottla", "pipeline", "lake", *flags, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)


def create_topic(
    cluster: OttlaCluster, topic: str, partitions: int, replicas: int, *settings: str
) -> None:
    command = [sys.executable, "-m", "ottla", "topics", "create", topic]
    numbers = ["--partitions", str(partitions), "--replication-factor", str(replicas)]
    more = [x for s in settings for x in ("--config", s)]
    where = ["--bootstrap-server", cluster.bootstrap]
    subprocess.run([*command, *numbers, *more, *where], check=True, timeout=60)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=at_least_one, default=12)
    parser.add_argument("--records", type=at_least_one, default=4_000, help="for each round")
    parser.add_argument("--format", choices=("parquet", "delta"), default="parquet")
    add_zookeeper_option(parser)
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        with OttlaCluster(Path(folder) / "cluster", zookeeper_server=args.zookeeper) as cluster:
            create_topic(cluster, TOPIC, PARTITIONS, 3)
            produced = Produced(cluster.bootstrap, TOPIC)
            path = Path(folder) / "lake"
            points = {**(DELTA_POINTS if args.format == "delta" else {}), **POINTS}
            more = {"lake__batch_records": BATCH, "lake__format": args.format}
            sets = settings_of(cluster.bootstrap, path, [TOPIC], **more)
            sets.append(f"cluster.options={{'max.partition.fetch.bytes' = '{FETCH_BYTES}'}}")
            for number in range(args.rounds):
                table = path / TOPIC
                steps = [one_round(number, cluster, produced, table, sets, args.records, points)]
                if number % 3 == 1:
                    steps.append(compaction(number, produced, path / TOPIC, sets))
                for facts, wrong in steps:
                    print(json.dumps(facts), flush=True)
                    for line in wrong[:10]:
                        print("  " + line, flush=True)
                    bad += bool(wrong)
            for line in (wrong := [] if not args.rounds else final(sets, path / TOPIC, produced)):
                print("  " + line)
            bad += bool(wrong)
            for line in (wrong := unclean(cluster, path)):
                print("  " + line)
            bad += bool(wrong)
    print(f"{args.rounds} rounds, {len(produced.acked)} acknowledged, {bad} with something wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
