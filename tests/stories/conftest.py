"""The option that rewrites transcripts, and the story's world under a name tests can import."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

for name in ("harness", "script", "broker_world", "broker_script"):
    spec = importlib.util.spec_from_file_location(f"story_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"story_{name}"] = module
    spec.loader.exec_module(module)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        default=False,
        help="write what stories did into their files, to be read and committed (never in CI)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI") and config.getoption("--rewrite", default=False):
        raise pytest.UsageError("stories are not rewritten in CI: read the difference instead")
