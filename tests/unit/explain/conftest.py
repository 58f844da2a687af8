"""Journals to explain: what the controllers of the stories write, story by story."""

import asyncio
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.cli import grammar as cli
from ottla.controller import loop
from ottla.explain.journals import Damage, find, read
from ottla.model.journal_schema import JOURNAL_NAME

STORIES = Path(__file__).parents[2] / "stories"


def _story_modules():
    """Load the stories' world, unless their own conftest has done so."""
    for name in ("harness", "script"):
        if f"story_{name}" not in sys.modules:
            spec = importlib.util.spec_from_file_location(f"story_{name}", STORIES / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            sys.modules[f"story_{name}"] = module
            spec.loader.exec_module(module)
    return sys.modules["story_harness"], sys.modules["story_script"]


@dataclass
class Told:
    """A story's journals, one file per broker, and what its last controller knew."""

    folder: Path
    contexts: list

    @property
    def files(self):
        return find([self.folder])

    def entries(self, damage=None):
        return list(read(self.files, damage or Damage()))


_lines = {}


def _run(name):
    harness, script = _story_modules()
    contexts = []
    journals = {}

    async def new_cluster(properties):
        cluster = await harness.Cluster.create(**properties)
        close = cluster.close

        async def look_and_close():
            # What closing the cluster adds is no part of the story.
            journals.update({b: list(lines) for b, lines in cluster.journals.items()})
            contexts.extend(
                s.controller.context
                for s in cluster.brokers.values()
                if s.controller is not None and s.controller.is_active
            )
            await close()

        cluster.close = look_and_close
        return cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "LOG_ENDS_WITHIN_S", 0.3)  # a broker that never answers
        asyncio.run(script.Story(STORIES / f"{name}.txt", new_cluster).run())
    return journals, contexts


@pytest.fixture
def ottla(capsys):
    """Return a function that runs a command as typed: (exit code, stdout, stderr)."""

    def run(*words):
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def told(tmp_path):
    """Return a function that tells a story by name and keeps its journals."""

    def tell(name):
        if name not in _lines:
            _lines[name] = _run(name)
        journals, contexts = _lines[name]
        for broker, lines in journals.items():
            folder = tmp_path / name / f"broker-{broker}" / "data"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / JOURNAL_NAME).write_bytes(b"".join(lines))
        return Told(tmp_path / name, contexts)

    tell.modules = _story_modules()
    return tell
