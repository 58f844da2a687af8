"""The replay proof: each record once in the target, whoever is killed, and whenever.

Brokers are real processes; the target is another topic of the same cluster. Each round produces
records, starts the job and kills its driver with kill -9 at a moment (each of POINTS in turn, then
random ones), in every third round also a broker; Spark's Python workers outlive the driver for a
while, as executors do. After each round nothing may stand twice for a consumer with read_committed.
At the end a run without kills, `--verify`, and every record of both topics compared by librdkafka.
    python tests/proofs/replay_proof.py --rounds 8 --minutes 20
Exit status 0 only if every round held.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.model.ids import TopicPartition
from ottla.model.protocol import LATEST
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import parse_options
from support.clients import named
from support.cluster import OttlaCluster, add_zookeeper_option, at_least_one
from support.replayed import command, differences, kill_when, origin, read_all, settings_of

SOURCE, TARGET = "proof", "proof-copy"
PARTITIONS = 3
POINTS = ("open transaction", "some committed", "map written")
SETTINGS = {"offsets_topic_num_partitions": "3", "transaction_state_log_num_partitions": "3"}


def create(cluster, topic):
    subprocess.run(
        [sys.executable, "-m", "ottla", "topics", "create", topic, "--partitions", str(PARTITIONS),
         "--replication-factor", "3", "--bootstrap-server", cluster.bootstrap],
        check=True, timeout=60,
    )  # fmt: skip


def send(cluster, first, count):
    from confluent_kafka import Producer

    producer = Producer(named(cluster.bootstrap, {"acks": "all", "enable_idempotence": True}))
    for n in range(first, first + count):
        value = None if n % 9 == 0 else b"%d:" % n + b"v" * (n % 200)
        producer.produce(SOURCE, value, b"k%d" % (n % 100), headers=[("n", b"%d" % n)])
        producer.poll(0)
    assert producer.flush(90) == 0


def ends(asking, *, committed):
    asked = {TopicPartition(TARGET, p): LATEST for p in range(PARTITIONS)}
    return sum(one.offset for one in asking.offsets(asked, committed=committed).values())


def moment_of(number, asking, folder):
    """Return what a round's moment is called, and what tells it."""
    before = ends(asking, committed=True)
    files = len(list(folder.glob("*.parquet")))
    if number < len(POINTS):
        moments = (
            lambda: ends(asking, committed=False) > ends(asking, committed=True),
            lambda: ends(asking, committed=True) > before + 300,
            lambda: len(list(folder.glob("*.parquet"))) > files,
        )
        return POINTS[number], moments[number]
    wait_s, since = random.uniform(0, 1.5), []

    def late():
        if not since and ends(asking, committed=False) > before:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] > wait_s

    return f"{wait_s:.2f} s after the first record", late


def one_round(number, cluster, sets, folder):
    """Kill the job once; return what happened, and what is wrong after that."""
    options = {"bootstrap": cluster.bootstrap, "subscribePattern": ".*"}
    with Cluster(parse_options(options)) as asking:
        what, moment = moment_of(number, asking, folder)
        victim = number % 3 if number % 3 == 2 else None

        def struck():
            if not moment():
                return False
            if victim is not None and cluster.running(victim):
                cluster.kill(victim)
            return True

        killed = kill_when(sets, struck)
    if victim is not None and not cluster.running(victim):
        cluster.start_broker(victim)
    times = Counter(origin(r) for r in read_all(cluster.bootstrap, TARGET))
    wrong = [f"{place} stands {n} times" for place, n in times.items() if n > 1]
    facts = {"round": number + 1, "at": what, "driver_killed": killed, "broker_killed": victim}
    return {**facts, "copied": len(times), "wrong": len(wrong)}, wrong


def final(cluster, sets):
    """Run without kills; return what is wrong in the end, and how many records there are."""
    done = subprocess.run(
        command(sets, "--verify"), capture_output=True, text=True, timeout=600, check=False
    )
    wrong = [] if done.returncode == 0 else [f"exit code {done.returncode}: {done.stderr[-2000:]}"]
    print(done.stdout.strip(), flush=True)
    source, target = read_all(cluster.bootstrap, SOURCE), read_all(cluster.bootstrap, TARGET)
    return wrong + differences(source, target), len(source)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=at_least_one, default=8)
    parser.add_argument("--records", type=at_least_one, default=3_000, help="for each round")
    parser.add_argument("--minutes", type=float, default=20, help="no round begins after that")
    add_zookeeper_option(parser)
    args = parser.parse_args()
    until_s = time.monotonic() + 60 * args.minutes
    bad = done = sent = 0
    with tempfile.TemporaryDirectory() as name:
        with OttlaCluster(
            Path(name) / "cluster", zookeeper_server=args.zookeeper, **SETTINGS
        ) as cluster:
            folder = Path(name) / "map"
            create(cluster, SOURCE)
            create(cluster, TARGET)
            sets = settings_of(
                cluster.bootstrap, cluster.bootstrap, SOURCE, TARGET,
                batch_records=1_000, offset_map=str(folder),
            )  # fmt: skip
            while done < args.rounds and time.monotonic() < until_s:
                send(cluster, sent, args.records)
                sent += args.records
                facts, wrong = one_round(done, cluster, sets, folder)
                print(json.dumps(facts), flush=True)
                for line in wrong[:10]:
                    print("  " + line, flush=True)
                bad += bool(wrong)
                done += 1
            wrong, count = final(cluster, sets)
            wrong += [] if count == sent else [f"{count} records in the source, {sent} sent"]
            for line in wrong[:20]:
                print("  " + line)
            bad += bool(wrong)
    print(f"{done} rounds, {sent} records, {bad} with something wrong")
    return 1 if bad or not done else 0


if __name__ == "__main__":
    sys.exit(main())
