"""Rules: by which rule a partition got, kept or lost its leader and ISR.

A decider's vocabulary. A rule's value is how the journal names it, its `words` how logs, errors and
reports do. Journals of older versions have the words, or older ones, in place of the value.
"""

from enum import StrEnum
from typing import Self


class Rule(StrEnum):
    """What decided: `Rule.FIRST_LIVE_ISR_MEMBER`, in words `first live ISR member`."""

    words: str

    def __new__(cls, value: str, words: str) -> Self:
        rule = str.__new__(cls, value)
        rule._value_ = value
        rule.words = words
        return rule

    # --- the leader of a new partition, and elections ---
    FIRST_LIVE_REPLICA = "first-live-replica", "first live replica"
    FIRST_LIVE_ISR_MEMBER = "first-live-isr-member", "first live ISR member"
    FIRST_LIVE_ELIGIBLE_REPLICA = "first-live-eligible-replica", "first live eligible replica"
    FIRST_LIVE_ISR_MEMBER_OF_TARGET = (
        "first-live-isr-member-of-target", "first live ISR member of the target",
    )  # fmt: skip
    FIRST_LIVE_ISR_MEMBER_THAT_STAYS = (
        "first-live-isr-member-that-stays", "first live ISR member that stays",
    )  # fmt: skip
    PREFERRED_REPLICA = "preferred-replica", "preferred replica"
    UNCLEAN_FIRST_LIVE_REPLICA = "unclean-first-live-replica", "unclean: first live replica"
    UNCLEAN_LONGEST_LOG = "unclean-longest-log", "unclean: longest log"

    # --- no leader ---
    NO_LIVE_REPLICA = "no-live-replica", "no live replica"
    NO_LIVE_ISR_MEMBER = "no-live-isr-member", "no live ISR member"
    NO_LIVE_ISR_MEMBER_NOR_ELIGIBLE = (
        "no-live-isr-member-nor-eligible", "no live ISR member, nor an eligible replica",
    )  # fmt: skip
    NO_LIVE_ISR_MEMBER_OF_TARGET = (
        "no-live-isr-member-of-target", "no live ISR member among the target replicas",
    )  # fmt: skip
    NO_LIVE_ISR_MEMBER_THAT_STAYS = (
        "no-live-isr-member-that-stays", "no live ISR member that is not shutting down",
    )  # fmt: skip
    PREFERRED_REPLICA_NOT_IN_SYNC = (
        "preferred-replica-not-in-sync", "the preferred replica is offline or not in the ISR",
    )  # fmt: skip

    # --- the ISR and the leader epoch ---
    OFFLINE_REPLICA_LEAVES_ISR = "offline-replica-leaves-isr", "offline replica leaves the ISR"
    LAST_ISR_MEMBER_STAYS = "last-isr-member-stays", "last ISR member stays in the ISR"
    EPOCH_FOR_ASSIGNMENT = "epoch-for-assignment", "new leader epoch for a new assignment"
    EPOCH_FOR_RETURNED_REPLICA = (
        "epoch-for-returned-replica",
        "new leader epoch: a replica died since the last ISR change",
    )

    # --- what a leader requests (AlterPartition) ---
    ISR_EXPANDS = "isr-expands", "leader requests: ISR expands"
    ISR_SHRINKS = "isr-shrinks", "leader requests: ISR shrinks"
    RECOVERED = "recovered", "leader requests: recovered"

    @property
    def unclean(self) -> bool:
        """Whether the leader was elected from outside the ISR, so that records may be lost."""
        return self in {Rule.UNCLEAN_FIRST_LIVE_REPLICA, Rule.UNCLEAN_LONGEST_LOG}


_BY_TEXT: dict[str, Rule] = {
    text: rule
    for rule in Rule
    for text in (rule.value, rule.words, rule.words.replace("leader requests", "leader asks"))
}


def rule_named(text: str) -> Rule | None:
    """Return the rule that a journal names, in whichever version; None: not one of these."""
    return _BY_TEXT.get(text)


def words_of(text: str) -> str:
    """Return a rule as a journal names it in words; a text that is none of these as it is."""
    rule = _BY_TEXT.get(text)
    return text if rule is None else rule.words
