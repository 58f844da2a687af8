"""Rules about clients: consumer groups that do not get on, transactions that do not end.

A decider. Invariants: facts in, findings out; one finding for each rule; that a group does not get
on is said only after it was watched long enough; a name of a group, which is whatever a client
chose, is one word for a shell in the commands to copy.
"""

from collections.abc import Iterator, Mapping
from shlex import quote

from ottla.admin.diagnosis.facts import Facts, Found, GroupFacts, finding
from ottla.model.printable import plural

LONG_ENOUGH_S = 15.0
"""Consumers commit every 5 s by default; a group is judged by no shorter look."""
REBALANCING = ("PreparingRebalance", "CompletingRebalance")


def _hanging(facts: Facts) -> Iterator[Found]:
    commands = [
        f"txn abort {h.partition.topic} {h.partition.partition} "
        f"--start-offset {h.start_offset} --yes".split()
        for h in facts.hanging
    ]
    for first in facts.hanging[:1]:
        yield finding(
            "hanging-transaction",
            [h.partition for h in facts.hanging],
            commands,
            first=first.partition,
            producer_id=first.producer_id,
            start_offset=first.start_offset,
            age_s=first.age_s,
        )


def _of_groups(name: str, facts: Facts, found: Mapping[str, int]) -> Iterator[Found]:
    """Yield a finding of groups, each with how many records it is behind."""
    for group, lag in list(found.items())[:1]:
        seen = facts.groups[group]
        yield finding(
            name,
            found,
            name=group,
            word=quote(group),
            lag=plural(lag, "record"),
            state=seen.states[-1],
            watched_s=seen.watched_s,
        )


def _rebalancing(facts: Facts) -> Iterator[Found]:
    found = {
        name: _lag(group)
        for name, group in facts.groups.items()
        if len(group.states) > 1 and all(state in REBALANCING for state in group.states)
    }
    yield from _of_groups("group-rebalancing", facts, found)


def _stuck(facts: Facts) -> Iterator[Found]:
    found = {
        name: _lag(group)
        for name, group in facts.groups.items()
        if group.members
        and not group.moved
        and group.watched_s >= LONG_ENOUGH_S
        and group.states[-1] == "Stable"
        and _lag(group) > 0
    }
    yield from _of_groups("group-stuck", facts, found)


def _without_members(facts: Facts) -> Iterator[Found]:
    found = {
        name: _lag(group)
        for name, group in facts.groups.items()
        if group.states[-1] == "Empty" and _lag(group) > 0
    }
    yield from _of_groups("group-without-members", facts, found)


def _deleted_unread(facts: Facts) -> Iterator[Found]:
    found = {
        name: lost
        for name, group in facts.groups.items()
        if (lost := [tp for tp, (done, start, _) in group.offsets.items() if done < start])
    }
    for name, lost in list(found.items())[:1]:
        committed, start, _ = facts.groups[name].offsets[lost[0]]
        yield finding(
            "group-behind-log-start",
            found,
            name=name,
            word=quote(name),
            committed=committed,
            partition=lost[0],
            start=start,
        )


def _lag(group: GroupFacts) -> int:
    return sum(max(0, end - max(done, start)) for done, start, end in group.offsets.values())


RULES = (_hanging, _rebalancing, _stuck, _without_members, _deleted_unread)
