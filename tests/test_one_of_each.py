"""Primitives that there is one of: how a task yields to the event loop, how epochs are fenced."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "ottla"

# Rooms that still do it themselves; to go.
YIELDS_ITSELF = {"broker", "pipelines"}


def lines():
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            yield name, number, line


def test_tasks_yield_to_the_loop_by_model_time_slices():
    found = {name for name, _, line in lines() if re.search(r"\bsleep\(0\)", line)}
    assert {name for name in found if name.split("/")[0] not in YIELDS_ITSELF} == {
        "model/time_slices.py"
    }
    assert {name.split("/")[0] for name in found} >= YIELDS_ITSELF, "none is left: shorten the list"


def test_one_place_compares_the_epochs_of_control_requests():
    """The controller epoch in the replica manager, broker epochs by `is_stale_broker_epoch`."""
    compares = re.compile(r"request\.(controller|broker)_epoch [<>]=? |[<>]=? request\.\w+_epoch\b")
    assert not [f"{name}:{n}" for name, n, line in lines() if compares.search(line)]
    sets = re.compile(r"\bcontroller_epoch = request\.|\.controller_epoch = epoch\b")
    assert {name for name, _, line in lines() if sets.search(line)} == {
        "replication/replica_manager.py"
    }
