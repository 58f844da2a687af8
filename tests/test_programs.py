"""Programs that CI does not run, or not whole, can at least be imported: a rename breaks none."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
IMPORT = """
import runpy, sys
folder, *programs = sys.argv[1:]
sys.path.insert(0, folder)
for program in programs:
    runpy.run_path(program, run_name="imported")
"""


def test_benchmarks_proofs_and_suites_can_be_imported():
    for folder in ("benchmarks", "docs", "tests/proofs", "tests/suites"):
        programs = sorted(str(path) for path in (ROOT / folder).glob("*.py"))
        assert programs, folder
        done = subprocess.run(
            [sys.executable, "-c", IMPORT, str(ROOT / folder), *programs],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr


ZERO = """
import contextlib, io, runpy, sys
folder, *commands = sys.argv[1:]
sys.path.insert(0, folder)
for command in commands:
    program, option = command.split()
    sys.argv = [program, option, "0"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            runpy.run_path(f"{folder}/{program}", run_name="__main__")
        except SystemExit as end:
            assert end.code == 2, (command, end.code)
        else:
            raise AssertionError(command)
    assert "0 proves nothing" in said.getvalue(), said.getvalue()
"""


def test_a_proof_of_nothing_is_refused():
    commands = [
        "kill_proof.py --rounds", "controller_kill_proof.py --rounds",
        "transaction_proof.py --rounds", "secured_kill_proof.py --rounds",
        "crash_proof.py --kills", "lake_proof.py --rounds", "lake_proof.py --records",
        "replay_proof.py --rounds", "replay_proof.py --records",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", ZERO, str(ROOT / "tests/proofs"), *commands],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
