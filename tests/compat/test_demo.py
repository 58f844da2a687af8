"""The demo holds, and ends cleanly whichever way it ends."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.java, pytest.mark.processes]


def processes_naming(path):
    """Return {pid: process group} of all processes whose command line names a folder."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        pid = int(entry.parent.name)
        try:
            if str(path).encode() in entry.read_bytes() and pid != os.getpid():
                found[pid] = os.getpgid(pid)
        except OSError:
            continue
    return found


def processes_in(groups):
    """Return the pids in some process groups: what Spark starts names no folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not zombie and os.getpgid(int(entry.name)) in groups:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("moment", "number", "extra"),
    [
        ("starting ZooKeeper and three", signal.SIGINT, ["--no-spark"]),
        ("kill -9", signal.SIGTERM, ["--no-spark"]),
        ("is back", signal.SIGINT, ["--no-spark"]),
        pytest.param("Spark", signal.SIGINT, [], marks=pytest.mark.spark),
    ],
)
def test_interrupted_demo_leaves_no_process(tmp_path, moment, number, extra):
    folder = tmp_path / "demo"
    demo = subprocess.Popen(
        [sys.executable, "-m", "ottla", "demo", "--fast", "--dir", str(folder), *extra],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert demo.stdout is not None
    told = ""
    for line in demo.stdout:
        told += line
        if moment in line:
            break
    assert moment in told, told
    time.sleep(5 if moment == "Spark" else 0.3)
    groups = set(processes_naming(folder).values())
    assert groups, "it had started something"
    demo.send_signal(number)
    # A second one while it cleans up changes nothing.
    time.sleep(0.2)
    demo.send_signal(number)
    told += demo.stdout.read()
    assert demo.wait(60) == 130, told
    assert "Traceback" not in told, told
    assert not processes_naming(folder)
    assert not processes_in(groups)


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_fast_demo_holds(tmp_path):
    folder = tmp_path / "demo"
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "demo", "--fast", "--dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All of it held" in done.stdout
    # Sessions last 6 s (local/cluster.py): none of them ended before others led.
    led = re.findall(r"every partition is led again after (\d+\.\d+) s", done.stdout)
    assert len(led) == 2, done.stdout
    assert max(map(float, led)) < 3.0, "it waited for a session"
    assert not processes_naming(folder)
    acks = (folder / "acks.csv").read_text().splitlines()
    assert acks[0] == "n,partition,offset,ms"
    assert len({line.split(",")[0] for line in acks[1:]}) == 30_000


def test_a_folder_with_a_cluster_is_not_taken(tmp_path):
    (tmp_path / "cluster.json").write_text(
        '{"zookeeper": {"address": "127.0.0.1:2181"}, "brokers": []}'
    )
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "demo", "--fast", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "holds a cluster already" in done.stderr
