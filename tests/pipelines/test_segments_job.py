"""Segment files through Spark: what a real cluster wrote, whole, and with faults planted in it."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.log import checkpoints
from ottla.pipelines.config import Cluster
from ottla.pipelines.job import in_one_line
from ottla.pipelines.replica_files import finding as kinds
from ottla.pipelines.replica_files.job import compare
from ottla.pipelines.segments.folders import Place, Wanted
from support import planted
from support.cluster import OttlaCluster
from support.seen import Znodes
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(300)]
TOPIC = "things"
PARTITIONS = 10
BROKERS = (0, 1, 2)
COUNT = 1200
BEGIN = int(time.time()) * 1000 - 60_000
"""Timestamps begin here: retention would delete older records."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def value(n):
    return None if n % 50 == 0 else b"value %06d " % n + b"x" * (n % 300)


def produce(bootstrap, first, count, codec):
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.num.messages": 10,
         "compression.type": codec, "enable.idempotence": True, "log_level": 0}
    )  # fmt: skip
    for n in range(first, first + count):
        headers = [("n", b"%d" % n)] if n % 3 == 0 else None
        producer.produce(
            TOPIC, value(n), b"key %d" % n, n % PARTITIONS, timestamp=BEGIN + n,
            headers=headers,
        )  # fmt: skip
    assert producer.flush(60) == 0


def topics(bootstrap, *arguments):
    subprocess.run(
        [sys.executable, "-m", "ottla", "topics", *arguments, "--bootstrap-server", bootstrap],
        check=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory, spark):
    """What three brokers wrote, in all codecs, under two leaders of each partition; all stopped.

    Compared once while they run, too.
    """
    with OttlaCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        topics(
            cluster.bootstrap, "create", TOPIC, "--partitions", str(PARTITIONS),
            "--replication-factor", "3", "--config", "segment.bytes=5000",
        )  # fmt: skip
        with Znodes(cluster.zookeeper) as znodes:
            for number, codec in enumerate(CODECS):
                produce(cluster.bootstrap, number * COUNT, COUNT, codec)
                if number == 2:  # others lead from now on where this broker led
                    cluster.terminate(0)
                    cluster.start_broker(0)
                    until(lambda: znodes.full(TOPIC), 60, "all replicas are in sync")
        live = compare(
            spark, places(cluster), Wanted((TOPIC,)), Cluster(bootstrap_servers=cluster.bootstrap)
        )
        cluster.stop()
        yield cluster, live


def places(cluster):
    return [Place(b, str(cluster.data(b))) for b in BROKERS]


@pytest.fixture
def copy(written, tmp_path):
    """A copy of the topic's logs on all brokers, to plant faults in; and its places."""
    cluster, _ = written
    for broker in BROKERS:
        shutil.copytree(cluster.data(broker), tmp_path / str(broker))
    return tmp_path


def copied(root):
    return [Place(b, str(root / str(b))) for b in BROKERS]


def files(root, broker, partition):
    return planted.segments(root / str(broker) / f"{TOPIC}-{partition}")


def rows_by_offset(frame, *columns):
    return {(r["partition"], r["offset"]): tuple(r[c] for c in columns) for r in frame.collect()}


def test_records_are_those_that_were_produced(spark, written):
    """Found by its name alone, without a register call."""
    cluster, _ = written
    frame = (
        spark.read.format("ottla-segments")
        .option("topics", TOPIC)
        .option("includeHeaders", "true")
        .load(f"{cluster.data(0)},1={cluster.data(1)}")
    )
    for broker in (0, 1):
        rows = frame.filter(frame.broker == broker).orderBy("partition", "offset").collect()
        assert len(rows) == COUNT * len(CODECS)
        for partition in range(PARTITIONS):
            mine = [r for r in rows if r["partition"] == partition]
            assert [r["offset"] for r in mine] == list(range(len(mine)))
            for number, row in enumerate(mine):
                n = number * PARTITIONS + partition
                assert (row["key"], row["value"]) == (b"key %d" % n, value(n)), row
                assert round(row["timestamp"].timestamp() * 1000) == BEGIN + n
                expected = [("n", b"%d" % n)] if n % 3 == 0 else None
                headers = row["headers"] and [tuple(h) for h in row["headers"]]
                assert headers == expected
                assert (row["topic"], row["timestampType"], row["damage"]) == (TOPIC, 0, None)


def test_batches_are_those_of_the_files(spark, written):
    cluster, _ = written
    frame = (
        spark.read.format("ottla-segments")
        .option("mode", "batches")
        .option("topics", TOPIC)
        .option("partitions", "0, 3")
        .load(str(cluster.data(2)))
    )
    rows = {(r["file"], r["position"]): r for r in frame.collect()}
    expected = {}
    for partition in (0, 3):
        for path in planted.segments(cluster.data(2) / f"{TOPIC}-{partition}"):
            for at, header, _ in planted.batches(path):
                expected[str(path), at] = header
    assert rows.keys() == expected.keys()
    assert {r["codec"] for r in rows.values()} == set(CODECS)
    for key, header in expected.items():
        row = rows[key]
        assert row["base_offset"] == header.base_offset
        assert row["last_offset"] == header.last_offset
        assert row["leader_epoch"] == header.partition_leader_epoch
        assert (row["producer_id"], row["base_sequence"]) == (
            header.producer_id,
            header.base_sequence,
        )
        assert row["record_count"] == header.count
        assert row["size"] == header.size
        assert row["max_timestamp"] == header.max_timestamp
        assert row["crc"] == row["crc_computed"] == header.crc
        assert (row["broker"], row["damage"], row["control"]) == (2, None, False)
        assert row["segment"] == int(Path(key[0]).stem)


def test_damage_is_an_error_a_row_or_left_out(spark, copy):
    path = files(copy, 0, 1)[0]
    position = planted.batches(path)[1][0]
    offset = planted.flip(path, 1)
    lost = planted.batches(path)[1][1].count
    end = planted.cut_tail(files(copy, 0, 1)[-1], -1, 30)
    for mode in ("records", "batches"):
        reader = (
            spark.read.format("ottla-segments")
            .option("mode", mode)
            .option("topics", TOPIC)
            .option("partitions", "1")
        )
        folder = str(copy / "0")
        with pytest.raises(Exception, match=f"{path.name}, position {position}: ") as caught:
            reader.load(folder).collect()
        line = in_one_line(caught.value)
        assert line.startswith(f"{path}, position {position}: checksum")
        assert line.endswith("damaged=skip leaves it out")
        told = reader.option("damaged", "report").load(folder)
        bad = told.filter("damage is not null").orderBy("position").collect()
        assert len(bad) == 2
        first = next(r for r in bad if r["file"] == str(path))
        assert first["position"] == position
        assert first["base_offset" if mode == "batches" else "offset"] == offset
        whole = reader.option("damaged", "skip").load(folder)
        assert whole.count() == told.count() - 2
        if mode == "records":
            assert whole.count() == end - lost


def test_healthy_replicas_agree_running_and_stopped(spark, written):
    cluster, live = written
    assert live.asked
    assert live.findings == []
    assert (live.partitions, live.replicas) == (PARTITIONS, 3 * PARTITIONS)
    report = compare(spark, places(cluster))
    assert report.findings == []
    assert report.held
    assert report.records >= 3 * COUNT * len(CODECS)
    epochs = [
        checkpoints.decode_epochs((folder / checkpoints.LEADER_EPOCHS).read_bytes())
        for folder in cluster.data(0).glob(f"{TOPIC}-*")
    ]
    assert any(len(found) > 1 for found in epochs), "leaders changed"


def test_planted_faults_are_found_where_they_are(spark, copy):
    planted_at = {
        1: (1, kinds.CHECKSUM, planted.flip(files(copy, 1, 1)[1], 1)),
        2: (2, kinds.MISSING_TAIL, planted.cut_tail(files(copy, 2, 2)[-1], -1, 20)),
        4: (1, kinds.DUPLICATE, planted.double(files(copy, 1, 4)[0], 1)),
        5: (2, kinds.LOST, planted.lose(files(copy, 2, 5)[0], 1)[0]),
        6: (0, kinds.EPOCH, planted.other_epoch(files(copy, 0, 6)[0], 1, 9)),
    }
    swapped = files(copy, 0, 3)[1:3]
    planted.swap(*swapped)
    planted_at[3] = (0, kinds.FOREIGN, int(swapped[1].stem))
    # Two files of other partitions with the same name: each is sound by itself.
    first, second = files(copy, 2, 8)[0], files(copy, 2, 9)[0]
    assert first.name == second.name
    planted.swap(first, second)
    planted_at[8] = planted_at[9] = (2, kinds.FOREIGN, 0)
    path = files(copy, 1, 7)[-1]
    plain = [i for i, (_, h, _) in enumerate(planted.batches(path)) if not h.has_delete_horizon]
    planted_at[7] = (1, kinds.DIVERGENT, planted.other_value(path, plain[0]))
    report = compare(spark, copied(copy), Wanted((TOPIC,)))
    assert not report.held
    found = {(f.partition, f.broker, f.kind, f.offset) for f in report.wrong}
    for partition, (broker, kind, offset) in planted_at.items():
        assert (partition, broker, kind, offset) in found, sorted(found)
    assert {(p, b) for p, b, _, _ in found} == {(p, b) for p, (b, _, _) in planted_at.items()}
    origins = [f.detail for f in report.wrong if f.partition == 8 and f.kind == kinds.FOREIGN]
    assert any(f"of {TOPIC}-9 has the same batches" in detail for detail in origins)


def job(*arguments, code):
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", "replicas", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=os.environ,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.alone
def test_executors_of_their_own_find_the_same(copy):
    offset = planted.flip(files(copy, 1, 4)[0], 0)
    brokers = ",".join(f"{b}={copy / str(b)}" for b in BROKERS)
    done = job(
        "--master", "local-cluster[2,1,1024]", "--brokers", brokers, "--topic", TOPIC,
        "--output", "json", code=1,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["held"] is False
    assert {(f["kind"], f["broker"], f["partition"], f["offset"]) for f in told["findings"]} == {
        (kinds.CHECKSUM, 1, 4, offset),
        (kinds.DIVERGENT, 1, 4, offset),
    }
    assert told["replicas"] == 3 * PARTITIONS


def test_bad_input_is_one_line(tmp_path):
    for arguments, says in (
        (("--brokers", f"0={tmp_path}/nothing"), "nothing does not exist"),
        (("--set", "replicas.folders=x"), "there is no setting `folders`"),
    ):
        line = job(*arguments, code=1).stderr
        assert line.startswith("pipeline replicas: ")
        assert says in line
        assert len(line.splitlines()) == 1
