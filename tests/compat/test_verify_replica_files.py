"""`ottla verify-replicas --files`: real brokers' files, whole, and with faults planted in them."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.admin.replica_files import finding as kinds
from ottla.admin.replica_files.comparing import compare
from ottla.admin.replica_files.folders import Place, Wanted
from ottla.log import checkpoints
from support import planted
from support.cluster import OttlaCluster
from support.seen import Znodes
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(300)]
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


def command(*arguments, code, output="json"):
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "verify-replicas", *arguments, "--output", output],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def told(done):
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
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
        brokers = ",".join(f"{b}={cluster.data(b)}" for b in BROKERS)
        where = ("--bootstrap-server", cluster.bootstrap)
        live = told(command(TOPIC, "--files", brokers, *where, code=0))
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


def test_healthy_replicas_agree_running_and_stopped(written):
    cluster, live = written
    assert live["cluster_asked"]
    assert live["findings"] == []
    assert (live["partitions"], live["replicas"]) == (PARTITIONS, 3 * PARTITIONS)
    report = compare(places(cluster))
    assert report.findings == []
    assert report.held
    assert report.records >= 3 * COUNT * len(CODECS)
    epochs = [
        checkpoints.decode_epochs((folder / checkpoints.LEADER_EPOCHS).read_bytes())
        for folder in cluster.data(0).glob(f"{TOPIC}-*")
    ]
    assert any(len(found) > 1 for found in epochs), "leaders changed"


def test_planted_faults_are_found_where_they_are(copy):
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
    report = compare(copied(copy), Wanted((TOPIC,)))
    assert not report.held
    found = {(f.partition, f.broker, f.kind, f.offset) for f in report.wrong}
    for partition, (broker, kind, offset) in planted_at.items():
        assert (partition, broker, kind, offset) in found, sorted(found)
    assert {(p, b) for p, b, _, _ in found} == {(p, b) for p, (b, _, _) in planted_at.items()}
    origins = [f.detail for f in report.wrong if f.partition == 8 and f.kind == kinds.FOREIGN]
    assert any(f"of {TOPIC}-9 has the same batches" in detail for detail in origins)


def test_the_command_tells_what_is_wrong(copy):
    offset = planted.flip(files(copy, 1, 4)[0], 0)
    brokers = ",".join(f"{b}={copy / str(b)}" for b in BROKERS)
    found = told(command(TOPIC, "--files", brokers, code=1))
    assert found["held"] is False
    assert {(f["kind"], f["broker"], f["partition"], f["offset"]) for f in found["findings"]} == {
        (kinds.CHECKSUM, 1, 4, offset),
        (kinds.DIVERGENT, 1, 4, offset),
    }
    assert found["replicas"] == 3 * PARTITIONS
    text = command(TOPIC, "--files", brokers, output="tsv", code=1)
    assert len([line for line in text.stdout.splitlines() if "\twrong\t" in line]) == 2
    assert "2 findings wrong" in text.stderr


def test_bad_input_is_one_line(tmp_path):
    for arguments, says in (
        (("--files", f"0={tmp_path}/nothing"), "nothing does not exist"),
        (("--files", str(tmp_path)), f"no log of any topic in {tmp_path}"),
    ):
        line = command(*arguments, code=1).stderr
        assert says in line
        assert len(line.splitlines()) == 1
    assert "nothing else" in command("--files", str(tmp_path), "--follow", code=2).stderr
