"""TESTING_YOUR_APPLICATION.md and README.md: their Python runs as a user would run it."""

import re
import runpy
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.processes,  # seconds each: the second stage has them
    pytest.mark.timeout(330),
]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "TESTING_YOUR_APPLICATION.md"
BLOCK = re.compile(r"^```python\n# (test_\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(folder, *arguments):
    installed = bool(entry_points(group="pytest11", name="ottla"))
    plugin = [] if installed else ["-p", "ottla.testing.plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "-p", "no:cacheprovider", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    return done.stdout


def test_every_block_of_the_page_runs(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python") == 6
    for name, code in blocks:
        (tmp_path / name).write_text(code)
    out = run(tmp_path, "--ottla-in-process")
    assert "8 passed" in out
    # test_examples.py runs this one with settings that are not safe, too.
    example = (ROOT / "examples" / "test_chaos.py").read_text(encoding="utf-8")
    assert dict(blocks)["test_chaos.py"] == example


def test_the_fixture_of_the_readme_has_eight_lines_and_runs(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) == 8
    (tmp_path / "test_readme.py").write_text(code)
    assert "1 passed" in run(tmp_path, "--ottla-in-process")


def test_the_tables_name_what_there_is():
    from ottla.testing.nemeses import NEMESES
    from ottla.testing.sync_cluster import SyncCluster

    text = PAGE.read_text(encoding="utf-8")
    for name in NEMESES:
        assert f"`{name}`" in text, f"the page does not name the nemesis {name}"
    called = set(re.findall(r"`([a-z_]+)\(", text))
    known = set(dir(SyncCluster)) | {"check"}
    assert called - known <= set(), f"there is no such method: {called - known}"


def test_the_reference_is_what_the_docstrings_say():
    page = runpy.run_path(str(ROOT / "docs" / "list_api.py"))["page"]()
    written = (ROOT / "docs" / "API.md").read_text(encoding="utf-8")
    assert written == page, "run: PYTHONPATH=src python docs/list_api.py"
