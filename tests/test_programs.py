"""Programs that CI does not run, or not whole, can at least be imported: a rename breaks none."""

import subprocess
import sys
from pathlib import Path

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
