"""Workers are forked from a process without other threads, or by Spark's own daemon."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from ottla.pipelines import worker_daemon
from ottla.pipelines.lake import command as lake

pytestmark = pytest.mark.timeout(120)
STARTS_A_THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True)"


@pytest.fixture
def daemon(tmp_path):
    """Start the daemon as Spark does, with these modules; return its process once it listens."""
    started = []

    def start(modules, worker=worker_daemon.WORKER):
        paths = [str(tmp_path), str(Path(worker_daemon.__file__).parents[2])]
        process = subprocess.Popen(
            [sys.executable, "-m", worker_daemon.__name__, worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                worker_daemon.MODULES: ",".join(modules),
                "PYTHONPATH": os.pathsep.join(paths),
            },
        )
        started.append(process)
        assert len(process.stdout.read(4)) == 4  # its port
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(10)
        process.stdin.close()
        process.stdout.close()


def module_of(process):
    return Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[2]


def test_what_the_lake_imports_starts_no_threads(daemon):
    process = daemon(lake.MODULES)
    assert module_of(process) == worker_daemon.__name__
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "libarrow" in mapped


def test_sparks_own_daemon_takes_over_where_an_import_starts_a_thread(daemon, tmp_path):
    (tmp_path / "starter.py").write_text(f"{STARTS_A_THREAD}.start()\n")
    assert module_of(daemon(["starter"])) == worker_daemon.PLAIN
    (tmp_path / "harmless.py").write_text(f"{STARTS_A_THREAD}\n")
    assert module_of(daemon(["harmless"])) == worker_daemon.__name__


def test_workers_that_plan_import_nothing(daemon):
    process = daemon(["no_such_module"], "pyspark.sql.worker.plan_data_source_read")
    assert module_of(process) == worker_daemon.__name__
