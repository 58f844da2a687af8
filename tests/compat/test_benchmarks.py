"""Benchmarks that reach into a broker, on little: they start, end and have a figure for all."""

import asyncio
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import crash_report  # benchmarks are no package
from crash_view import Producing

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.java, pytest.mark.processes]


@pytest.mark.timeout(240)
def test_controller_failover_with_few_partitions():
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "failover.py")),
            *("--sizes", "300", "--kafka", "", "--no-write"),
        ],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (figures,) = [json.loads(line) for line in done.stdout.splitlines() if line[2:3] == "{"]
    assert figures["partitions"] == 300
    assert 0 < figures["led_s"] <= figures["told_s"] < 60
    # Each of the other brokers is told of its partitions.
    assert figures["requests"]["LeaderAndIsr"] >= 49


@pytest.mark.timeout(240)
def test_a_kill_of_a_leader_on_a_small_cluster():
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "crash.py")),
            *("--only", "ottla", "--part", "kills", "--kills", "1", "--kinds", "leader"),
            *("--topics", "2", "--partitions", "12", "--no-write"),
        ],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (result,) = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
    assert result["counts"] == {"errors": 0, "victim": result["counts"]["victim"], "partitions": 24}
    seconds = result["seconds"]
    assert 0 < seconds["led"] < 30
    # How long the gap is beside them depends on when a busy machine lets the producer report.
    assert 0 < seconds["ack"] <= seconds["last_ack"]
    assert seconds["gap"] > 0
    assert "Ottla" in done.stdout


def test_the_gap_of_a_kill_is_the_longest_of_one_partition():
    """Of acknowledgements that are known: the gap, and the first ones after the kill."""
    producing = Producing("", "t", [0, 1])
    producing.acked = {
        0: [(0.9, 1.0), (1.9, 2.0), (2.0, 2.4), (2.1, 2.5)],
        1: [(0.0, 0.2), (1.9, 2.0), (2.05, 2.9), (2.3, 2.9)],
    }
    assert producing.longest_gap(1.5) == pytest.approx(0.9)
    assert producing.longest_gap(0.0) == pytest.approx(1.8)

    async def first_ones():
        producing._reading = asyncio.get_running_loop().create_future()
        return await producing.until_acked(2.04)

    assert asyncio.run(first_ones()) == {0: 2.5, 1: 2.9}


def test_the_report_of_kills():
    """Medians, worst, ratios and goals of figures that are known; the plot has a dot for each."""
    report = crash_report.Report()
    for system, some in {"kafka41": (6.0, 7.0, 9.0), "ottla": (0.3, 0.42, 1.6)}.items():
        for s in some:
            seconds = dict.fromkeys(("led", "out", "ack", "gap"), s)
            report.add({"system": system, "part": "kills", "kind": "leader", "load": 1.0,
                        "seconds": seconds, "counts": {"errors": 0}})  # fmt: skip
    rows = [line for line in crash_report.section(report, "kills").splitlines() if "led" in line]
    (row,) = [r for r in rows if r.startswith("| a leader")]
    assert "| 7.00, 9.00 s | 0.42, 1.60 s | 0.06 |" in row
    assert "p50 <= 0.5 s held, worst <= 1.5 s missed" in row
    plot = ET.fromstring(crash_report.plot(report))
    assert sum(e.tag.endswith("circle") for e in plot.iter()) == 6
    assert max(float(e.get("cx")) for e in plot.iter() if e.get("cx")) < crash_report.WIDTH
    terminal = crash_report.summary(report)
    assert [line.split()[:4] for line in terminal[1:]] == [
        ["leader", "Kafka", "4.1.0", "7.00"],
        ["leader", "Ottla", "0.42", terminal[2].split()[3]],
    ]
