"""Rules about clients: consumer groups that do not get on, transactions that do not end.

A decider. Invariants: facts in, findings out; one finding for each rule; that a group does not get
on is said only after it was watched long enough; a name of a group, which is whatever a client
chose, is one word for a shell in the commands to copy.
"""

from collections.abc import Iterator
from shlex import quote

from ottla.admin.diagnosis.facts import Facts, Finding, GroupFacts, Severity, some
from ottla.model.printable import plural

LONG_ENOUGH_S = 15.0
"""Consumers commit every 5 s by default; a group is judged by no shorter look."""
REBALANCING = ("PreparingRebalance", "CompletingRebalance")


def findings(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with groups and transactions."""
    yield from _hanging(facts)
    yield from _rebalancing(facts)
    yield from _stuck(facts)
    yield from _without_members(facts)
    yield from _deleted_unread(facts)


def _hanging(facts: Facts) -> Iterator[Finding]:
    if facts.hanging:
        commands = [
            ["txn", "abort", h.partition.topic, str(h.partition.partition), "--start-offset",
             str(h.start_offset), "--yes"]
            for h in facts.hanging
        ]  # fmt: skip
        first = facts.hanging[0]
        yield Finding(
            "hanging-transaction", Severity.error, [str(h.partition) for h in facts.hanging],
            f"{first.partition}: a transaction of producer {first.producer_id} is open since "
            f"offset {first.start_offset}, for {first.age_s:.0f} s, and unknown to its coordinator",
            "consumers with read_committed wait at its first record until it ends",
            " ".join(["ottla", *commands[0]]),
            commands,
        )  # fmt: skip


def _rebalancing(facts: Facts) -> Iterator[Finding]:
    found = [
        name
        for name, group in facts.groups.items()
        if len(group.states) > 1 and all(state in REBALANCING for state in group.states)
    ]
    if found:
        yield Finding(
            "group-rebalancing", Severity.warning, found,
            f"group {some(found)}: in {facts.groups[found[0]].states[-1]} for "
            f"{facts.groups[found[0]].watched_s:.0f} s",
            "while a group rebalances no member reads; it waits for those that do not rejoin, up "
            "to their max.poll.interval.ms",
            f"ottla groups describe {quote(found[0])}: stop or mend the member that does not poll",
        )  # fmt: skip


def _stuck(facts: Facts) -> Iterator[Finding]:
    found = {
        name: _lag(group)
        for name, group in facts.groups.items()
        if group.members and not group.moved and group.watched_s >= LONG_ENOUGH_S
        and group.states[-1] == "Stable" and _lag(group) > 0
    }  # fmt: skip
    if found:
        name, lag = next(iter(found.items()))
        yield Finding(
            "group-stuck", Severity.warning, list(found),
            f"group {some(list(found))}: {name} is "
            f"{plural(lag, 'record')} behind and committed nothing in "
            f"{facts.groups[name].watched_s:.0f} s",
            "a member that has partitions but does not commit is blocked, or fails at one record",
            f"ottla groups describe {quote(name)}: look at the member of the partition that does "
            "not move",
        )  # fmt: skip


def _without_members(facts: Facts) -> Iterator[Finding]:
    found = {
        name: _lag(group)
        for name, group in facts.groups.items()
        if group.states[-1] == "Empty" and _lag(group) > 0
    }
    if found:
        name, lag = next(iter(found.items()))
        yield Finding(
            "group-without-members", Severity.risk, list(found),
            f"group {some(list(found))}: no members; {name} is {plural(lag, 'record')} behind",
            "records that are not read are deleted by retention",
            "start its consumers, or, if it is not used any more: ottla groups delete "
            f"{quote(name)}",
        )  # fmt: skip


def _deleted_unread(facts: Facts) -> Iterator[Finding]:
    found = {
        name: lost
        for name, group in facts.groups.items()
        if (lost := [tp for tp, (done, start, _) in group.offsets.items() if done < start])
    }
    if found:
        name, lost = next(iter(found.items()))
        committed, start, _ = facts.groups[name].offsets[lost[0]]
        yield Finding(
            "group-behind-log-start", Severity.warning, list(found),
            f"group {some(list(found))}: {name} committed offset {committed} of {lost[0]}, whose "
            f"log begins at {start} now",
            "records were deleted before this group read them; its consumers start where "
            "auto.offset.reset says",
            "read more often than retention deletes, then: ottla groups reset-offsets "
            f"{quote(name)} --to earliest",
        )  # fmt: skip


def _lag(group: GroupFacts) -> int:
    return sum(max(0, end - max(done, start)) for done, start, end in group.offsets.values())
