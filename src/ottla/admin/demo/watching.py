"""The demo's watcher: asks for Metadata again and again, and notes every move of a leader.

Invariants: sees the cluster only as a client can; a partition counts as led when a live broker says
that a live broker leads it; times are of `time.monotonic`. The notes are plain values, the deciding
is in pure functions (`moves_between`), the thread only asks.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ottla.admin.session import world
from ottla.client.client import Client
from ottla.model.errors import OttlaError
from ottla.net import runtime

POLL_S = 0.05
CALL_TIMEOUT_S = 1.0
NO_BROKER = -1
PREFERRED = "back to the preferred leader"


@dataclass(frozen=True, slots=True)
class Seen:
    """One response: leader and epoch by partition, in-sync counts, controller, live brokers."""

    at: float
    leaders: dict[int, tuple[int, int]]
    in_sync: dict[int, int]
    preferred: dict[int, int]
    controller: int
    alive: frozenset[int]


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's leader changed. `seconds` is the time it was seen without one."""

    partition: int
    before: int
    after: int
    epoch: int
    at: float
    cause: str
    seconds: float


@dataclass(slots=True)
class Fault:
    """Something done to the cluster on purpose."""

    at: float
    broker: int
    what: str


def moves_between(before: Seen, after: Seen, fault: Fault | None) -> list[Move]:
    """Return the moves between two responses, laid to the last fault before them."""
    moves = []
    for partition, (leader, epoch) in sorted(after.leaders.items()):
        old, old_epoch = before.leaders.get(partition, (leader, epoch))
        if leader in (NO_BROKER, old) or epoch <= old_epoch:
            continue
        lost = fault is not None and old == fault.broker and fault.what.startswith("kill")
        preferred = not lost and leader == after.preferred.get(partition)
        moves.append(
            Move(
                partition,
                old,
                leader,
                epoch,
                after.at,
                PREFERRED if preferred else fault.what if fault is not None else "none of ours",
                after.at - fault.at if lost and fault is not None else 0.0,
            )
        )
    return moves


@dataclass(slots=True)
class Notes:
    """All that was seen; written by the watcher's thread, read by the demo's."""

    last: Seen | None = None
    moves: list[Move] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    controllers: list[tuple[float, int]] = field(default_factory=list)


class Watcher(threading.Thread):
    """Polls one topic until it is stopped."""

    def __init__(
        self, addresses: Callable[[], Sequence[tuple[str, int]]], topic: str, notes: Notes
    ) -> None:
        super().__init__(name="watcher", daemon=True)
        self._addresses = addresses
        self._topic = topic
        self._notes = notes
        self._stop_now = threading.Event()

    def stop(self) -> None:
        self._stop_now.set()

    def run(self) -> None:
        runtime.run(self._watch)

    async def _watch(self) -> None:
        here = world()
        client: Client | None = None
        while not self._stop_now.is_set():
            try:
                if client is None:
                    client = Client(here, self._addresses(), "ottla-demo", timeout_s=CALL_TIMEOUT_S)
                self._note(await self._ask(client))
            except OttlaError:
                # The broker that responded is gone: begin again with those that live.
                if client is not None:
                    await client.close()
                client = None
            await asyncio.sleep(POLL_S)
        if client is not None:
            await client.close()

    async def _ask(self, client: Client) -> Seen:
        response = await client.metadata([self._topic])
        alive = frozenset(b.node_id for b in response.brokers)
        partitions = [p for topic in response.topics for p in topic.partitions]
        return Seen(
            time.monotonic(),
            {
                p.partition_index: (
                    p.leader_id if p.leader_id in alive else NO_BROKER,
                    p.leader_epoch,
                )
                for p in partitions
            },
            {p.partition_index: len(p.isr_nodes) for p in partitions},
            {p.partition_index: p.replica_nodes[0] for p in partitions if p.replica_nodes},
            response.controller_id,
            alive,
        )

    def _note(self, seen: Seen) -> None:
        notes = self._notes
        if notes.last is not None and seen.leaders:
            fault = notes.faults[-1] if notes.faults else None
            before = notes.last
            notes.moves += moves_between(before, seen, fault)
            # A partition without leader keeps its last one in mind, so that a move is seen once,
            # whole; so does one about which the broker asked now knows less than the last one.
            kept = {
                p: old
                for p, old in before.leaders.items()
                if (new := seen.leaders.get(p, (NO_BROKER, -1)))[0] == NO_BROKER or new[1] < old[1]
            }
            seen = replace(seen, leaders=seen.leaders | kept)
        if seen.controller >= 0 and (
            not notes.controllers or notes.controllers[-1][1] != seen.controller
        ):
            notes.controllers.append((seen.at, seen.controller))
        if seen.leaders:
            notes.last = seen
