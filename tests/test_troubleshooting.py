"""docs/TROUBLESHOOTING.md quotes log lines, messages and errors as they stand in the source."""

import ast
import re
from functools import cache
from pathlib import Path

from ottla.model.errors import ErrorCode
from support.sources import SOURCE, nodes

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "TROUBLESHOOTING.md").read_text(encoding="utf-8")
LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR"}
LEVELS |= {"exception": "ERROR"}
# Names of clients' own, and an older name of one of Kafka's codes.
OF_CLIENTS = {"_MSG_TIMED_OUT", "_TRANSPORT", "NOT_LEADER_FOR_PARTITION", "RECORD_LIST_TOO_LARGE"}


def section(name):
    return PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]


def first_cells(text):
    rows = [line for line in text.split("\n") if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`", row.split(" | ")[0]) for row in rows]


def plain(text):
    """Return a text with `…` for whatever is filled in."""
    return re.sub(r"…(\S*…)*", "…", re.sub(r"%#?[\d.]*[sdrfx]", "…", text))


@cache
def sources():
    """All texts between quotes that a server may say, and the levels of those that are logged."""
    texts, levels = set(), {}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in {
            "admin",
            "explain",
            "pipelines",
            "sim",
        }:
            continue
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(plain(node.value))
            elif isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "…" for v in node.values]
                texts.add(plain("".join(parts)))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                level = LEVELS.get(node.func.attr)
                first = node.args[0] if node.args else None
                if level and isinstance(first, ast.Constant) and isinstance(first.value, str):
                    levels.setdefault(plain(first.value), set()).add(level)
    return texts, levels


def stands_in(quoted, texts):
    """Say which texts a quotation is; where it ends with `…` it is a beginning."""
    wanted = plain(quoted)
    if wanted in texts:
        return {wanted}
    beginning = wanted.removesuffix("…").rstrip()
    return {t for t in texts if wanted.endswith("…") and beginning and t.startswith(beginning)}


def test_each_log_line_stands_in_the_source():
    texts, _ = sources()
    lines = [cell[0] for cell in first_cells(section("A log says"))]
    assert len(lines) > 30
    assert not [line for line in lines if not stands_in(line, texts)]


def test_each_log_line_has_the_level_of_the_source():
    _, levels = sources()
    for row in section("A log says").split("\n"):
        if row.startswith("| `"):
            quoted, level = row.split(" | ")[0][3:-1], row.split(" | ")[1]
            found = set().union(*(levels[text] for text in stands_in(quoted, levels)))
            assert not found or level in found, f"{quoted}: {found}"


def test_each_reason_not_to_start_stands_in_the_source():
    texts, _ = sources()
    quoted = [cell[0] for cell in first_cells(section("A broker does not start"))]
    assert len(quoted) > 10
    assert not [text for text in quoted if not stands_in(text, texts)]


def test_each_error_of_a_client_is_one_of_kafkas():
    names = {error.name for error in ErrorCode} | OF_CLIENTS
    named = set()
    for cell in first_cells(section("A client says")):
        named |= {text for text in cell if re.fullmatch(r"_?[A-Z]+(_[A-Z]+)+", text)}
    assert len(named) > 25
    assert named <= names, sorted(named - names)


def test_a_changed_line_is_found():
    texts, _ = sources()
    assert not stands_in("log dir offline folder=… error=…", texts)
    assert not stands_in("nobody says this …", texts)
