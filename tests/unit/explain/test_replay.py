"""The rules of today over the stories' journals: the same; something else where one is changed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ottla.controller import (
    broker_epochs,
    elections,
    isr_changes,
    leadership,
    requested_elections,
    states,
)
from ottla.controller.states import PartitionState
from ottla.explain import replay as module
from ottla.explain.history import PartitionHistory
from ottla.explain.journals import Damage, find, read
from ottla.explain.replay import Replay
from ottla.model.errors import ErrorCode
from ottla.model.journal_schema import DecisionLine, partition_of

STORIES = Path(__file__).parents[2] / "stories"
VECTORS = Path(__file__).parents[2] / "vectors"
NAMES = sorted(p.stem for p in STORIES.glob("*.txt") if "\non brokers\n" not in p.read_text())


def again_over(story):
    again = Replay()
    for entry in story.entries():
        again.take(entry)
    again.finish()
    return again


@pytest.mark.parametrize("name", NAMES)
def test_our_own_journals_are_decided_again_without_a_difference(told, name):
    again = again_over(told(name))
    assert again.differences == []
    assert not again.unknown
    assert sum(again.checked.values()) >= 10


def test_a_journal_with_words_for_rules_is_read_and_decided_again():
    """Of a0d03889: rules in words, and nothing of what handlers read and wrote."""
    entries = list(read(find([VECTORS / "journal_with_words.jsonl"]), damage := Damage()))
    assert not damage.count
    rules = {entry.line.rule for entry in entries if isinstance(entry.line, DecisionLine)}
    assert "unclean: first live replica" in rules
    again = Replay()
    history = PartitionHistory(partition_of("t-0"))
    for entry in entries:
        again.take(entry)
        history.take(entry)
    again.finish()
    assert again.differences == []
    assert sum(again.checked.values()) > 20
    assert "procedures" not in again.checked
    told = " ".join(entry.how for entry in history.entries)
    assert "the first live member of the ISR" in told or "unclean elections are allowed" in told


def test_all_deciders_were_asked(told):
    asked = set()
    for name in NAMES:
        asked |= set(again_over(told(name)).checked)
    kinds = {f"election: {kind.value}" for kind in elections.ElectionKind}
    assert asked >= kinds | {
        "election: new",
        "election: isr-removal",
        "election: epoch",
        "ISR changes",
        "balance",
        "broker changes",
        "reassignments",
        "states",
        "unseen restarts",
        "procedures",
    }


def _last_of_isr(right):
    def mutant(assignment, state, online, **how):
        outcome = right(assignment, state, online, **how)
        if outcome.state is None:
            return outcome
        return replace(outcome, state=replace(outcome.state, leader=outcome.state.isr[-1]))

    return mutant


def test_a_changed_rule_of_elections_is_found(told, monkeypatch):
    monkeypatch.setattr(elections, "_offline", _last_of_isr(elections._offline))
    again = again_over(told("broker_failure"))
    found = {d.decider for d in again.differences}
    assert found == {"election: offline", "procedures"}
    difference = again.differences[0]
    assert difference.subject == "t-1"
    assert "leader 3" in difference.journal
    assert "leader 1" in difference.now
    assert difference.where.rpartition(":")[2].isdigit()
    line = difference.where.rpartition(":")
    assert b"t-1" in Path(line[0]).read_bytes().splitlines()[int(line[2]) - 1]


def _fails(*_arguments, **_named):
    raise ZeroDivisionError("nobody thought of this")


MUTANTS = {
    "initial": (leadership, "initial", _fails, "topic_creation", "election: new"),
    "preferred": (elections, "_preferred", _fails, "preferred_leader", "election: preferred"),
    "target": (elections, "_reassignment", _fails, "reassignment", "election: reassignment"),
    "shutdown": (
        elections,
        "_controlled_shutdown",
        lambda a, s, o, _down: elections._offline(a, s, o, unclean=False),
        "controlled_shutdown",
        "election: controlled-shutdown",
    ),
    "removal": (module, "plan_isr_removal", _fails, "broker_failure", "election: isr-removal"),
    "bump": (module, "plan_epoch_bump", _fails, "reassignment", "election: epoch"),
    "judgement": (
        isr_changes,
        "_validate_partition",
        lambda *_: ErrorCode.INVALID_REQUEST,
        "isr_change",
        "ISR changes",
    ),
    "permissive": (
        isr_changes,
        "_validate_partition",
        lambda *_: None,
        "isr_change",
        "ISR changes",
    ),
    "balance": (module, "too_much_elsewhere", lambda *_: False, "rebalance", "balance"),
    "brokers": (
        module,
        "compare",
        lambda *_: broker_epochs.BrokerChange((), (), ()),
        "broker_start",
        "broker changes",
    ),
    "restarts": (module, "restarted_unseen", lambda *_: [], "unseen_restart", "unseen restarts"),
    "caught up": (module, "caught_up", lambda *_: True, "reassignment", "reassignments"),
    "targets": (module, "problem_with", lambda *_: None, "reassignment", "reassignments"),
    "moves": (
        module,
        "PARTITION_TRANSITIONS",
        {**states.PARTITION_TRANSITIONS, PartitionState.OFFLINE: frozenset()},
        "broker_failure",
        "states",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_decider_is_really_asked(told, monkeypatch, name):
    where, what, mutant, story, decider = MUTANTS[name]
    journal = told(story)
    monkeypatch.setattr(where, what, mutant)
    assert decider in {d.decider for d in again_over(journal).differences}


def test_a_limit_is_a_fraction_of_the_share():
    assert requested_elections.too_much_elsewhere(2, 10, 0.1)
    assert not requested_elections.too_much_elsewhere(1, 10, 0.1)
    assert not requested_elections.too_much_elsewhere(0, 0, 0.0)
