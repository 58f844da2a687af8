"""Journal: what was decided, from what, and why; one JSON line each.

Invariants: every line says when (the wall clock, milliseconds), which controller, in which epoch
and for which event (`cause`); a decision holds all its inputs, so that the deciders can be run
again over one line alone; a line is queued after the requests were, and `log.rolling_file` writes
it later. A failover's snapshot, and one more at the head of each new file, make the journal a whole
from there on. What a line holds is in `journal_schema`. Kafka has no such thing; the nearest is
state-change.log.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ottla.controller.plan import Decision
from ottla.controller.states import PartitionReplica
from ottla.model.cluster import LeaderAndIsr
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import (
    DecisionLine,
    Event,
    EventLine,
    RequestLine,
    SnapshotLine,
    StateChangeLine,
)
from ottla.model.ports import Clock

Write = Callable[[bytes], None]
Change = tuple[TopicPartition | PartitionReplica, str, str]
"""A partition or replica, its state before and after."""
CHANGES_A_LINE = 1000
_encode = msgspec.json.encode


class Journal:
    """What the controller's parts record in one term; `write` takes each finished line."""

    def __init__(
        self,
        write: Write | None,
        clock: Clock,
        controller: int,
        epoch: int,
        snapshot_ended: Callable[[int], None] = lambda _size: None,
    ) -> None:
        """`snapshot_ended` takes the number of bytes of a snapshot."""
        self._write = write
        self.snapshot_ended = snapshot_ended
        self.cause = 0
        """The id of the event that is being handled."""
        self._clock = clock
        self._controller = controller
        self._epoch = epoch
        self._refused: dict[TopicPartition, tuple[LeaderAndIsr | None, str]] = {}

    def _head(self) -> dict[str, Any]:
        return {
            "ts": self._clock.wall_ms(),
            "controller": self._controller,
            "epoch": self._epoch,
            "cause": self.cause,
        }

    def event(self, event: Event) -> None:
        """Record that an event is handled, with the facts that were read for it."""
        if self._write is not None:
            line = EventLine(**self._head(), event=type(event).__name__, inputs=event.inputs)
            self._write(_encode(line) + b"\n")

    def decision(self, decision: Decision, outcome: str) -> None:
        """Record one decision and what became of it: `written`, or why not.

        The same refusal of the same proposal is recorded once, however often it is requested.
        """
        tp = decision.partition
        if decision.asked is not None:
            refusal = None if outcome == "written" else (decision.asked, outcome)
            if refusal is not None and self._refused.get(tp) == refusal:
                return
            self._refused.pop(tp, None)
            if refusal is not None:
                self._refused[tp] = refusal
        if self._write is None:
            return
        line = DecisionLine(
            ts=self._clock.wall_ms(),
            controller=self._controller,
            epoch=self._epoch,
            cause=self.cause,
            partition=str(tp),
            election=decision.kind,
            rule=decision.rule,
            before=decision.before,
            after=decision.after,
            replicas=decision.replicas,
            adding=decision.adding,
            removing=decision.removing,
            online=decision.online,
            shutting_down=decision.shutting_down,
            rejected=decision.rejected,
            eligible=decision.eligible,
            crashed=decision.crashed,
            ends=decision.ends,
            broker=decision.broker,
            asked=decision.asked,
            version=decision.version,
            stale=decision.stale,
            unsure=decision.unsure,
            outcome=outcome,
        )
        self._write(_encode(line) + b"\n")

    def state_changes(self, changes: Iterable[Change]) -> None:
        """Record (subject, state before, state after): a line per step, not per subject."""
        grouped: dict[tuple[str, str], list[str]] = {}
        if self._write is None:
            return
        for subject, before, after in changes:
            grouped.setdefault((before, after), []).append(str(subject))
        for (before, after), subjects in grouped.items():
            line = StateChangeLine(**self._head(), before=before, after=after, subjects=subjects)
            self._write(_encode(line) + b"\n")

    def request(self, broker: int, api: int, what: str) -> None:
        """Record a request that was queued for a broker."""
        if self._write is not None:
            line = RequestLine(**self._head(), broker=broker, api=api, what=what)
            self._write(_encode(line) + b"\n")

    def snapshot(self, part: str, facts: Any) -> int:
        """Record a part of the context; return the bytes it takes."""
        if self._write is None:
            return 0
        line = _encode(SnapshotLine(**self._head(), part=part, facts=facts)) + b"\n"
        self._write(line)
        return len(line)
