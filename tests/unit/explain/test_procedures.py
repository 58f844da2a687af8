"""Whole procedures, run again from the journal: the same; a step left out or swapped is found.

The context that a replay comes to is compared with the one the controller of the story had.
"""

from pathlib import Path

import pytest

from ottla.controller import brokers as broker_procedures
from ottla.controller import deletion, eligibility, failover, reassignment, topics
from ottla.controller.cluster_state import ClusterState
from ottla.controller.context import Context
from ottla.controller.snapshot import ELECTED
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import ReplicaState
from ottla.explain.journals import Damage, find, read
from ottla.explain.procedures import Procedures
from ottla.model.journal_schema import Elected, SnapshotLine

STORIES = Path(__file__).parents[2] / "stories"
NAMES = sorted(p.stem for p in STORIES.glob("*.txt") if "\non brokers\n" not in p.read_text())


def replayed(entries):
    procedures = Procedures()
    for entry in entries:
        procedures.take(entry)
    procedures.finish()
    return procedures


def known(context):
    """Return all that a context holds, as plain values in its order of iteration."""
    return {
        "brokers": [*context.brokers.values()],
        "shutting_down": context.shutting_down,
        "topic_ids": context.topic_ids,
        "topic_id_notes": context.topic_id_notes,
        "unwritten_topic_id_notes": context.unwritten_topic_id_notes,
        "assignments": context.assignments,
        "leadership": [(tp, known.leader_and_isr) for tp, known in context.leadership.items()],
        "reassigning": list(context.reassigning),
        "partition_states": dict(context.partition_states.items()),
        "replica_states": dict(context.replica_states.items()),
        "offline_dirs": {b: tps for b, tps in context.offline_dirs.items() if tps},
        "former_lives": {b: tps for b, tps in context.former_lives.items() if tps},
        "clean_brokers": context.clean_brokers,
        "voiding_brokers": context.voiding_brokers,
        "unstated": context.unstated,
        "broker_epochs": context.broker_epochs,
        "joined": {tp: brokers for tp, brokers in context.joined.items() if brokers},
        "eligible": context.eligible,
        "deleting": list(context.deleting),
        "deletion_started": context.deletion_started,
        "deletion_ineligible": context.deletion_ineligible,
    }


@pytest.mark.parametrize("name", NAMES)
def test_procedures_run_again_come_to_the_context_of_the_controller(told, name):
    story = told(name)
    procedures = replayed(story.entries())
    assert procedures.differences == []
    assert procedures.checked
    for context in story.contexts:
        assert known(procedures._followed.context) == known(context)


def test_known_holds_all_of_a_context():
    attributes = set(vars(Context())) - {"epoch", "epoch_zk_version", "topic_names"}
    assert attributes == set(known(Context()))


# --- planted: a step is left out, or two are swapped --------------------------------------------


async def _nothing(*_arguments, **_named):
    return None


def _silence(*_arguments, **_named):
    return None


def _without(state):
    """Leave one state change of replicas out."""
    right = StateChanges.replicas

    async def mutant(self, replicas, target, *batch):
        if target is not state:
            await right(self, replicas, target, *batch)

    return mutant


async def _removed_before_the_leader(changes, goals, isrs):
    """B4 and B5 before B3."""
    lead, remove = reassignment._lead_within, reassignment._remove
    later = []

    async def first(_changes, targets):
        later.append(targets)

    async def then(changes, replicas):
        await remove(changes, replicas)
        await lead(changes, later.pop())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reassignment, "_lead_within", first)
        patch.setattr(reassignment, "_remove", then)
        await _complete(changes, goals, isrs)


_complete = reassignment._complete


async def _deleted_before_stopped(changes, topics):
    """Step 3 before step 2."""
    await deletion_steps[1](changes, topics)
    await deletion_steps[0](changes, topics)


deletion_steps = deletion._remove_partitions, deletion._remove_replicas

R = ReplicaState
MUTANTS = {
    "A2 is left out": (StateChanges, "replicas", _without(R.NEW), "reassignment"),
    "A1 is left out": (StateChanges, "bump_leader_epochs", _nothing, "reassignment"),
    "B3 is left out": (reassignment, "_lead_within", _nothing, "reassignment"),
    "B3 comes after B5": (reassignment, "_complete", _removed_before_the_leader, "reassignment"),
    "B5 is left out": (reassignment, "_remove", _nothing, "reassignment"),
    "B7 is left out": (reassignment, "_clear_requests", _nothing, "reassignment"),
    "B8 is left out": (StateChanges, "metadata", _nothing, "reassignment"),
    "nothing is resumed": (
        reassignment,
        "on_controller_failover",
        _nothing,
        "reassignment_failover",
    ),
    "step 2 is left out": (deletion, "_remove_partitions", _nothing, "topic_deletion"),
    "steps 2 and 3 are swapped": (
        deletion,
        "_remove_partitions",
        _deleted_before_stopped,
        "topic_deletion",
    ),
    "replicas are not stopped": (StateChanges, "replicas", _without(R.OFFLINE), "topic_deletion"),
    "replicas are not deleted": (
        StateChanges,
        "replicas",
        _without(R.DELETION_STARTED),
        "topic_deletion",
    ),
    "step 5 is left out": (deletion, "_complete", _nothing, "topic_deletion"),
    "a deletion does not wait": (deletion, "make_ineligible", _silence, "deletion_guards"),
    "nobody is taken out of the ISR": (
        StateChanges,
        "_replicas_offline",
        _nothing,
        "broker_failure",
    ),
    "deletions are not resumed": (deletion, "resume", _nothing, "deletion_guards"),
    "nobody is eligible": (eligibility, "next_eligible", lambda *_: None, "eligible_replicas"),
    "nobody asks for features": (failover, "_set_up_features", _nothing, "controller_failover"),
    "nothing is known of logs": (failover, "_read_eligible", _nothing, "controller_failover"),
    "topic ids are not noted": (topics, "write_notes", _nothing, "topic_creation"),
    "a preferred election is not deleted": (
        ClusterState,
        "delete_preferred_election",
        _nothing,
        "eight_brokers",
    ),
    "notifications of ISRs stay": (ClusterState, "delete_isr_changes", _nothing, "isr_change"),
    "new brokers get no replicas": (
        broker_procedures,
        "on_broker_startup",
        _nothing,
        "broker_start",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_change_of_the_order_of_steps_is_found(told, monkeypatch, name):
    where, what, mutant, story = MUTANTS[name]
    entries = told(story).entries()
    monkeypatch.setattr(where, what, mutant)
    found = replayed(entries).differences
    assert found
    first = found[0]
    assert first.journal != first.now
    assert first.epoch > 0


def test_a_line_that_is_missing_is_found_too(told):
    """An independent check of the comparison: the journal is changed, not the procedure."""
    entries = told("reassignment").entries()
    sent = [n for n, entry in enumerate(entries) if type(entry.line).__name__ == "RequestLine"]
    for number in (sent[-1], sent[len(sent) // 2]):
        assert replayed(entries[:number] + entries[number + 1 :]).differences


@pytest.mark.parametrize(("right", "wrong"), [(b'"t-1"', b'"t71"'), (b"t-1 on 2", b"t-1 on x")])
def test_lines_that_name_what_cannot_be_are_a_difference(told, right, wrong):
    """One damaged byte that leaves a line valid: once the replay failed."""
    story = told("broker_failure")
    for files in story.files:
        for file in files:
            lines = file.read_bytes().splitlines(keepends=True)
            file.write_bytes(
                b"".join(
                    line.replace(right, wrong) if line.startswith(b'{"kind":"states",') else line
                    for line in lines
                )
            )
    damage = Damage()
    procedures = replayed(story.entries(damage))
    assert damage.count == 0
    assert "fails: ValueError" in {found.now[:17] for found in procedures.differences}


@pytest.mark.parametrize("ends", [True, False])
def test_an_election_that_fails_before_its_first_line_is_a_difference(told, monkeypatch, ends):
    """Once it was silent: the difference had no line to name. It is the snapshot's."""
    entries = told("controller_failover").entries()
    first = next(
        n for n, entry in enumerate(entries)
        if isinstance(entry.facts, Elected) and entry.line.epoch == 2
    )  # fmt: skip
    snapshot = next(
        n for n, entry in enumerate(entries) if n > first and isinstance(entry.line, SnapshotLine)
    )
    assert entries[snapshot].facts.reason == ELECTED
    last = next(
        n for n, entry in enumerate(entries)
        if n > snapshot and not isinstance(entry.line, SnapshotLine)
    )  # fmt: skip
    after = [entry for entry in entries[last:] if entry.line.cause != entries[first].line.cause]

    async def fails(*_arguments):
        raise KeyError("no such broker")

    monkeypatch.setattr(deletion, "on_controller_failover", fails)
    procedures = replayed(entries[first:last] + ([] if ends else after))
    found = procedures.differences[0]
    assert found.where == entries[snapshot].where
    assert found.subject == "Elected"
    assert found.journal == "nothing more"
    assert found.now == "fails: KeyError: 'no such broker'"


def test_where_lines_are_missing_nothing_is_compared_until_the_next_snapshot(told):
    entries = told("reassignment").entries()
    procedures = Procedures()
    for entry in entries[:-40]:
        procedures.take(entry)
    procedures.lines_missing()
    before = procedures.checked
    for entry in entries[-20:]:
        procedures.take(entry)
    procedures.finish()
    assert procedures.differences == []
    assert procedures.checked == before


def test_a_journal_of_an_older_version_is_left_alone(told, tmp_path):
    """It holds no inputs of procedures: single lines are decided again, procedures are not."""
    for number, file in enumerate(told("reassignment").files[0]):
        text = file.read_text().replace('"registered":', '"unknown":')
        (tmp_path / f"{number}.jsonl").write_text(text)
    entries = list(read(find([tmp_path / "0.jsonl"]), Damage()))
    assert entries
    assert not replayed(entries).checked
