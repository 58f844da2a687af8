"""The documents' example of the preferred replica election tool, on eight real brokers.

Document 1, section 11: topic1 with eight partitions, factor 3; brokers 1, 2 and 4 are stopped, 1
comes back, the tool runs; 2 and 4 come back, the tool runs again. Each state is what the document
prints, but for partitions 2 and 3 while brokers are stopped: the document has 6 and 7 lead them, of
which broker 3 was not stopped, and elects in the order of the ISR; Kafka 3.9 and we elect in the
order of assignment, 3 and 6.
"""

import json
import subprocess
import sys

import pytest

from support.cluster import OttlaCluster
from support.schemas import partition_name
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300), pytest.mark.alone]

REPLICAS = {p: [(p + 1) % 8, (p + 3) % 8, (p + 4) % 8] for p in range(8)}


def run(cluster, *arguments, code=0):
    at = cluster.address(6)
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *map(str, arguments), "-b", at],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


def state(cluster):
    """Leader and ISR of each partition."""
    out = run(cluster, "topics", "describe", "topic1", "--output", "json").stdout
    partitions = json.loads(out)[0]["partitions"]
    return {p["partition"]: (p["leader"], sorted(p["isr"])) for p in partitions}


def shows(cluster, leaders, missing):
    """Whether each partition is led as the document says, with all replicas in sync but these."""
    expected = {
        p: (leaders[p], sorted(set(replicas) - set(missing))) for p, replicas in REPLICAS.items()
    }
    return state(cluster) == expected


def test_the_documents_example(tmp_path):
    settings = {"auto_leader_rebalance_enable": "false"}
    with OttlaCluster(tmp_path, brokers=8, session_timeout_ms=10_000, **settings) as cluster:
        assignment = ",".join(":".join(map(str, r)) for r in REPLICAS.values())
        until(
            lambda: (
                len(json.loads(run(cluster, "status", "--output", "json").stdout)["brokers"]) == 8
            ),
            60,
            "eight brokers",
        )
        run(cluster, "topics", "create", "topic1", "--assignment", assignment)
        first = {p: r[0] for p, r in REPLICAS.items()}
        assert first == {0: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 0}
        until(lambda: shows(cluster, first, ()), 30, "evenly led")
        for broker in (1, 2, 4):
            cluster.terminate(broker)
        stopped = {0: 3, 1: 5, 2: 3, 3: 6, 4: 5, 5: 6, 6: 7, 7: 0}
        until(lambda: shows(cluster, stopped, (1, 2, 4)), 60, lambda: str(state(cluster)))
        cluster.start_broker(1)
        until(lambda: shows(cluster, stopped, (2, 4)), 60, lambda: str(state(cluster)))
        done = run(cluster, "elect", "preferred", "--all", "--output", "json", code=1)
        found = {partition_name(o): o["result"] for o in json.loads(done.stdout)}
        assert {k: v for k, v in found.items() if k.startswith("topic1")} == {
            "topic1-0": "elected", "topic1-1": "failed", "topic1-3": "failed",
        }  # fmt: skip
        after = stopped | {0: 1}
        until(lambda: shows(cluster, after, (2, 4)), 30, lambda: str(state(cluster)))
        for broker in (2, 4):
            cluster.start_broker(broker)
        until(lambda: shows(cluster, after, ()), 60, lambda: str(state(cluster)))
        (tmp_path / "partitions.json").write_text(
            json.dumps({"partitions": [{"topic": "topic1", "partition": p} for p in range(8)]})
        )
        done = run(cluster, "elect", "preferred", "--file", tmp_path / "partitions.json")
        assert (
            "2 leaders elected; of these topics each broker leads 1 to 1 partitions" in done.stderr
        )
        assert done.stdout.count("not needed") == 6
        assert shows(cluster, first, ())
