"""Journal: what was decided, from what, and why; one JSON line each.

Who may call: the controller's shells write, `explain` reads. Invariants: every line says when (the
wall clock, milliseconds), which controller, in which epoch and for which event (`cause`); a
decision holds all its inputs, so that the deciders can be run again over one line alone; a line
is queued after the brokers were told, and `line_file` writes it later. A failover's snapshot,
and one more at the head of each new file, make the journal a whole from there on. Kafka has no
such thing; the nearest is state-change.log.

The kinds of lines: `event` (what is being handled, with the facts read for it), `snapshot` (a part
of the context), `states` (subjects that moved), `decision` (one partition's), `told` (a request
that was queued for a broker), `dropped` (so many lines are missing here).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ottla.controller.plan import Decision
from ottla.controller.states import PartitionReplica
from ottla.model.cluster import LeaderAndIsr
from ottla.model.ids import TopicPartition
from ottla.model.ports import Clock

JOURNAL_NAME = "ottla-controller-journal.jsonl"
"""The file's name, in the first log directory of each broker."""

Write = Callable[[bytes], None]
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
        """`snapshot_ended` is told how many bytes a snapshot took."""
        self._write = write
        self.snapshot_ended = snapshot_ended
        self._clock = clock
        self._controller = controller
        self._epoch = epoch
        self._refused: dict[TopicPartition, tuple[LeaderAndIsr | None, str]] = {}

    def _record(self, kind: str, cause: int, fields: dict[str, Any]) -> int:
        if self._write is None:
            return 0
        head = {
            "kind": kind,
            "ts": self._clock.wall_ms(),
            "controller": self._controller,
            "epoch": self._epoch,
            "cause": cause,
        }
        line = _encode({**head, **fields}) + b"\n"
        self._write(line)
        return len(line)

    def event(self, cause: int, name: str, inputs: dict[str, Any] | None = None) -> None:
        """Record that an event is handled; `inputs` are the facts that were read for it."""
        self._record("event", cause, {"event": name, **({"inputs": inputs} if inputs else {})})

    def decision(self, cause: int, decision: Decision, outcome: str) -> None:
        """Record one decision and what became of it: `written`, or why not.

        The same refusal of the same proposal is recorded once, however often it is asked again.
        """
        tp = decision.partition
        if decision.asked is not None:
            refusal = None if outcome == "written" else (decision.asked, outcome)
            if refusal is not None and self._refused.get(tp) == refusal:
                return
            self._refused.pop(tp, None)
            if refusal is not None:
                self._refused[tp] = refusal
        fields: dict[str, Any] = {
            "partition": str(tp),
            "election": decision.kind,
            "rule": decision.rule,
            "before": state_facts(decision.before),
            "after": state_facts(decision.after),
            "replicas": decision.replicas,
            "adding": decision.adding,
            "removing": decision.removing,
            "online": decision.online,
            "shutting_down": decision.shutting_down,
            "rejected": decision.rejected,
        }
        if decision.eligible or decision.crashed:
            fields["eligible"], fields["crashed"] = decision.eligible, decision.crashed
        if decision.ends:
            fields["ends"] = decision.ends
        if decision.broker is not None:
            fields["broker"] = decision.broker
        if decision.asked is not None:
            fields["asked"] = state_facts(decision.asked)
            fields["version"] = decision.version
            if decision.stale or decision.unsure:
                fields["stale"], fields["unsure"] = decision.stale, decision.unsure
        self._record("decision", cause, {**fields, "outcome": outcome})

    def moved(
        self, cause: int, moves: Iterable[tuple[TopicPartition | PartitionReplica, str, str]]
    ) -> None:
        """Record that subjects moved from state to state; a line per step, not per subject."""
        grouped: dict[tuple[str, str], list[str]] = {}
        if self._write is None:
            return
        for subject, before, after in moves:
            grouped.setdefault((before, after), []).append(str(subject))
        for (before, after), subjects in grouped.items():
            self._record("states", cause, {"before": before, "after": after, "subjects": subjects})

    def told(self, cause: int, broker: int, api: int, what: str) -> None:
        self._record("told", cause, {"broker": broker, "api": api, "what": what})

    def snapshot(self, cause: int, part: str, facts: Any) -> int:
        """Record a part of the context; return the bytes it takes."""
        return self._record("snapshot", cause, {"part": part, "facts": facts})


def state_facts(state: LeaderAndIsr | None) -> dict[str, Any] | None:
    """Return a leadership as journal lines hold it."""
    if state is None:
        return None
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "partition_epoch": state.partition_epoch,
        "recovery_state": state.recovery_state,
    }


def replicas_facts(replicas: Sequence[PartitionReplica]) -> list[tuple[str, int]]:
    """Return replicas as journal lines hold them: [partition, broker] each."""
    return [(str(replica.partition), replica.broker) for replica in replicas]
