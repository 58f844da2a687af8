"""Replayed term: what a controller's procedures work with where all results come from a journal.

A decider. The procedures, the journal and the outbox are the controller's own. `RecordedState`
returns what the journal says was read and written; each line that is written is compared with the
journal's next one; no request is delivered.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ottla.controller.cluster_state import ClusterState
from ottla.controller.context import Context, Settings
from ottla.controller.eligibility import Eligibility
from ottla.controller.found import States, Zxids
from ottla.controller.journal import Journal
from ottla.controller.outbox import Outbox
from ottla.controller.plan import Decision
from ottla.controller.state_changes import StateChanges
from ottla.explain.lines import Entry, parse
from ottla.model import journal_schema as journaled
from ottla.model.cluster import (
    Eligible,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    UpdateResult,
)
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.rules import words_of

T = TypeVar("T")

SHOWN = 300
"""Characters of a line that a difference shows."""
NOTHING = "nothing more"
_encode = msgspec.json.encode


class DiffersError(Exception):
    """A procedure does something else than the journal says."""

    def __init__(self, journal: str, now: str) -> None:
        super().__init__(journal, now)
        self.journal, self.now = journal, now


class CutShortError(Exception):
    """The journal has no more of this event."""


class _NoClock:
    slice_s = 0.0

    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return -1


class EventLines:
    """The lines of one event, and how far the procedures agree with them."""

    def __init__(self, lines: Sequence[Entry], *, cut_short: bool) -> None:
        self._lines = lines
        self._cut_short = cut_short
        self._at = 0
        self._decisions: dict[TopicPartition, list[tuple[int, journaled.DecisionLine]]] = {}
        self._read: dict[TopicPartition, list[tuple[int, Any]]] = {}
        self.found: dict[TopicPartition, journaled.PartitionFacts] = {}
        """What a snapshot among the lines says."""
        for number, entry in enumerate(lines):
            facts = entry.facts
            if isinstance(entry.line, journaled.DecisionLine):
                tp = journaled.partition_of(entry.line.partition)
                self._decisions.setdefault(tp, []).append((number, entry.line))
            elif isinstance(facts, journaled.StatesRead):
                for text, state in facts.states.items():
                    tp = journaled.partition_of(text)
                    self._read.setdefault(tp, []).append((number, state))
            elif isinstance(facts, journaled.TopicFacts):
                for partition, found in facts.partitions.items():
                    self.found[TopicPartition(facts.topic, partition)] = found
        for decisions in self._decisions.values():
            decisions.reverse()

    @property
    def next(self) -> Entry | None:
        """Return the journal's next line that was not compared yet."""
        return self._lines[self._at] if self._at < len(self._lines) else None

    def skip(self) -> None:
        self._at += 1

    def compare(self, line: Entry) -> None:
        """Take a line that a procedure writes. DiffersError, CutShortError."""
        found = self.next
        if found is None or _content(found) != _content(line):
            raise self.difference(text_of(line))
        self.skip()

    def difference(self, now: str) -> Exception:
        found = self.next
        if found is None and self._cut_short:
            return CutShortError()
        return DiffersError(NOTHING if found is None else text_of(found), now)

    def performed(self, name: str, arguments: Any) -> journaled.EffectPerformed | None:
        """Take the line of a read or write, if it is the next one."""
        facts = None if self.next is None else self.next.facts
        if (
            not isinstance(facts, journaled.EffectPerformed)
            or facts.effect != name
            or facts.arguments != msgspec.json.decode(_encode(arguments))
        ):
            return None
        self.skip()
        if facts.error is not None:
            raise OttlaError(facts.error)
        return facts

    def made(self, decision: Decision, outcome: str) -> None:
        """Take a decision that was made off those to come."""
        left = self._decisions.get(decision.partition)
        if left and (left[-1][1].election, left[-1][1].outcome) == (decision.kind, outcome):
            left.pop()

    def decision(self, tp: TopicPartition) -> journaled.DecisionLine | None:
        """Return the next decision about a partition."""
        left = self._decisions.get(tp, [])
        while left and left[-1][0] < self._at:
            left.pop()
        return left[-1][1] if left else None

    def state_read(self, tp: TopicPartition) -> tuple[bool, Any]:
        """Return whether a line says what was read next of a partition, and what."""
        for number, state in self._read.get(tp, ()):
            if number >= self._at:
                return True, state
        return False, None


class ReplayedTerm:
    """Stands in for `controller.term.ControllerTerm`."""

    def __init__(self, context: Context, settings: Settings) -> None:
        self.context = context
        self.settings = settings
        self.store = self.zk = self.channels = self
        self.journal = Journal(self._line, _NoClock(), settings.controller_id, context.epoch)
        self.cluster = RecordedState(self)
        self.outbox = Outbox(self)  # type: ignore[arg-type]
        self.eligibility = Eligibility(context, self.cluster, enabled=settings.eligible_replicas)
        self.lines = EventLines((), cut_short=True)
        self.changes = self._changes(0)

    def _changes(self, cause: int) -> StateChanges:
        return StateChanges(
            self.context, self.settings, self.cluster, self.outbox, self.eligibility, cause
        )

    def run(
        self, procedure: Callable[[StateChanges], Awaitable[Any]], lines: EventLines, cause: int
    ) -> None:
        """Run a procedure over the lines of its event. DiffersError, CutShortError."""
        self.lines, self.changes, self.journal.cause = lines, self._changes(cause), cause
        steps = procedure(self.changes).__await__()
        try:
            for _ in steps:  # it has yielded to an event loop
                pass
        except OttlaError:
            self.changes.record_at_once()
        except (DiffersError, CutShortError):
            raise
        except Exception as error:  # a rule that fails is what is looked for
            found = lines.next  # a failure does not depend on later lines
            journal = NOTHING if found is None else text_of(found)
            raise DiffersError(journal, failure(error)) from error

    def _line(self, raw: bytes) -> None:
        self.lines.compare(parse(raw, "", 0))

    # --- what is not done -------------------------------------------------------------------

    def add(self, broker: object) -> None:
        """Open no channel."""

    def remove(self, broker: int) -> None:
        """Close no channel."""

    def send(self, request: object) -> None:
        """Send nothing."""

    def ignore(self, error: object) -> None:
        """Report nothing."""

    def check_controller(self) -> None:
        """Look at nothing."""


class RecordedState(ClusterState):
    """Returns what the journal says."""

    def __init__(self, term: ReplayedTerm) -> None:
        super().__init__(term)  # type: ignore[arg-type]
        self._replayed = term
        self._unrecorded: list[tuple[Decision, str]] = []
        self._noted = 0

    async def note(
        self,
        name: str,
        arguments: dict[str, Any] | None,
        call: Callable[[], Awaitable[T]],  # noqa: ARG002 - not made again
        read: Callable[[Any], T],
    ) -> T:
        """Return what the journal says of a call."""
        lines = self._replayed.lines
        performed = lines.performed(name, arguments)
        if performed is None:
            raise lines.difference(f"{name} {_encode(arguments).decode()}"[:SHOWN])
        return read(performed.result)

    # --- states of partitions ---------------------------------------------------------------

    def _lines(self, name: str) -> EventLines:
        """Return the event's lines, those of decisions that were made taken off; or fail again."""
        lines, decisions = self._replayed.lines, self._replayed.changes.decisions
        if decisions is not self._unrecorded:
            self._unrecorded, self._noted = decisions, 0
        for decision, outcome in decisions[self._noted :]:
            lines.made(decision, outcome)
        self._noted = len(decisions)
        lines.performed(name, None)
        return lines

    async def watch_registrations(self, brokers: Iterable[int]) -> None:  # noqa: ARG002
        """Leave no watch."""
        self._lines("WatchRegistrations")

    async def read_states(self, partitions: Sequence[TopicPartition]) -> States:
        """Return what was read: by a line of its own, by the next decision, or as it was known."""
        return dict(self._states(partitions, self._lines("ReadStates")))

    def _states(
        self, partitions: Sequence[TopicPartition], lines: EventLines
    ) -> Iterator[tuple[TopicPartition, LeaderIsrAndControllerEpoch]]:
        context = self._replayed.context
        for tp in partitions:
            has_line, read = lines.state_read(tp)
            decision = lines.decision(tp)
            known = context.leadership.get(tp)
            if has_line:
                if read is not None:
                    yield tp, LeaderIsrAndControllerEpoch(read[1], read[0])
            elif decision is not None and decision.before is not None:
                yield tp, LeaderIsrAndControllerEpoch(decision.before, context.epoch)
            elif known is not None:
                yield tp, known

    async def read_all_states(self, partitions: Sequence[TopicPartition], zxids: Zxids) -> States:
        """Return what the snapshot of the failover says."""
        lines = self._lines("ReadAllStates")
        states = {}
        for tp in partitions:
            found = lines.found.get(tp)
            if found is None or found.leadership is None:
                continue
            states[tp] = LeaderIsrAndControllerEpoch(found.leadership, found.controller_epoch)
            if found.zxid is not None:
                zxids.written[tp] = found.zxid
            if found.created is not None:
                zxids.created[tp] = found.created
        return states

    async def read_all_eligible(
        self, topic_ids: Mapping[str, bytes]
    ) -> Mapping[TopicPartition, Eligible]:
        """Return what the snapshot of the failover says."""
        lines = self._lines("ReadAllEligible")
        return {
            tp: eligible
            for tp, found in lines.found.items()
            if (eligible := eligible_of(found, topic_ids.get(tp.topic, b""))) is not None
        }

    async def create_states(self, states: States) -> Mapping[TopicPartition, OttlaError | None]:
        """Return what the decisions say became of it."""
        lines = self._lines("CreateStates")
        return {tp: _error_of(lines.decision(tp)) for tp in states}

    async def update_states(
        self,
        states: Mapping[TopicPartition, LeaderAndIsr],
        newcomers: Mapping[TopicPartition, Mapping[int, int]],  # noqa: ARG002
        records: Mapping[TopicPartition, int],  # noqa: ARG002
    ) -> UpdateResult:
        """Return what the decisions say became of it."""
        lines = self._lines("UpdateStates")
        result = UpdateResult()
        for tp, state in states.items():
            decision = lines.decision(tp)
            outcome = "written" if decision is None else decision.outcome
            refusal = outcome.removeprefix("refused: ")
            if outcome == "decided again" or refusal == ErrorCode.INVALID_UPDATE_VERSION.name:
                result.retry.append(tp)
            elif outcome.startswith("failed: "):
                result.finished[tp] = OttlaError(outcome.removeprefix("failed: "))
            elif refusal != outcome:
                result.finished[tp] = OttlaError(refusal, ErrorCode[refusal])
            else:
                result.finished[tp] = msgspec.structs.replace(
                    state, partition_epoch=state.partition_epoch + 1
                )
        return result


def _error_of(decision: journaled.DecisionLine | None) -> OttlaError | None:
    if decision is None or not decision.outcome.startswith("failed: "):
        return None
    return OttlaError(decision.outcome.removeprefix("failed: "))


def eligible_of(found: journaled.PartitionFacts, topic_id: bytes) -> Eligible | None:
    """Return the eligible replicas as a snapshot has them."""
    if found.eligible_by is None:
        return None
    min_isr, version = found.eligible_by[:2]
    return Eligible(topic_id, found.eligible_at, min_isr, found.eligible, version)


# --- lines for a person -------------------------------------------------------------------------

FAILS = "fails: "


def failure(error: Exception) -> str:
    """Return what today's rules are said to do where they raise."""
    return f"{FAILS}{type(error).__name__}: {error}"


def _content(entry: Entry) -> Any:
    """Return what a line says, apart from when and by whom it was written."""
    line = entry.line
    if isinstance(line, journaled.EventLine):
        return line.event, entry.facts
    if isinstance(line, journaled.SnapshotLine):
        return line.part, entry.facts
    return msgspec.structs.replace(line, ts=-1, controller=-1)


def name_of(entry: Entry) -> str:
    """Return the event's name, or the kind of line."""
    line = entry.line
    return line.event if isinstance(line, journaled.EventLine) else str(line.__struct_config__.tag)


def text_of(entry: Entry) -> str:
    """Return a line for a person."""
    line = entry.line
    match line:
        case journaled.SnapshotLine():
            return f"snapshot of a controller: {line.part}"[:SHOWN]
        case journaled.EventLine():
            if isinstance(entry.facts, journaled.EffectPerformed):
                arguments = _encode(entry.facts.arguments).decode()
                return f"{entry.facts.effect} {arguments}"[:SHOWN]
            inputs = _encode(entry.facts or line.inputs).decode()
            return f"{line.event} {inputs}"[:SHOWN]
        case journaled.StateChangeLine():
            return f"{line.before} -> {line.after}: {', '.join(line.subjects)}"[:SHOWN]
        case journaled.DecisionLine():
            return f"{line.partition} {line.election}: {words_of(line.rule)} [{line.outcome}]"[
                :SHOWN
            ]
        case journaled.RequestLine():
            return f"request of API {line.api} to broker {line.broker}: {line.what}"[:SHOWN]
    return type(line).__name__
