"""docs/CHECKLIST.md and docs/SEEDS.md name only what exists; the former counts right."""

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


def test_every_procedure_of_the_seed_documents_has_its_story_and_code():
    root = TESTS.parent
    page = (root / "docs" / "SEEDS.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", page, re.MULTILINE)
    procedures = [row for row in rows if row[0] not in ("procedure", "---")]
    assert len(procedures) > 35
    for name, _, stories, code in procedures:
        assert "\N{EN DASH}" not in (stories, code), name
        for story in set(re.findall(r"`(\w+)`", stories)) - {"states", "told"}:
            assert (TESTS / "stories" / f"{story}.txt").exists(), story
        for path in re.findall(r"`(?:tests/)?((?:\w+/)*\w+\.py)`", stories):
            assert list(TESTS.rglob(path.rpartition("/")[2])), path
        for path in re.findall(r"`([\w/]+\.py)`", code):
            assert list((root / "src" / "ottla").rglob(path.rpartition("/")[2])), path
    told = {path.stem for path in (TESTS / "stories").glob("*.txt")}
    assert not [story for story in sorted(told) if f"`{story}`" not in page]
