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
