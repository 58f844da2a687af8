"""The examples: they pass as a user would run them, and their types are right."""

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
EXAMPLES = sorted((ROOT / "examples").glob("test_*.py"))


def test_there_are_examples():
    names = {path.stem for path in EXAMPLES}
    assert {"test_confluent_kafka", "test_aiokafka", "test_kafka_python", "test_fastapi"} <= names


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_passes(path, tmp_path):
    installed = bool(entry_points(group="pytest11", name="ottla"))
    plugin = [] if installed else ["-p", "ottla.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, "-p", "no:cacheprovider", "-c",
               "/dev/null", "--rootdir", str(tmp_path), str(path)]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
