"""Rules: what decided, in words.

A decider. Invariant: the words name the numbers of the line itself; a rule this version does not
know is named as it is written.
"""

from collections.abc import Callable, Mapping

from ottla.model.journal_schema import DecisionLine
from ottla.model.rules import Rule, words_of


def in_words(line: DecisionLine) -> str:
    """Say why a decision came out as it did."""
    words = _RULES.get(line.decided_by)
    text = words_of(line.rule) if words is None else words(line)
    if line.election == "alter-partition":
        text = _asked(line, text)
    elif line.outcome != "written":
        text += f" [{line.outcome}]" if line.outcome != f"failed: {words_of(line.rule)}" else ""
    return text


REQUESTED = frozenset({Rule.ISR_EXPANDS, Rule.ISR_SHRINKS, Rule.RECOVERED})
"""The rules of proposals that were to be written."""


def rejected_in_words(rejected: tuple[tuple[int, str], ...]) -> str:
    """Say who else was looked at, and why they were not taken."""
    if not rejected:
        return ""
    return "rejected: " + ", ".join(f"{broker} ({why})" for broker, why in rejected)


def _asked(line: DecisionLine, rule: str) -> str:
    proposed = [] if line.asked is None else list(line.asked.isr)
    if line.outcome == "written":
        return f"{rule.partition(': ')[2] or rule} to {proposed}"
    refusal = line.outcome.removeprefix("refused: ")
    if line.decided_by in REQUESTED:
        ineligible = refusal == "INELIGIBLE_REPLICA"
        why = (
            "a new member has registered again"
            if ineligible
            else "the state znode has another version"
        )
        return f"ISR {proposed} refused with {refusal}: {why}"
    return f"ISR {proposed} refused with {refusal}: {rule}"


def _new(line: DecisionLine) -> str:
    return f"the first of {list(line.replicas)} that lives leads, the live ones are the ISR"


def _offline(line: DecisionLine) -> str:
    if line.broker in line.online:
        return f"the replica on broker {line.broker} is stopped"
    if line.broker in line.shutting_down:
        return f"broker {line.broker} is shutting down"
    return f"broker {line.broker} is offline"


def _leader(line: DecisionLine) -> int:
    return -1 if line.after is None else line.after.leader


def _isr(line: DecisionLine) -> list[int]:
    return [] if line.before is None else list(line.before.isr)


def _ends(line: DecisionLine) -> str:
    known = ", ".join(f"{b} ends at {end} in leader epoch {e}" for b, e, end in line.ends)
    return f" ({known})" if known else ""


def _lost(line: DecisionLine) -> str:
    """Say what an unclean election cost, as far as the replicas' log ends show it."""
    led = next((end for b, _, end in line.ends if b == _leader(line)), None)
    if led is None:
        return "records may be lost"
    known = {b for b, _, _ in line.ends}
    lost = [f"offsets {led} to {end - 1} of broker {b}" for b, _, end in line.ends if end > led]
    lost += [f"what broker {b} had from offset {led} on" for b in _isr(line) if b not in known]
    return f"lost: {', '.join(lost)}" if lost else "no record is known to be lost"


_RULES: Mapping[Rule | None, Callable[[DecisionLine], str]] = {
    Rule.FIRST_LIVE_REPLICA: _new,
    Rule.FIRST_LIVE_ISR_MEMBER: lambda d: (
        f"{_leader(d)} is the first live member of the ISR in the order of assignment "
        f"{list(d.replicas)}"
    ),
    Rule.UNCLEAN_FIRST_LIVE_REPLICA: lambda d: (
        f"no member of the ISR {_isr(d)} lives and unclean elections are allowed: {_leader(d)} is "
        f"the first live replica of {list(d.replicas)}; {_lost(d)}"
    ),
    Rule.UNCLEAN_LONGEST_LOG: lambda d: (
        f"no member of the ISR {_isr(d)} lives and unclean elections are allowed: {_leader(d)} has "
        f"the longest log{_ends(d)}; {_lost(d)}"
    ),
    Rule.FIRST_LIVE_ELIGIBLE_REPLICA: lambda d: (
        f"no member of the ISR {_isr(d)} lives with what it had, but {_leader(d)} left it below "
        "min.insync.replicas: it has every acknowledged record"
    ),
    Rule.FIRST_LIVE_ISR_MEMBER_OF_TARGET: lambda d: (
        f"{_leader(d)} is the first live member of the ISR among the target replicas "
        f"{list(d.assignment.target)}"
    ),
    Rule.PREFERRED_REPLICA: lambda d: (
        f"{_leader(d)} is the preferred replica, lives and is in sync"
    ),
    Rule.FIRST_LIVE_ISR_MEMBER_THAT_STAYS: lambda d: (
        f"{_leader(d)} is the first live member of the ISR in the order of assignment "
        f"{list(d.replicas)} that is not shutting down"
    ),
    Rule.OFFLINE_REPLICA_LEAVES_ISR: lambda d: f"{_offline(d)} and leaves the ISR",
    Rule.LAST_ISR_MEMBER_STAYS: lambda d: (
        f"{_offline(d)}; as the last member it stays in the ISR: it alone has every acknowledged "
        "record"
    ),
    Rule.EPOCH_FOR_ASSIGNMENT: lambda d: (
        f"a new leader epoch goes to the replicas of the assignment {list(d.replicas)}"
    ),
    Rule.EPOCH_FOR_RETURNED_REPLICA: lambda _: (
        "a new leader epoch: the leader asked for a replica that has died since, and did not say "
        "by which of its lives"
    ),
    Rule.NO_LIVE_REPLICA: lambda d: f"none of the replicas {list(d.replicas)} lives: no leader",
    Rule.NO_LIVE_ISR_MEMBER: lambda d: (
        f"no member of the ISR {_isr(d)} lives, and unclean elections are not allowed: no leader"
    ),
    Rule.NO_LIVE_ISR_MEMBER_NOR_ELIGIBLE: lambda d: (
        f"no member of the ISR {_isr(d)} lives with what it had, and of those who have every "
        f"acknowledged record, {list(d.eligible)}, none lives: no leader until one of them does"
    ),
    Rule.NO_LIVE_ISR_MEMBER_OF_TARGET: lambda d: (
        f"none of the target replicas {list(d.assignment.target)} is live and in sync"
    ),
    Rule.NO_LIVE_ISR_MEMBER_THAT_STAYS: lambda d: (
        f"no other member of the ISR {_isr(d)} could lead: the leader stays until it is gone"
    ),
}
