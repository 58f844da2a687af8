"""Terms: who led a partition from when to when, and when no one did.

Invariants: pure. A leader that ended by its own line ended then; of one that fell silent only
bounds are known: not before its broker's last line, not after others took notice (its registration
went, another state was written, it restarted). So a gap has a shortest and a longest length, and
the true one, as clients felt it, lies between.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_known
from itertools import accumulate, chain, groupby
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.facts import OFFLINE, Brokers, Fact

LEADS, STEPPED_DOWN, REPLACED, DIED, DELETED = (
    "leads", "stepped down", "replaced", "died", "deleted",
)  # fmt: skip


class Term(msgspec.Struct, frozen=True, gc=False):
    """One broker's uninterrupted leadership, of one leader epoch or several.

    Where `ended_to_ms` is None, it led when the logs ended. Times are milliseconds since 1970.
    """

    life: int
    leader: int
    first_epoch: int
    last_epoch: int
    began_ms: int
    ended_from_ms: int | None
    ended_to_ms: int | None
    how: str
    own_word: bool
    """Whether the leader itself said, still in the same life, that it led until then."""
    topic_id: str | None = None
    offset: int | None = None
    """Where its first epoch begins in the log."""


class Gap(msgspec.Struct, frozen=True, gc=False):
    """No one led, for at least and at most so long; `end_ms` is None if no one did any more."""

    life: int
    after: int
    """Who led before."""
    next: int | None
    start_from_ms: int
    start_to_ms: int
    end_ms: int | None
    least_ms: int
    most_ms: int
    how: str
    """How the leader before ended."""


class State(msgspec.Struct, frozen=True, gc=False):
    """A leadership and ISR that someone spoke of, and when first."""

    life: int
    leader_epoch: int
    leader: int
    isr: str | None
    version: int | None
    time_ms: int
    controller_epoch: int | None


def states(facts: Iterable[Fact], own: Mapping[int, Sequence[Fact]]) -> list[State]:
    """Return leaderships and ISRs in order: by epoch, time and version; the earliest word counts.

    The order of `facts` plays no part: of two that were reported at the same time the older version
    comes first.
    """
    found: dict[object, tuple[Fact, int]] = {}
    roles = {e.LED, e.FOLLOWED, e.STOPPED}
    spoken = [f for f in facts if f.kind not in roles]
    journaled = {
        (f.life, f.leader_epoch) for f in spoken if f.kind == e.DECIDED and f.level == "JOURNAL"
    }
    for fact in chain(spoken, *own.values()):
        is_decided = fact.kind == e.DECIDED
        leader = fact.broker if fact.kind == e.LED else fact.leader
        epoch = fact.leader_epoch
        if leader is None or epoch is None or leader < -1:
            continue
        if is_decided and fact.level != "JOURNAL" and (fact.life, epoch) in journaled:
            continue
        # An ISR may shrink and grow back: each time it is decided counts.
        key = (fact.life, epoch, leader, fact.isr, fact.time_ms if is_decided else None)
        known = found.get(key)
        if known is None or _told_at(fact) < _told_at(known[0]):
            found[key] = fact, leader
    reported = [
        State(
            fact.life, fact.leader_epoch or 0, leader, fact.isr, fact.version, fact.time_ms,
            fact.epoch if fact.kind == e.DECIDED else None,
        )
        for fact, leader in found.values()
    ]  # fmt: skip
    return sorted(reported, key=_order)


def _told_at(fact: Fact) -> tuple[int, int]:
    return fact.time_ms, -1 if fact.version is None else fact.version


def _order(state: State) -> tuple[int, int, int, int, int, str]:
    version = -1 if state.version is None else state.version
    return (
        state.life, state.leader_epoch, state.time_ms, version, state.leader, state.isr or "",
    )  # fmt: skip


def isr_history(spoken: Sequence[State]) -> list[State]:
    """Return the states that have an ISR, each as long as it differs from the one before."""
    found: list[State] = []
    for state in spoken:
        if state.isr is None:
            continue
        before = found[-1] if found else None
        if (
            before is None
            or state.leader_epoch != before.leader_epoch
            or state.leader != before.leader
            or state.life != before.life
            or (state.isr != before.isr and _members(state.isr) != _members(before.isr))
        ):
            found.append(state)
    return found


def _members(isr: str | None) -> frozenset[str]:
    return frozenset((isr or "").split(","))


def terms(
    facts: Sequence[Fact],
    own: Mapping[int, Sequence[Fact]],
    spoken: Sequence[State],
    marks: Sequence[int],
    brokers: Brokers,
) -> list[Term]:
    """Return all terms, by life, first epoch and time."""
    found: list[Term] = []
    known = _Known(spoken, marks, brokers, _before_what_followed(_offline(facts), spoken))
    for broker, lines in own.items():
        for place, fact in enumerate(lines):
            if fact.kind != e.LED or fact.leader_epoch is None:
                continue
            after = lines[place + 1] if place + 1 < len(lines) else None
            term = _term(broker, fact, after, known)
            goes_on = found and found[-1].leader == broker and found[-1].how == LEADS
            if goes_on and found[-1].ended_to_ms == fact.time_ms:
                term = replace(
                    term, first_epoch=found[-1].first_epoch, began_ms=found[-1].began_ms,
                    topic_id=found[-1].topic_id or term.topic_id, offset=found[-1].offset,
                )  # fmt: skip
                found.pop()
            found.append(term)
    found += _of_silent_leaders(found, replace_known(known, offline=()), own)
    return sorted(found, key=lambda t: (t.life, t.first_epoch, t.began_ms))


@dataclass(frozen=True, slots=True)
class _Known:
    """What others say, by which the term of a leader that fell silent ends."""

    spoken: Sequence[State]
    marks: Sequence[int]
    """When lives begin, as of `in_lives`."""
    brokers: Brokers
    offline: Sequence["_Offline"]
    """When a controller called the partition offline, in order."""

    def was_offline(self, term: Term) -> list[int]:
        """Return when the partition was called offline after a term had begun, the first time."""
        times = [
            mark.time_ms
            for mark in self.offline
            if mark.time_ms >= term.began_ms
            and (mark.life != term.life or mark.until is None or term.last_epoch < mark.until)
        ]
        return times[:1]


class _Offline(NamedTuple):
    """A controller's word that no one led, until the leader epoch `until` that it gave then.

    It is written after the decision: a leader may have begun before that time.
    """

    time_ms: int
    life: int
    until: int | None


def _offline(facts: Iterable[Fact]) -> list[_Offline]:
    """Return all such words; the order of lines, not time, says which decision follows."""
    ruled = sorted(
        (f for f in facts if f.kind in {e.MOVED, e.DECIDED}), key=lambda f: (f.file, f.place)
    )
    found = []
    for _, lines in groupby(ruled, key=lambda f: f.file):
        following: dict[int, Fact] = {}
        waiting: list[tuple[Fact, Fact | None]] = []
        for fact in reversed(list(lines)):
            decided = fact if fact.kind == e.DECIDED and fact.leader_epoch is not None else None
            if decided is not None:
                found += [_ended(line, decided, later) for line, later in waiting]
                waiting = []
                following[fact.life] = decided
            if fact.before == OFFLINE and decided is not None:
                found.append(_ended(fact, decided, None))
            elif fact.before == OFFLINE:
                waiting.append((fact, following.get(fact.life)))
            elif fact.after == OFFLINE:
                found.append(_ended(fact, None, following.get(fact.life)))
        found += [_ended(line, None, later) for line, later in waiting]
    return found


def _ended(line: Fact, earlier: Fact | None, later: Fact | None) -> _Offline:
    """Return the mark of a line: what it says ended by the decision nearest to it, if any."""
    nearest = min(
        (fact for fact in (earlier, later) if fact is not None),
        key=lambda fact: abs(fact.time_ms - line.time_ms),
        default=None,
    )
    until = None if nearest is None else nearest.leader_epoch
    return _Offline(line.time_ms, line.life, until)


def _before_what_followed(marks: Iterable[_Offline], spoken: Sequence[State]) -> list[_Offline]:
    """Return the marks, none later than what others said of the epochs that ended it.

    A new leader may write its line before a controller that has little CPU writes its own.
    """
    known: dict[int, tuple[list[int], list[int]]] = {}
    for life, some in groupby(spoken, key=lambda state: state.life):
        of_life = list(some)
        earliest = list(accumulate((s.time_ms for s in reversed(of_life)), min))
        known[life] = [s.leader_epoch for s in of_life], earliest[::-1]
    found = []
    for mark in marks:
        epochs, earliest = known.get(mark.life, ([], []))
        place = len(epochs) if mark.until is None else bisect_left(epochs, mark.until)
        time_ms = min([mark.time_ms, *earliest[place : place + 1]])
        found.append(mark._replace(time_ms=time_ms))
    return sorted(found, key=lambda mark: mark.time_ms)


def _term(broker: int, fact: Fact, after: Fact | None, known: _Known) -> Term:
    """Return the term of one line; `how` is LEADS with an end where the next line continues it."""
    assert fact.leader_epoch is not None
    epoch = fact.leader_epoch
    if (
        after is not None
        and after.life == fact.life
        and not _began_anew(broker, fact, after, known.brokers)
    ):
        same = after.previous is None or after.previous == fact.leader_epoch
        how = LEADS if after.kind == e.LED else STEPPED_DOWN
        word = same and after.previous is not None
        return Term(
            fact.life, broker, epoch, epoch, fact.time_ms, after.time_ms, after.time_ms, how, word,
            fact.topic_id, fact.offset,
        )  # fmt: skip
    term = Term(
        fact.life, broker, epoch, epoch, fact.time_ms, None, None, LEADS, own_word=False,
        topic_id=fact.topic_id, offset=fact.offset,
    )  # fmt: skip
    return _silent(term, after, known)


def _began_anew(broker: int, fact: Fact, after: Fact, brokers: Brokers) -> bool:
    """Return whether the broker died between two of its lines."""
    if after.previous is not None:
        return after.previous < 0
    return any(fact.time_ms < t <= after.time_ms for t in brokers.gone.get(broker, ()))


def _silent(term: Term, after: Fact | None, known: _Known) -> Term:
    """End a term whose leader does not say so."""
    marks, brokers = known.marks, known.brokers
    others = [
        s for s in known.spoken
        if s.life == term.life and s.leader_epoch > term.last_epoch and s.leader != term.leader
    ]  # fmt: skip
    replaced = min((s.time_ms for s in others), default=None)
    later = [t for t in brokers.gone.get(term.leader, ()) if t >= term.began_ms]
    died = later[:1] + known.was_offline(term)
    if after is not None and after.life == term.life:
        died.append(after.time_ms)  # where it began anew
    ends = [t for t in (*died, replaced) if t is not None]
    deleted = marks[term.life] if term.life < len(marks) else None
    if deleted is not None and not any(t < deleted for t in ends):
        return replace(term, ended_from_ms=term.began_ms, ended_to_ms=deleted, how=DELETED)
    if not ends:
        return term
    end = max(min(ends), term.began_ms)
    # What came long after others had taken over is another story: the replica was moved away.
    is_death = any(replaced is None or t <= replaced for t in died) or (
        bool(others) and min(others, key=lambda s: s.leader_epoch).leader == -1
    )
    if not is_death:
        return replace(term, ended_from_ms=end, ended_to_ms=end, how=REPLACED)
    sign = brokers.signs(term.leader, end)
    start = term.began_ms if sign is None else min(max(sign, term.began_ms), end)
    return replace(term, ended_from_ms=start, ended_to_ms=end, how=DIED)


def _of_silent_leaders(
    reported: Sequence[Term], known: _Known, own: Mapping[int, Sequence[Fact]]
) -> list[Term]:
    """Return terms of leaders that have no line about it: their logs are missing, or were cut."""
    found: list[Term] = []
    covered = {
        (t.life, epoch) for t in reported for epoch in range(t.first_epoch, t.last_epoch + 1)
    }
    # A broker that has lines about this partition has them about all of its terms since then.
    since = {broker: min(f.time_ms for f in lines) for broker, lines in own.items()}
    for state in known.spoken:
        key = (state.life, state.leader_epoch)
        if state.leader < 0 or key in covered:
            continue
        covered.add(key)
        if state.leader in since and since[state.leader] <= state.time_ms:
            continue  # it was to lead, and did not
        before = found[-1] if found else None
        if before is not None and (before.life, before.leader) == (state.life, state.leader):
            if (
                before.how == LEADS
                or before.ended_to_ms is None
                or before.ended_to_ms >= state.time_ms
            ):
                found.pop()
                began, first = before.began_ms, before.first_epoch
            else:
                began, first = state.time_ms, state.leader_epoch
        else:
            began, first = state.time_ms, state.leader_epoch
        term = Term(
            state.life, state.leader, first, state.leader_epoch, began, None, None, LEADS,
            own_word=False,
        )  # fmt: skip
        found.append(_silent(term, None, known))
    return found


def gaps(found: Sequence[Term], brokers: Brokers) -> list[Gap]:
    """Return the intervals without a leader between terms, and after the last one."""
    gone: list[Gap] = []
    for place, term in enumerate(found):
        if term.ended_to_ms is None or term.how == DELETED:
            continue
        assert term.ended_from_ms is not None
        after = found[place + 1] if place + 1 < len(found) else None
        if after is not None and after.life != term.life:
            continue
        if after is None:
            end, least = None, brokers.last_ms - term.ended_to_ms
            most = brokers.last_ms - term.ended_from_ms
        else:
            end, least = after.began_ms, after.began_ms - term.ended_to_ms
            most = after.began_ms - term.ended_from_ms
        if most <= 0 or (least <= 0 and term.how != DIED):
            continue
        gone.append(
            Gap(
                term.life,
                term.leader,
                after.leader if after else None,
                term.ended_from_ms,
                min(term.ended_to_ms, end if end is not None else term.ended_to_ms),
                end,
                max(least, 0),
                most,
                term.how,
            )
        )
    return gone
