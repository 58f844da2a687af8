"""Rules: what decided, in words.

A decider. Who may call: `history`. Invariant: the words name the numbers of the line itself; a rule
this version does not know is named as it is written.
"""

from collections.abc import Callable, Mapping

from ottla.model.journal_schema import (
    DecisionLine,
)


def in_words(line: DecisionLine) -> str:
    """Say why a decision came out as it did."""
    words = (_NO_LEADER if line.after is None else _RULES).get(line.rule)
    text = line.rule if words is None else words(line)
    if line.election == "alter-partition":
        text = _asked(line, text)
    elif line.outcome != "written":
        text += f" [{line.outcome}]" if line.outcome != f"failed: {line.rule}" else ""
    return text


PASSED = ("leader requests: ", "leader asks")
"""How the rules of proposals begin that were to be written; the second in older journals."""


def rejected_in_words(rejected: tuple[tuple[int, str], ...]) -> str:
    """Say who else was looked at, and why they were not taken."""
    if not rejected:
        return ""
    return "rejected: " + ", ".join(f"{broker} ({why})" for broker, why in rejected)


def _asked(line: DecisionLine, rule: str) -> str:
    proposed = [] if line.asked is None else list(line.asked.isr)
    if line.outcome == "written":
        return f"{rule.removeprefix('leader requests: ')} to {proposed}"
    refusal = line.outcome.removeprefix("refused: ")
    if rule.startswith(PASSED):
        ineligible = refusal == "INELIGIBLE_REPLICA"
        why = "a newcomer registered anew" if ineligible else "the state znode has another version"
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


_RULES: Mapping[str, Callable[[DecisionLine], str]] = {
    "first live replica": _new,
    "first live ISR member": lambda d: (
        f"{_leader(d)} is the first live member of the ISR in the order of assignment "
        f"{list(d.replicas)}"
    ),
    "unclean: first live replica": lambda d: (
        f"no member of the ISR {_isr(d)} lives and unclean elections are allowed: {_leader(d)} is "
        f"the first live replica of {list(d.replicas)}; {_lost(d)}"
    ),
    "unclean: longest log": lambda d: (
        f"no member of the ISR {_isr(d)} lives and unclean elections are allowed: {_leader(d)} has "
        f"the longest log{_ends(d)}; {_lost(d)}"
    ),
    "first live eligible replica": lambda d: (
        f"no member of the ISR {_isr(d)} lives with what it had, but {_leader(d)} left it below "
        "min.insync.replicas: it has every acknowledged record"
    ),
    "first live ISR member of the target": lambda d: (
        f"{_leader(d)} is the first live member of the ISR among the target replicas "
        f"{list(d.assignment.target)}"
    ),
    "preferred replica": lambda d: f"{_leader(d)} is the preferred replica, lives and is in sync",
    "first live ISR member that stays": lambda d: (
        f"{_leader(d)} is the first live member of the ISR in the order of assignment "
        f"{list(d.replicas)} that is not shutting down"
    ),
    "offline replica leaves the ISR": lambda d: f"{_offline(d)} and leaves the ISR",
    "last ISR member stays in the ISR": lambda d: (
        f"{_offline(d)}; as the last member it stays in the ISR: it alone has every acknowledged "
        "record"
    ),
    "new leader epoch for a new assignment": lambda d: (
        f"a new leader epoch goes to the replicas of the assignment {list(d.replicas)}"
    ),
    "new leader epoch: a replica died since the last ISR change": lambda _: (
        "a new leader epoch: the leader asked for a replica that has died since, and did not say "
        "by which of its lives"
    ),
}

_NO_LEADER: Mapping[str, Callable[[DecisionLine], str]] = {
    "no live replica": lambda d: f"none of the replicas {list(d.replicas)} lives: no leader",
    "no live ISR member": lambda d: (
        f"no member of the ISR {_isr(d)} lives, and unclean elections are not allowed: no leader"
    ),
    "no live ISR member, nor an eligible replica": lambda d: (
        f"no member of the ISR {_isr(d)} lives with what it had, and of those who have every "
        f"acknowledged record, {list(d.eligible)}, none lives: no leader until one of them does"
    ),
    "no live ISR member among the target replicas": lambda d: (
        f"none of the target replicas {list(d.assignment.target)} is live and in sync"
    ),
    "no live ISR member that is not shutting down": lambda d: (
        f"no other member of the ISR {_isr(d)} could lead: the leader stays until it is gone"
    ),
}
