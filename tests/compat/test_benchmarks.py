"""Benchmarks that reach into a broker, on little: they start, end and have a figure for all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.java, pytest.mark.processes]


@pytest.mark.timeout(150)
def test_controller_failover_with_few_partitions():
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "failover.py")),
            *("--sizes", "300", "--kafka", "", "--no-write"),
        ],
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (figures,) = [json.loads(line) for line in done.stdout.splitlines() if line[2:3] == "{"]
    assert figures["partitions"] == 300
    assert 0 < figures["led_s"] <= figures["told_s"] < 60
    # Each of the other brokers is told of its partitions.
    assert figures["requests"]["LeaderAndIsr"] >= 49


@pytest.mark.timeout(90)
def test_a_kill_of_a_leader_on_a_small_cluster():
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "crash.py")),
            *("--only", "ottla", "--part", "kills", "--kills", "1", "--kinds", "leader"),
            *("--topics", "2", "--partitions", "12", "--no-write"),
        ],
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (result,) = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
    assert result["counts"] == {"errors": 0, "victim": result["counts"]["victim"], "partitions": 24}
    seconds = result["seconds"]
    assert 0 < seconds["led"] < 30
    # No record is acknowledged before its partition is led; the last of the four has the gap.
    assert 0 < seconds["ack"] <= seconds["last_ack"] <= seconds["gap"] + 0.1
    assert "Ottla" in done.stdout
