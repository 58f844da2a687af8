"""The examples: they pass as a user would run them, and their types are right."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from support import kafka_tools

pytestmark = [
    pytest.mark.processes,  # seconds each: the second stage has them
    pytest.mark.timeout(330),
]

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("test_*.py"))
MARKS = {
    "test_java_client": [pytest.mark.java],
    "test_spark": [pytest.mark.java, pytest.mark.spark],
}


def test_there_are_examples():
    assert {path.stem for path in EXAMPLES} >= {
        "test_aiokafka", "test_chaos", "test_confluent_kafka", "test_fastapi", "test_java_client",
        "test_kafka_python", "test_spark",
    }  # fmt: skip


def run(path, folder, libs, code=0):
    """Run an example as a user would; return what pytest prints, with the reasons of skips."""
    installed = bool(entry_points(group="pytest11", name="ottla"))
    plugin = [] if installed else ["-p", "ottla.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *plugin, "-p", "no:cacheprovider",
               "-c", "/dev/null", "--rootdir", str(folder), str(path)]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "KAFKA_LIBS": str(libs)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done.stdout[-5000:] + done.stderr[-1000:]
    return done.stdout


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=MARKS.get(p.stem, [])) for p in EXAMPLES]
)
def test_an_example_passes(path, tmp_path):
    printed = run(path, tmp_path, kafka_tools.libs())
    assert "skipped" not in printed, printed


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [({"acks": "1"}, "lost"), ({"acks": "all"}, "doubled")],
    ids=["acks=1", "no idempotence"],
)
def test_the_example_of_chaos_fails_with_settings_that_are_not_safe(settings, wrong, tmp_path):
    """Not by chance: its faults make the loss, or the second copy, certain."""
    text = (ROOT / "examples" / "test_chaos.py").read_text(encoding="utf-8")
    safe = 'SETTINGS = {"acks": "all", "enable.idempotence": True}\n'
    assert text.count(safe) == 1
    path = tmp_path / "test_chaos.py"
    path.write_text(text.replace(safe, f"SETTINGS = {settings}\n"), encoding="utf-8")
    printed = run(path, tmp_path, tmp_path, code=1)
    assert "1 failed" in printed, printed
    assert re.search(rf"^E +{wrong}: [1-9]", printed, re.MULTILINE), printed
    assert "faults: kill_isolated_leader" in printed


def test_the_example_in_java_says_what_it_lacks(tmp_path):
    path = ROOT / "examples" / "test_java_client.py"
    printed = run(path, tmp_path, tmp_path)
    assert "1 skipped" in printed
    assert "no JDK on the PATH" in printed or f"in {tmp_path}: set KAFKA_LIBS" in printed
