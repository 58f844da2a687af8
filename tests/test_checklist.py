"""docs/CHECKLIST.md names only what exists, says why of the rest, and counts right."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "CHECKLIST.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([a-z_0-9/]+\.py)::(\w+)`", PAGE)))
STORIES = sorted(set(re.findall(r"story `(\w+)`", PAGE)))
ROWS = [
    (section.partition("\n")[0], row[0], row[1])
    for section in PAGE.split("\n## ")[1:]
    for row in re.findall(r"^\| (\w+) \| (.+) \|$", section, re.MULTILINE)
    if row != ("case", "here")
]


def functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_tests_that_are_named_exist(path):
    named = {name for where, name in NAMED if where == path}
    assert (TESTS / path).exists()
    assert not named - functions(TESTS / path)


@pytest.mark.parametrize("name", STORIES)
def test_stories_that_are_named_exist(name):
    assert (TESTS / "stories" / f"{name}.txt").exists()


def kind(cell):
    if cell.startswith("missing: "):
        return "missing"
    if cell.startswith("no: "):
        return "not applicable"
    assert cell.startswith(("`", "story `")), cell
    return "covered"


def test_the_counts_are_right():
    counted = Counter((section, kind(cell)) for section, _, cell in ROWS)
    table = re.findall(r"^\| ([A-Z][\w, ]+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(table) == 3
    for section, *numbers in table:
        found = [counted[section, k] for k in ("covered", "not applicable", "missing")]
        assert found == [int(n) for n in numbers], section
    assert len(ROWS) > 600
