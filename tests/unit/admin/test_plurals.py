"""Counts in texts agree with their nouns: by `plural`, wherever a number of things is printed."""

import ast
import re
from pathlib import Path

import ottla
from ottla.model.printable import plural

ROOMS = ("admin", "console", "explain", "pipelines")
NOUN = re.compile(r" (?:[a-z]+[- ]){0,2}?(?:broker|partition|replica|record|topic|group|file|line|"
                  r"rule|row|member|offset|problem|finding|certificate|loss|lag)s\b")  # fmt: skip
ONE_OR_MORE = re.compile(r"len\(.*\)( - \w+)?|count|total|lag|rows|records|partitions|replicas")


def counts(file):
    """Yield each count of an f-string that a plural follows as text."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        for value, text in zip(
            getattr(node, "values", ()), getattr(node, "values", ())[1:], strict=False
        ):
            if (
                isinstance(node, ast.JoinedStr)
                and isinstance(value, ast.FormattedValue)
                and ONE_OR_MORE.fullmatch(ast.unparse(value.value))
                and NOUN.match(str(getattr(text, "value", "")))
            ):
                yield f"{file}:{node.lineno}: {ast.unparse(value.value)}{text.value}"


def test_no_text_has_one_brokers():
    source = Path(ottla.__file__).parent
    found = [c for room in ROOMS for f in (source / room).rglob("*.py") for c in counts(f)]
    assert found == []


def test_plural():
    assert [plural(n, "loss", "losses") for n in (0, 1, 2000)] == [
        "0 losses",
        "1 loss",
        "2,000 losses",
    ]
