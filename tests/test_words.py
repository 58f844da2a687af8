"""Words that stand for one of the field's terms: they are to go, and none comes back.

`LEFT` says how many lines still have a word, all files together. These numbers only ever go down:
lower them when lines were rewritten. docs/GLOSSARY.md has the terms.
"""

import re
import subprocess
from pathlib import Path
from re._constants import AT, BRANCH, LITERAL
from re._parser import parse

import pytest

ROOT = Path(__file__).parent.parent

# word, as a regular expression -> the term, or terms, that Kafka, ZooKeeper or asyncio have
TERMS = {
    r"\breigns?\b|\b_?reign_?": "controller term",
    r"\boffice\b": "controller term",
    r"\babdicat": "resignation",
    r"\bdepos(e|ed|ing)\b|deposed": "fence, fenced",
    r"\bbreath(e|es|ing)?\b": "yield to the event loop",
    r"\bkeep_house\b": "scheduled log tasks",
    r"\bbury\b|\bburied\b": "delete a stray replica",
    r"goodbye": "write the clean shutdown marker, leave the group",
    r"\bTenure": "leadership, leader epoch",
    r"\b_?stumbl": "retry after an error",
    r"\bimpatient": "expedited",
    r"\bunheard\b": "pending replicas",
    r"\bunasked\b": "unverified",
    r"\bfilthi": "dirtiest log",
    r"\b_?sift": "filter or retain records",
    r"\bfates?\b": "retention, outcome",
    r"\bCensus\b|\bcensus\b": "connection quotas",
    r"\bhast[yi]": "without retries",
    r"\bfrail\b": "with unclean elections",
    r"\bAnswers to [A-Z]": "Kafka: X",
    r"\btwins?\b": "in-memory ZooKeeper",
    r"\b(former|present|earlier|later) li(fe|ves)\b": "registration",
    r"\b_?hear_out|\b_?heard_out": "confirm a replica",
    r"\b_?unproven\b": "unverified",
    r"\bvouch": "verify, confirm",
    r"\b_put_aside\b|\b_hold_back\b": "delay a partition, throttle",
    r"\bon_settled\b|\bAppendCallback\b": "DelayedAppend",
    r"\bsick\b": "failed, slow",
    r"[Dd]oor.?plate": "module docstring",
    r"leader asks:": "leader requests:",
    r"\btp=%": "partition=",
    r"\bwhy=%": "reason=",
}
# The same in src alone.
SOURCE_TERMS = {
    r"\b([Nn]o|[Ss]ome)body\b": "the client, broker, replica or user that is meant",
    r"\btold\b": "reported, notified, received; distinguished",
    r"\b\w*Answers?\b": "response (Kafka), reply (ZooKeeper), result",
}
LEFT: dict[str, int] = {r"\btold\b": 1}
SELF = {"tests/test_words.py", "docs/GLOSSARY.md"}


def texts():
    listed = subprocess.run(
        ["git", "ls-files", "src", "tests", "docs", "benchmarks", "README.md"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    ).stdout.split()  # fmt: skip
    for name in listed:
        path = ROOT / name
        wanted = name not in SELF and path.suffix in {".py", ".md", ".txt", ".toml", ".pyi"}
        if wanted and path.exists():
            yield name, path.read_text(encoding="utf-8", errors="replace")


@pytest.fixture(scope="module")
def files():
    return list(texts())


def stems(parsed):
    """Return texts of which each match of a pattern has at least one; None where there are none.

    To look for these first is what makes a word quick to find in 15 MB.
    """
    runs, branches = [""], []
    for kind, value in parsed:
        if kind is LITERAL:
            runs[-1] += chr(value)
        elif kind is not AT:  # a boundary takes no character
            runs.append("")
            if kind is BRANCH:
                branches.append([stems(branch) for branch in value[1]])
    longest = max(runs, key=len)
    if len(longest) > 2:
        return {longest}
    for known in branches:
        if all(known):
            return set().union(*known)
    return None


def found(word, files):
    """Return the lines that have a word."""
    pattern, needed = re.compile(word), stems(parse(word))
    return [
        f"{name}:{number}: {line.strip()[:80]}"
        for name, text in files
        if needed is None or any(stem in text for stem in needed)
        for number, line in enumerate(text.split("\n"), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("word", TERMS)
def test_a_word_with_a_term_does_not_come_back(word, files):
    there = found(word, files)
    left = LEFT.get(word, 0)
    assert len(there) <= left, f"the term is: {TERMS[word]}\n" + "\n".join(there)
    assert len(there) == left, f"lower the number of {word!r} to {len(there)}"


@pytest.mark.parametrize("word", SOURCE_TERMS)
def test_a_word_with_a_term_does_not_come_back_in_src(word, files):
    there = found(word, [one for one in files if one[0].startswith("src/")])
    assert len(there) == LEFT.get(word, 0), f"the term is: {SOURCE_TERMS[word]}\n" + "\n".join(
        there
    )


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (r"\boffice\b", {"office"}),
        (r"\breigns?\b|\b_?reign_?", {"reign"}),
        (r"\bbury\b|\bsunk\b", {"bury", "sunk"}),
        (r"\bdepos(e|ed|ing)\b|deposed", {"depos", "deposed"}),
        (r"x?abcd+e", {"abc"}),
        (r"[Dd]oor.?plate", {"plate"}),
        (r"\w+|word", None),
    ],
)
def test_what_a_match_must_have(word, expected):
    assert stems(parse(word)) == expected


def test_the_check_finds_a_word():
    assert re.search(r"\boffice\b", "the office was given up")
    assert not re.search(r"\boffice\b", "officer")
