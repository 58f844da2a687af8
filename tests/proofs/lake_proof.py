"""The lake proof: drivers and leaders killed amid batches, and every record once for every reader.

Each round produces records (a tenth of them garbage), starts the job as a process, kills it with
kill -9 at a point of its second batch (each of POINTS in turn, then at random moments), in every
third round also a broker, and reads the tables as they are then: nothing may stand twice, or in
part. After every third round a compaction is killed, too. At the end a run without kills,
`--verify`, a compaction, and all readers: the table's library, DuckDB and Spark, against what the
producer was told. With `--format delta` a reader of the protocol of our own must agree with
delta-rs after each kill. Last an unclean election cuts off what has landed, and the log grows past
it: the job must refuse.
    python tests/proofs/lake_proof.py --rounds 12
    python tests/proofs/lake_proof.py --rounds 13 --format iceberg
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.wire.messages.cluster import MetadataRequest
from support.cluster import OttlaCluster, add_zookeeper_option, at_least_one
from support.delta_readers import by_protocol
from support.landed import (
    Produced,
    by_duckdb,
    by_library,
    differences,
    files_of,
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
    "rows being written": lambda seen: seen.commits == 1 and seen.more_files,
    "dead letters committed": lambda seen: seen.dead_commits == 2,
    "rows committed": lambda seen: seen.commits == 2,
    "a batch more begun": lambda seen: seen.commits == 2 and seen.more_files,
}
"""When to kill: by what is there since the round began."""


def batch_of_records(first: int, count: int) -> list[tuple[bytes, bytes | None]]:
    good = numbered(first, count)
    bad = [b"no json", b'{"n": "x"}', b'{"n": 1, "note": "\xff"}', b"", b"[1]"]
    return [
        (key, bad[n // 10 % len(bad)] if n % 10 == 3 else value)
        for n, (key, value) in enumerate(good)
    ]


def commits(folder: Path) -> int:
    """Return how many commits a table has had; 0 if it is none."""
    delta = [int(p.stem) + 1 for p in folder.glob("_delta_log/*.json")]
    iceberg = [int(p.name[:5]) for p in folder.glob("metadata/*.metadata.json")]
    return max([*delta, *iceberg], default=0)


def parquet_files(folder: Path) -> int:
    return len([p for p in folder.rglob("*.parquet") if "_delta_log" not in p.parts])


class Seen:
    """What has come to the tables since a round began."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._before = [commits(table / kind) for kind in ("data", "dead")]
        self._files: dict[int, int] = {0: parquet_files(table / "data")}

    @property
    def commits(self) -> int:
        return commits(self._table / "data") - self._before[0]

    @property
    def dead_commits(self) -> int:
        return commits(self._table / "dead") - self._before[1]

    @property
    def more_files(self) -> bool:
        """Whether there are files since the newest commit was seen first."""
        now = parquet_files(self._table / "data")
        return now > self._files.setdefault(self.commits, now)

    @property
    def began(self) -> bool:
        return self.commits > 0 or self.more_files


def seen_now(table: Path, produced: Produced) -> list[str]:
    """Read the tables as strangers do just now; return what is doubled, foreign or torn."""
    if not commits(table / "dead"):
        return []
    rows, dead = (places(by_library(table / kind)) for kind in ("data", "dead"))
    wrong = [f"{p} was never produced" for p in (rows | dead) if p not in produced.acked]
    wrong += [f"{p} is a row and a dead letter" for p in rows.keys() & dead.keys()]
    ends: dict[int, int] = {}
    for partition, offset in rows:
        ends[partition] = max(offset, ends.get(partition, 0))
    wrong += [
        f"{partition}, {offset} is missing below the partition's last row"
        for partition, offset in produced.acked
        if offset < ends.get(partition, 0) and (partition, offset) not in rows | dead
    ]
    if (table / "data" / "_delta_log").is_dir():
        for kind, found in (("data", rows), ("dead", dead)):
            if places(by_protocol(table / kind)).keys() != found.keys():
                wrong.append(f"readers of the Delta table {kind} differ")
    return wrong


def killer_of(cluster: OttlaCluster, seen: Seen) -> threading.Thread:
    """Kill a broker when the first batch of this run is being written."""

    def kill() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if seen.began:
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
) -> tuple[dict[str, object], list[str]]:
    produced.send(batch_of_records(number * size, size), **{"batch.size": FETCH_BYTES})
    seen, before = Seen(table), commits(table / "data")
    names = list(POINTS)
    if number < len(names):
        what = names[number]

        def moment() -> Any:
            return POINTS[what](seen)
    else:
        # A moment between the first batch's beginning and what it took to do all batches.
        wait = random.uniform(0, 5)
        what = f"{wait:.2f} s after the first batch began"
        moment = after(wait, lambda: seen.began)
    broker = number % 3 == 2
    thread = killer_of(cluster, Seen(table)) if broker else None
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
        "commits": f"{before} -> {commits(table / 'data')}",
    }
    if number < len(names) and not killed:
        wrong.append(f"the job was done before the point {what!r} was seen")
    return {**facts, "wrong": len(wrong)}, wrong


def compaction(
    number: int, produced: Produced, table: Path, sets: list[str]
) -> tuple[dict[str, object], list[str]]:
    """Kill a compaction at a moment; what it read and wrote must be there once."""
    seen = Seen(table)
    wait = random.uniform(0, 0.4)
    killed = kill_when(sets, after(wait, lambda: seen.began), "--compact")
    wrong = seen_now(table, produced)
    facts: dict[str, object] = {
        "after round": number + 1,
        "at": f"{wait:.2f} s after the compaction began",
        "killed": killed,
        "commits": seen.commits,
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
    counts = {"acknowledged": len(produced.acked)}
    for name, read in (("library", by_library), ("DuckDB", by_duckdb)):
        rows, dead = read(table / "data"), read(table / "dead")
        wrong += [f"{name}: {w}" for w in differences(rows, produced, dead)]
        counts[name] = len(rows) + len(dead)
    wrong += seen_now(table, produced)
    counts["spark"] = by_spark_alone(table)
    if len(set(counts.values())) > 1:
        wrong.append(f"readers disagree: {counts}")
    print(json.dumps(counts))
    return wrong


def by_spark_alone(table: Path) -> int:
    """Count with a Spark that knows nothing of the job."""
    files = [files_of(table / kind) for kind in ("data", "dead")]
    code = (
        "from ottla.pipelines.session import start_session; s = start_session('count');"
        f"print(sum(s.read.parquet(*f).select('kafka_partition', 'kafka_offset')"
        f".distinct().count() for f in {files} if f))"
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
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    add_zookeeper_option(parser)
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        with OttlaCluster(Path(folder) / "cluster", zookeeper_server=args.zookeeper) as cluster:
            create_topic(cluster, TOPIC, PARTITIONS, 3)
            produced = Produced(cluster.bootstrap, TOPIC)
            path = Path(folder) / "lake"
            more = {"lake__batch_records": BATCH, "lake__format": args.format}
            sets = settings_of(cluster.bootstrap, path, [TOPIC], **more)
            sets.append(f"cluster.options={{'max.partition.fetch.bytes' = '{FETCH_BYTES}'}}")
            run_job(sets)  # makes the tables: what comes to them in a round is its own
            for number in range(args.rounds):
                table = path / TOPIC
                steps = [one_round(number, cluster, produced, table, sets, args.records)]
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
