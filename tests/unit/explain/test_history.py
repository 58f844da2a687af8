"""What a person is told, from the journals of the stories."""

from itertools import pairwise

import pytest

from ottla.explain.history import PartitionHistory
from ottla.explain.rendering import _leader
from ottla.explain.replay import Replay
from ottla.model.journal_schema import partition_of


def story_of(told, text):
    story = PartitionHistory(partition_of(text))
    for entry in told.entries():
        story.take(entry)
    return story


def changes(story):
    return [c for c in story.entries if c.before != c.after]


def test_a_dead_leader(told):
    entry = next(c for c in changes(story_of(told("broker_failure"), "t-1")) if c.cause > 5)
    assert (entry.before.leader, entry.after.leader) == (2, 3)
    assert (entry.before.leader_epoch, entry.after.leader_epoch) == (0, 1)
    assert (entry.before.isr, entry.after.isr) == ((2, 3, 1), (3, 1))
    assert entry.reason == (
        f"the session of broker 2 ended (cause {entry.cause}); 3 is the first live member of the "
        "ISR in the order of assignment [2, 3, 1]; rejected: 2 (offline), 1 (later in the "
        "assignment)"
    )


def test_the_controller_itself_dies(told):
    story = story_of(told("controller_failover"), "t-0")
    reasons = [c.reason for c in changes(story) if c.controller == 2]
    assert reasons
    assert all("broker 2 became controller (epoch 2) and found broker 1 not" in r for r in reasons)
    assert [c.epoch for c in story.entries] == sorted(c.epoch for c in story.entries)


def test_nobody_could_lead_and_the_last_of_the_isr_stays(told):
    story = story_of(told("last_replica"), "t-0")
    nobody = [c for c in story.entries if c.what == "no leader"]
    assert nobody
    assert "no leader" in nobody[0].how
    kept = [c for c in story.entries if c.rule == "last ISR member stays in the ISR"]
    assert kept[0].after.leader == -1
    assert "it alone has every acknowledged record" in kept[0].how


@pytest.mark.parametrize(
    ("name", "partition", "words"),
    [
        ("unclean_election", "t-0", "unclean elections are allowed"),
        ("isr_change", "t-0", "refused with FENCED_LEADER_EPOCH"),
        ("isr_change", "t-0", "ISR shrinks to [1, 2]"),
        ("isr_change", "t-0", "broker 2 asked (AlterPartition)"),
        ("controlled_shutdown", "t-0", "asked for its controlled shutdown"),
        ("controlled_shutdown", "t-0", "left after a controlled shutdown"),
        ("preferred_leader", "t-0", "a client requested preferred leader elections"),
        ("preferred_leader", "t-0", "is the preferred replica"),
        ("rebalance", "t-0", "the limit is"),
        ("reassignment", "t-0", "reassignment to [4, 5, 6] begins"),
        ("reassignment", "t-0", "reassignment is taken back"),
        ("reassignment", "t-0", "the replica on broker 1 is stopped and leaves the ISR"),
        ("reassignment", "t-0", "Duplicate replica ids"),
        ("topic_deletion", "t-0", "topic t is deleted"),
        ("log_dir_failure", "t-0", "a log directory of broker"),
        ("unseen_restart", "t-0", "had restarted while there was no controller"),
    ],
)
def test_causes_in_words(told, name, partition, words):
    story = story_of(told(name), partition)
    assert any(words in c.reason for c in story.entries), [c.reason for c in story.entries]


def test_every_decision_of_every_story_has_a_cause_in_words(told):
    for name in (
        "broker_failure",
        "reassignment",
        "topic_deletion",
        "all_die",
        "broker_start",
        "former_life",
    ):
        entries = told(name).entries()
        partitions = {e.line.partition for e in entries if hasattr(e.line, "partition")}
        for partition in partitions:
            for entry in story_of(told(name), partition).entries:
                if entry.election and entry.election not in {"isr-removal", "reassignment"}:
                    assert entry.because, entry


def test_an_entry_ends_where_the_next_begins(told):
    """The states told are a chain: nothing happened in between that is not told."""
    for name in ("broker_failure", "controller_failover", "reassignment", "unclean_election"):
        entries = story_of(told(name), "t-0").entries
        for this, following in pairwise(entries):
            assert this.after == following.before or following.what == "created", (name, following)


def test_what_no_journal_explains_is_told_as_found(told):
    """The journal of the controller in between is missing: nothing is made up about it."""
    journal = told("controller_failover")
    (journal.folder / "broker-2" / "data" / "ottla-controller-journal.jsonl").unlink()
    story = story_of(journal, "t-0")
    (found,) = [c for c in story.entries if c.what == "found"]
    assert found.controller == 3
    assert (found.before.leader, found.after.leader) == (1, 2)
    assert found.reason == (
        "controller 3 of epoch 3 found it so; what led to it is in no journal here"
    )


def test_a_journal_that_begins_late_begins_with_what_was_found(told):
    journal = told("controller_failover")
    for broker in (1, 2):
        (journal.folder / f"broker-{broker}" / "data" / "ottla-controller-journal.jsonl").unlink()
    first = story_of(journal, "t-0").entries[0]
    assert (first.what, first.before, first.after.leader) == ("found", None, 2)
    assert first.how == "controller 3 of epoch 3 found it so"


def test_a_state_without_a_leader_is_found_as_it_is(told):
    """The znode says -1 already when a controller is elected."""
    journal = told("controller_failover")
    for broker in (1, 2):
        (journal.folder / f"broker-{broker}" / "data" / "ottla-controller-journal.jsonl").unlink()
    file = journal.folder / "broker-3" / "data" / "ottla-controller-journal.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"leader":2,', b'"leader":-1,'))
    first = story_of(journal, "t-0").entries[0]
    assert first.after.leader == -1
    assert _leader(first.after) == "none"


def test_a_topic_made_anew_is_another_topic(told):
    journal = told("controller_failover")
    file = journal.folder / "broker-3" / "data" / "ottla-controller-journal.jsonl"
    other = b'"id":"AAAAAAAAAAAAAAAAAAAAAQ"'
    file.write_bytes(file.read_bytes().replace(b'"id":"dAEBAQEBAQEBAQEBAQEBAQ"', other))
    story = story_of(journal, "t-0")
    (again,) = [c for c in story.entries if c.what == "recreated"]
    assert again.before is None
    assert "another id, AAAAAAAAAAAAAAAAAAAAAQ" in again.how


def test_decisions_of_another_version_are_told_by_their_names(told):
    journal = told("broker_failure")
    (file,) = [f for files in journal.files for f in files if f.stat().st_size > 2000]
    raw = file.read_bytes()
    raw = raw.replace(b'"rule":"first-live-isr-member"', b'"rule":"the wisest"')
    raw = raw.replace(b'"event":"BrokersChanged"', b'"event":"StarsAligned"')
    file.write_bytes(raw.replace(b'"election":"offline"', b'"election":"by lot"'))
    story = story_of(journal, "t-1")
    assert any(c.how == "the wisest" and c.because == "StarsAligned" for c in story.entries)
    again = Replay()
    for entry in journal.entries():
        again.take(entry)
    assert again.unknown == {"by lot": 3}
    assert again.differences == []
