"""What an unclean election cost, in the words of `ottla why`."""

from ottla.explain.rules import in_words
from ottla.model.cluster import LeaderAndIsr
from ottla.model.journal_schema import DecisionLine


def words(ends, isr=(0,), rule="unclean: longest log"):
    before = LeaderAndIsr(-1, 4, isr)
    return in_words(
        DecisionLine(
            ts=1, controller=1, epoch=1, cause=1, partition="t-0", election="unclean", rule=rule,
            before=before, after=before.with_leader(2, (2,)), replicas=(0, 1, 2), online=(1, 2),
            ends=ends, outcome="written",
        )
    )  # fmt: skip


def test_the_lost_offsets_are_named():
    assert words(((1, 3, 50), (2, 4, 40))).endswith(
        "; lost: offsets 40 to 49 of broker 1, what broker 0 had from offset 40 on"
    )


def test_nothing_is_claimed_that_is_not_known():
    assert words((), rule="unclean: first live replica").endswith("; records may be lost")
    assert words(((1, 3, 50),)).endswith("; records may be lost"), "the leader's end is unknown"
    assert words(((1, 3, 50), (2, 3, 50)), isr=()).endswith("; no record is known to be lost")
