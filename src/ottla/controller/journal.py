"""Journal: what was decided, from what, and why; one JSON line each.

Who may call: the controller's shells write, `explain` reads. Invariants: a line is queued after
the brokers were told and written later in small slices, so that no decision waits for a disk; the
file is bounded and rotated once, memory is bounded by dropping (and counting) the newest lines; a
disk that fails ends the journal, never the controller. Each decision holds all its inputs, so that
`elections` can be run again over one line alone. Kafka has no such thing; the nearest is
state-change.log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ottla.controller.plan import Decision
from ottla.controller.states import PartitionReplica
from ottla.model.cluster import LeaderAndIsr
from ottla.model.ids import TopicPartition
from ottla.model.ports import File, Files

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_QUEUED_LINES = 100_000
SLICE_BYTES = 64 * 1024
SLICE_PAUSE_S = 0.01

Write = Callable[[bytes], None]
_encode = msgspec.json.encode


class JournalFile:
    """Lines to one file and its predecessor, a slice at a time."""

    def __init__(self, files: Files, path: str, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._files = files
        self._path = path
        self._max_bytes = max_bytes
        self._file: File | None = None
        self._size = 0
        self._lines: deque[bytes] = deque()
        self._timer: asyncio.Handle | None = None
        self._broken = False
        self.dropped = 0

    def write(self, line: bytes) -> None:
        if self._broken:
            return
        if len(self._lines) >= MAX_QUEUED_LINES:
            self.dropped += 1
            return
        self._lines.append(line)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SLICE_PAUSE_S, self._slice)

    def _slice(self) -> None:
        self._timer = None
        self._write_some()
        if self._lines:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SLICE_PAUSE_S, self._slice)

    def _write_some(self) -> None:
        parts = []
        size = 0
        while self._lines and size < SLICE_BYTES:
            line = self._lines.popleft()
            parts.append(line)
            size += len(line)
        try:
            if self._size + size > self._max_bytes:
                self._rotate()
            if self._file is None:
                self._file = self._files.open(self._path, create=True)
                self._size = self._file.size()
            self._file.pwrite(parts, self._size)
            self._size += size
        except OSError as error:
            logger.error("journal ended path=%s error=%s", self._path, error)  # noqa: TRY400
            self._broken = True
            self._lines.clear()

    def _rotate(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._files.exists(self._path):
            self._files.rename(self._path, self._path + ".1")
        self._size = 0

    def close(self) -> None:
        """Write what is queued and close."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._lines and not self._broken:
            self._write_some()
        if self._file is not None:
            self._file.close()
            self._file = None


class Journal:
    """What the controller's parts record; `write` takes each finished line."""

    def __init__(self, write: Write | None) -> None:
        self._write = write

    def _record(self, kind: str, cause: int, fields: dict[str, Any]) -> None:
        if self._write is not None:
            self._write(_encode({"kind": kind, "cause": cause, **fields}) + b"\n")

    def event(self, cause: int, name: str, inputs: dict[str, Any] | None = None) -> None:
        """Record that an event is handled; `inputs` are the facts that were read for it."""
        self._record("event", cause, {"event": name, **({"inputs": inputs} if inputs else {})})

    def decision(
        self,
        cause: int,
        epoch: int,
        decision: Decision,
        online: Iterable[int],
        shutting_down: Iterable[int],
        outcome: str,
    ) -> None:
        self._record(
            "decision",
            cause,
            {
                "epoch": epoch,
                "partition": str(decision.partition),
                "election": decision.kind,
                "rule": decision.rule,
                "before": _state(decision.before),
                "after": _state(decision.after),
                "replicas": decision.replicas,
                "adding": decision.adding,
                "removing": decision.removing,
                "online": sorted(online),
                "shutting_down": sorted(shutting_down),
                "rejected": decision.rejected,
                "outcome": outcome,
            },
        )

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

    def told(self, cause: int, epoch: int, broker: int, api: int, what: str) -> None:
        self._record("told", cause, {"epoch": epoch, "broker": broker, "api": api, "what": what})

    def snapshot(self, cause: int, part: str, facts: Any) -> None:
        """Record a part of the context, as a failover found it."""
        self._record("snapshot", cause, {"part": part, "facts": facts})


def _state(state: LeaderAndIsr | None) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "partition_epoch": state.partition_epoch,
        "recovery_state": state.recovery_state,
    }
