"""Procedures: the controller's whole procedures, run again over what the journal says they read.

A decider. Who may call: `replay`. A term is followed from a snapshot on: each event's procedure is
given its inputs from the event's line, each effect its response from the journal, and every line it
writes is compared with the journal's, in order. So a step that is left out, added or swapped is a
difference, though each single decision is right. Invariants: nothing is compared where lines are
missing or a journal holds no inputs (those of older versions): not until the next snapshot; the
lines of one event are held together, of a larger one than `MAX_LINES` none; an event that was cut
short (the end of its term or of the journal) is compared as far as it goes; after a difference the
context follows the journal's lines; where it cannot, for they name what cannot be (damage that
leaves a line valid), that is a difference, and nothing is compared until the next snapshot.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ottla.controller import effects as e
from ottla.controller import snapshot
from ottla.controller.effects import Effect, Steps
from ottla.controller.eligibility import Eligibility
from ottla.controller.journal import Journal
from ottla.controller.plan import Decision
from ottla.controller.state_changes import CHANGES_A_LINE, Settings, StateChanges, slices
from ottla.explain.followed import Followed
from ottla.explain.lines import Entry, parse
from ottla.explain.starts import Procedure, start_of
from ottla.model import journal_schema as journaled
from ottla.model.cluster import LeaderAndIsr, LeaderIsrAndControllerEpoch
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition

MAX_LINES = 300_000
SHOWN = 300
"""Characters of a line that a difference shows."""
NOTHING = "nothing more"
_ARGUMENTS = msgspec.json.Encoder()


FAILS = "fails: "


def failure(error: Exception) -> str:
    """Return what today's rules are said to do where they raise."""
    return f"{FAILS}{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class ProcedureDifference:
    """The first line of an event that its procedure would not have written."""

    entry: Entry
    event: str
    journal: str
    now: str


class _Differs(Exception):  # noqa: N818 - an outcome, not an error
    def __init__(self, journal: str, now: str) -> None:
        super().__init__(journal, now)
        self.journal, self.now = journal, now


class _CutShort(Exception):  # noqa: N818 - an outcome, not an error
    """The journal has no more of this event."""


class _NoClock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return -1


@dataclass(slots=True)
class Procedures:
    """Takes a journal's lines; counts the procedures run again, keeps what differs."""

    checked: int = 0
    differences: list[ProcedureDifference] = field(default_factory=list)
    _followed: Followed | None = None
    _journal: "_Written | None" = None
    _event: tuple[int, int] = (-1, -1)
    _lines: list[Entry] = field(default_factory=list)
    _elected: Entry | None = None
    """The first line of the snapshot of a controller failover, if the lines are what follows it."""

    def take(self, entry: Entry) -> None:
        """Take one line."""
        line = entry.line
        event = (line.epoch, line.cause)
        resigned = isinstance(entry.facts, journaled.Resigned)
        if event != self._event or resigned:
            self._run(cut_short=resigned or line.epoch != self._event[0])
            self._event = event
        if resigned:
            self._lose()
        elif isinstance(line, journaled.SnapshotLine):
            with self._failure_is_difference(entry):
                self._take_snapshot(entry)
        elif self._followed is not None:
            self._lines.append(entry)
            if len(self._lines) > MAX_LINES:
                self._lose()

    def lines_missing(self) -> None:
        """Take note that the journal has a gap here."""
        self._lose()

    def finish(self) -> None:
        """Compare what is left: the journal ends here."""
        self._run(cut_short=True)

    def _lose(self) -> None:
        self._followed, self._lines, self._elected = None, [], None

    @contextlib.contextmanager
    def _failure_is_difference(self, entry: Entry) -> Iterator[None]:
        """Run what relies on lines, of which `entry` is the first; its failure is a difference."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever cannot be may be named
            self._lose()
            found = ProcedureDifference(entry, _name(entry), _text(entry), failure(error))
            self.differences.append(found)

    def _take_snapshot(self, entry: Entry) -> None:
        facts = entry.facts
        if isinstance(facts, journaled.ClusterFacts):
            self._lines = []
            self._elected = entry if facts.reason == snapshot.ELECTED else None
            if self._elected is not None or self._followed is None:
                if facts.delete_topics is None:
                    self._lose()
                    return
                self._followed = Followed.begin(entry.line.epoch, facts)
                settings = Settings(
                    entry.line.controller,
                    "",
                    delete_topics=facts.delete_topics,
                    eligible_replicas=facts.eligible_replicas,
                )
                self._journal = _Written(self._followed, settings, entry.line.epoch)
        elif isinstance(facts, journaled.TopicFacts) and self._followed is not None:
            self._followed.take_topic(facts)

    def _run(self, *, cut_short: bool) -> None:
        """Run the procedures of the event whose lines are complete."""
        lines, self._lines = self._lines, []
        followed, written = self._followed, self._journal
        elected, self._elected = self._elected, None
        first = lines[0] if lines else elected
        if followed is None or written is None or first is None:
            return
        followed.loaded = True
        with self._failure_is_difference(first):
            run = _Run(followed, written, lines, self._event[1], cut_short=cut_short)
            self._compare(run, lines, elected)

    def _compare(self, run: "_Run", lines: Sequence[Entry], elected: Entry | None) -> None:
        followed = run.followed
        name = _name(lines[0]) if elected is None else "Elected"
        try:
            if elected is not None:
                self.checked += 1
                run.procedure(followed.failover(lines))
            while (entry := run.next) is not None:
                start = start_of(followed.context, entry)
                if start is not None:
                    self.checked += 1
                    run.procedure(start)
                    if run.next is entry:
                        raise _Differs(_text(entry), NOTHING)
                elif run.started:
                    raise _Differs(_text(entry), NOTHING)
                else:
                    run.skip()
        except _CutShort:
            self._lose()
        except _Differs as found:
            entry = run.next or (lines[-1] if lines else elected)
            if entry is not None:
                self.differences.append(ProcedureDifference(entry, name, found.journal, found.now))
            followed.follow(lines)


class _Written:
    """Writes the lines a procedure writes, and hands each over for comparison."""

    def __init__(self, followed: Followed, settings: Settings, epoch: int) -> None:
        self.followed = followed
        self.settings = settings
        self.eligibility = Eligibility(followed.context, enabled=settings.eligible_replicas)
        self.lines: list[Entry] = []
        self.journal = Journal(self._line, _NoClock(), settings.controller_id, epoch)

    def _line(self, raw: bytes) -> None:
        self.lines.append(parse(raw, "", 0))

    def take(self) -> list[Entry]:
        lines = self.lines[:]
        self.lines.clear()
        return lines


class _Run:
    """The procedures of one event, and how far the journal agrees with them."""

    def __init__(
        self,
        followed: Followed,
        written: _Written,
        lines: Sequence[Entry],
        cause: int,
        *,
        cut_short: bool,
    ) -> None:
        self.started = False
        self.followed = followed
        self._written = written
        self._lines = lines
        self._cause = cause
        self._cut_short = cut_short
        self._at = 0
        self._decisions: dict[TopicPartition, list[journaled.DecisionLine]] = {}
        self._read: dict[TopicPartition, list[tuple[int, Any]]] = {}
        for number, entry in enumerate(lines):
            if isinstance(entry.line, journaled.DecisionLine):
                tp = journaled.partition_of(entry.line.partition)
                self._decisions.setdefault(tp, []).append(entry.line)
            elif isinstance(entry.facts, journaled.StatesRead):
                for text, state in entry.facts.states.items():
                    tp = journaled.partition_of(text)
                    self._read.setdefault(tp, []).append((number, state))
        for found in self._decisions.values():
            found.reverse()

    @property
    def next(self) -> Entry | None:
        """Return the journal's next line that was not compared yet."""
        return self._lines[self._at] if self._at < len(self._lines) else None

    def skip(self) -> None:
        self._at += 1

    def procedure(self, procedure: Procedure) -> None:
        """Run one procedure to its end. _Differs, _CutShort."""
        self.started = True
        written = self._written
        changes = StateChanges(
            self.followed.context, written.settings, written.eligibility, self._cause
        )
        steps: Steps[Any] = procedure(changes)
        noted = 0
        try:
            effect = next(steps)
            while True:
                noted = self._note(effect, changes, noted)
                try:
                    response = self._respond(effect)
                except OttlaError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(response)
        except StopIteration:
            return
        except OttlaError:
            self._record(*changes.take_unrecorded())
        except (_Differs, _CutShort):
            raise
        except Exception as error:  # a rule that fails is what is looked for
            found = self.next  # that it fails is no matter of lines to come
            journal = NOTHING if found is None else _text(found)
            raise _Differs(journal, failure(error)) from error

    def _note(self, effect: Effect[Any], changes: StateChanges, noted: int) -> int:
        """Take decisions that were made off those to come; return how many are not recorded."""
        recorded = isinstance(effect, e.Send | e.RecordChanges)
        decisions = effect.decisions if recorded else changes.decisions  # type: ignore[attr-defined]
        for decision, outcome in decisions[noted:]:
            left = self._decisions.get(decision.partition)
            if left and (left[-1].election, left[-1].outcome) == (decision.kind, outcome):
                left.pop()
        return 0 if recorded else len(decisions)

    # --- effects ----------------------------------------------------------------------------

    def _respond(self, effect: Effect[Any]) -> Any:
        found = self.next
        facts = None if found is None else found.facts
        if isinstance(facts, journaled.EffectPerformed) and _is_of(facts, effect):
            self.skip()
            if facts.error is not None:
                raise OttlaError(facts.error)
            return effect.from_journal(facts.result)
        if effect.recorded:
            raise self._difference(_effect_text(effect))
        match effect:
            case e.Record(event):
                self._written.journal.event(self._cause, event)
                self._compare()
            case e.Send(batch, changed, decisions):
                sent = [request for request in batch.requests() if request is not None]
                self._record(changed, decisions)
                for request in sent:
                    self._written.journal.request(
                        self._cause, request.broker, request.api_key, request.summary
                    )
                self._compare()
            case e.RecordChanges(changed, decisions):
                self._record(changed, decisions)
            case e.RecordSnapshot():
                return 0
            case e.ReadStates(partitions):
                return dict(self._states(partitions))
            case e.CreateStates(states):
                return {tp: self._error_of(tp) for tp in states}
            case e.UpdateStates(states):
                return self._updated(states)
        return None

    def _record(
        self, changed: Sequence[e.Change], decisions: Sequence[tuple[Decision, str]]
    ) -> None:
        journal = self._written.journal
        for some in slices(changed, CHANGES_A_LINE):
            journal.state_changes(self._cause, some)
        for decision, outcome in decisions:
            journal.decision(self._cause, decision, outcome)
        self._compare()

    def _states(
        self, partitions: Sequence[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, LeaderIsrAndControllerEpoch]]:
        """Yield what was read: by a line of its own, by the next decision, or as it was known."""
        context = self.followed.context
        for tp in partitions:
            read = [state for number, state in self._read.get(tp, ()) if number >= self._at]
            decision = self._next_decision(tp)
            known = context.leadership.get(tp)
            if read:
                if read[0] is not None:
                    yield tp, LeaderIsrAndControllerEpoch(read[0][1], read[0][0])
            elif decision is not None and decision.before is not None:
                yield tp, LeaderIsrAndControllerEpoch(decision.before, context.epoch)
            elif known is not None:
                yield tp, known

    def _next_decision(self, tp: TopicPartition) -> journaled.DecisionLine | None:
        left = self._decisions.get(tp)
        return left[-1] if left else None

    def _error_of(self, tp: TopicPartition) -> OttlaError | None:
        decision = self._next_decision(tp)
        if decision is None or not decision.outcome.startswith("failed: "):
            return None
        return OttlaError(decision.outcome.removeprefix("failed: "))

    def _updated(self, states: Any) -> e.UpdateResult:
        result = e.UpdateResult({}, [])
        for tp, state in states.items():
            decision = self._next_decision(tp)
            outcome = "written" if decision is None else decision.outcome
            refusal = outcome.removeprefix("refused: ")
            if outcome == "decided again" or refusal == ErrorCode.INVALID_UPDATE_VERSION.name:
                result.retry.append(tp)
            elif outcome.startswith("failed: "):
                result.finished[tp] = OttlaError(outcome.removeprefix("failed: "))
            elif refusal != outcome:
                result.finished[tp] = OttlaError(refusal, ErrorCode[refusal])
            else:
                result.finished[tp] = _next_version(state)
        return result

    # --- comparing --------------------------------------------------------------------------

    def _compare(self) -> None:
        for line in self._written.take():
            found = self.next
            if found is None or _content(found) != _content(line):
                self._written.lines.clear()
                raise self._difference(_text(line))
            self.skip()

    def _difference(self, now: str) -> Exception:
        found = self.next
        if found is None and self._cut_short:
            return _CutShort()
        return _Differs(NOTHING if found is None else _text(found), now)


def _next_version(state: LeaderAndIsr) -> LeaderAndIsr:
    return LeaderAndIsr(
        state.leader, state.leader_epoch, state.isr, state.partition_epoch + 1, state.recovery_state
    )


def _is_of(facts: journaled.EffectPerformed, effect: Effect[Any]) -> bool:
    if facts.effect != type(effect).__name__:
        return False
    arguments = msgspec.json.decode(_ARGUMENTS.encode(effect.arguments() or None))
    return bool(facts.arguments == arguments)


def _content(entry: Entry) -> Any:
    """Return what a line says, apart from when and by whom it was written."""
    line = entry.line
    if isinstance(line, journaled.EventLine):
        return line.event, entry.facts
    return msgspec.structs.replace(line, ts=-1, controller=-1)


def _name(entry: Entry) -> str:
    line = entry.line
    return line.event if isinstance(line, journaled.EventLine) else str(line.__struct_config__.tag)


def _text(entry: Entry) -> str:
    """Return a line for a person."""
    line = entry.line
    match line:
        case journaled.SnapshotLine():
            return f"snapshot of a controller: {line.part}"[:SHOWN]
        case journaled.EventLine():
            if isinstance(entry.facts, journaled.EffectPerformed):
                arguments = _ARGUMENTS.encode(entry.facts.arguments).decode()
                return f"{entry.facts.effect} {arguments}"[:SHOWN]
            inputs = _ARGUMENTS.encode(entry.facts or line.inputs).decode()
            return f"{line.event} {inputs}"[:SHOWN]
        case journaled.StateChangeLine():
            return f"{line.before} -> {line.after}: {', '.join(line.subjects)}"[:SHOWN]
        case journaled.DecisionLine():
            return f"{line.partition} {line.election}: {line.rule} [{line.outcome}]"[:SHOWN]
        case journaled.RequestLine():
            return f"request of API {line.api} to broker {line.broker}: {line.what}"[:SHOWN]
    return type(line).__name__


def _effect_text(effect: Effect[Any]) -> str:
    arguments = _ARGUMENTS.encode(effect.arguments() or None).decode()
    return f"{type(effect).__name__} {arguments}"[:SHOWN]
