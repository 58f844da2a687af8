"""Rules: a value each in the journal, words for people; older journals have the words."""

import msgspec
import pytest

from ottla.model.journal_schema import DecisionLine, read_line
from ottla.model.rules import Rule, rule_named, words_of

ONCE = "leader asks"
"""How the rules of AlterPartition began."""


@pytest.mark.parametrize("rule", Rule)
def test_a_rule_is_read_by_its_value_and_by_its_words(rule):
    assert rule_named(rule.value) is rule
    assert rule_named(rule.words) is rule
    assert words_of(rule.value) == words_of(rule.words) == rule.words
    assert set(rule.value) <= set("abcdefghijklmnopqrstuvwxyz-")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("first live ISR member", Rule.FIRST_LIVE_ISR_MEMBER),
        ("leader requests: ISR expands", Rule.ISR_EXPANDS),
        (f"{ONCE}: ISR shrinks", Rule.ISR_SHRINKS),
        (f"{ONCE}: recovered", Rule.RECOVERED),
        ("unclean: longest log", Rule.UNCLEAN_LONGEST_LOG),
    ],
)
def test_wordings_of_older_journals_are_read(text, rule):
    raw = (
        '{"kind":"decision","partition":"t-0","election":"offline","rule":' + f'"{text}",'
        '"before":null,"after":null,"replicas":[1],"outcome":"written"}'
    )
    line, _ = read_line(raw)
    assert line.decided_by is rule


def test_what_is_none_of_them_is_shown_as_it_is():
    assert rule_named("leader epoch 3 is past, it is 4") is None
    assert words_of("the wisest") == "the wisest"


def test_a_decision_is_written_with_the_value():
    line = DecisionLine(
        partition="t-0", election="offline", rule=Rule.NO_LIVE_REPLICA, before=None, after=None,
        replicas=(1,), outcome="failed: no live replica",
    )  # fmt: skip
    assert b'"rule":"no-live-replica"' in msgspec.json.encode(line)


def test_only_two_rules_lose_records():
    assert [rule for rule in Rule if rule.unclean] == [
        Rule.UNCLEAN_FIRST_LIVE_REPLICA, Rule.UNCLEAN_LONGEST_LOG,
    ]  # fmt: skip
