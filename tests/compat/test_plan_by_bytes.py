"""`ottla reassign plan --by-bytes` on a running cluster: executed, its log dirs are even."""

import json
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from support.clients import named
from support.cluster import OttlaCluster

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(180)]


def ottla(*words):
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *words],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_a_plan_evens_out_what_lies_on_disk(tmp_path):
    with OttlaCluster(tmp_path / "cluster", brokers=3) as cluster:
        where = ("--bootstrap-server", cluster.bootstrap)
        # All of it on two brokers, in partitions of one to eight times the size of the smallest.
        layout = ",".join("0:1" if n % 2 else "1:0" for n in range(8))
        ottla("topics", "create", "sized", "--assignment", layout, *where)
        producer = Producer(named(cluster.bootstrap, {"linger_ms": 20}))
        for partition in range(8):
            for n in range(200 * (partition + 1)):
                producer.produce("sized", b"%d" % n + b"x" * 1000, partition=partition)
            producer.flush(30)

        plan = ottla("reassign", "plan", "--all", "--by-bytes", *where)
        assert "differ from their mean by 100% at most, then" in plan.stderr
        file = tmp_path / "plan.json"
        file.write_text(plan.stdout)
        ottla("reassign", "execute", "--file", str(file), "--wait", "60", *where)
        held = [
            sum(p.stat().st_size for p in cluster.data(b).glob("sized-?/*.log"))
            for b in cluster.ids
        ]
        mean = sum(held) / 3
        assert max(abs(size - mean) for size in held) < 0.1 * mean, held
        planned = {
            p["partition"]: p["replicas"]
            for p in json.loads(plan.stdout)["partitions"] if p["topic"] == "sized"
        }  # fmt: skip
        leaders = [replicas[0] for replicas in planned.values()]
        assert sorted(map(leaders.count, cluster.ids)) == [2, 3, 3]
        again = ottla("reassign", "plan", "--all", "--by-bytes", *where)
        assert "nothing to move" in again.stderr


def test_what_does_not_go_with_it_is_one_line():
    for words in (["--drain", "1"], ["--all", "--replication-factor", "2"]):
        done = subprocess.run(
            [sys.executable, "-m", "ottla", "reassign", "plan", "--by-bytes", *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "--by-bytes" in done.stderr
