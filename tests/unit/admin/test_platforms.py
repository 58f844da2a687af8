"""Systems that lack something: Windows has no fcntl, a `ps` may fail where there is no /proc."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ottla
from ottla.local import cluster, processes
from ottla.local.cluster_dir import ClusterDir
from ottla.model.errors import StartupError

WITHOUT = "import sys; sys.modules['fcntl'] = None; "
SENTENCE = "Ottla needs Linux, which this system is not; on Windows use WSL (wsl --install)"


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "words", [["up"], ["topics", "list"], ["--help"], ["broker", "run"], ["pipeline"], []]
)
def test_windows_gets_one_sentence(words):
    main = f"sys.argv = {['ottla', *words]}; from ottla.__main__ import main; sys.exit(main())"
    done = python(WITHOUT + main)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"ottla: {SENTENCE}\n")


@pytest.mark.parametrize(
    "imported",
    [
        "from ottla import SyncCluster",
        "import ottla.net.runtime",
        "import ottla.local.cluster",
    ],
)
def test_an_import_there_ends_with_the_sentence(imported):
    done = python(WITHOUT + imported)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {SENTENCE}"


def test_one_module_imports_fcntl():
    source = Path(ottla.__file__).parent
    found = [
        str(f.relative_to(source))
        for f in source.rglob("*.py")
        if re.search(r"^\s*(import fcntl|from fcntl )", f.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert found == ["model/posix.py"]


def test_ps_that_fails_is_named(monkeypatch):
    real = subprocess.run

    def failing(command, **options):
        assert command[0] == "/bin/ps"
        return real(["sh", "-c", "echo no entitlement >&2; exit 1"], **options)

    monkeypatch.setattr(processes.subprocess, "run", failing)
    with pytest.raises(StartupError, match=r"/bin/ps, .* failed: no entitlement"):
        processes._ps(1, "state")


def running(word):
    """Return the processes with a word on their command line."""
    found = subprocess.run(["pgrep", "-f", "--", word], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.mark.processes
@pytest.mark.parametrize("fails_at", [1, 2, 3])
@pytest.mark.parametrize("brokers", [1, 2])
def test_nothing_is_left_running_where_ps_fails(tmp_path, monkeypatch, fails_at, brokers):
    calls, real = [], processes._stat

    def failing(pid):
        calls.append(pid)
        if len(calls) >= fails_at:
            raise StartupError("/bin/ps, which is asked where there is no /proc, failed: x")
        return real(pid)

    monkeypatch.setattr(processes, "_stat", failing)
    with pytest.raises(StartupError, match="/bin/ps"):
        cluster.up(ClusterDir(tmp_path / "data"), cluster.Wanted(brokers=brokers, any_ports=True))
    give_up_s = time.monotonic() + 20
    while running(str(tmp_path)) and time.monotonic() < give_up_s:
        time.sleep(0.05)
    assert running(str(tmp_path)) == []
