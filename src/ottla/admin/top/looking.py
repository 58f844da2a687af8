"""Looks at a cluster, one after the other: over the wire, and at the metrics of brokers of --dir.

Invariants: nothing changes; a look that fails is one with its problem, and the next one is tried
all the same; groups are asked for less often, since each takes requests of its own.
"""

import time
from collections.abc import Callable, Sequence
from typing import Self

from msgspec import Struct

from ottla.admin.operations import status
from ottla.admin.top.changes import Broker, BrokerRow, Changes, Group, Look, Partition
from ottla.admin.top.group_progress import Progress, progress_of
from ottla.client import groups, offsets, reassignments
from ottla.client.client import Client, partitions_of
from ottla.client.copy_progress import CopyProgress
from ottla.model.errors import OttlaError
from ottla.model.ports import address_text
from ottla.model.protocol import LATEST

GROUPS_EVERY_S = 5.0
MOST_GROUPS = 200
REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,"
COUNTED_TWICE = (f"{REQUESTS}request=FetchConsumer", f"{REQUESTS}request=FetchFollower")
"""Each of these is counted as a Fetch, too."""
TIMES = "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce"

Metrics = dict[str, dict[str, int | float]]


class Looking:
    """One client's looks. `metrics_of` gives a broker's figures, None where it does not tell."""

    def __init__(
        self, client: Client, metrics_of: Callable[[int], Metrics | None] = lambda _: None
    ) -> None:
        self._client = client
        self._metrics_of = metrics_of
        self._progress = CopyProgress(client)
        self._groups: dict[str, Group] | None = None
        self._group_progress: dict[str, Progress] | None = None
        self._groups_at_s = float("-inf")

    async def look(self) -> Look:
        """Return the cluster as it is now; never raises an OttlaError."""
        now_s, clock = time.monotonic(), time.strftime("%H:%M:%S")
        try:
            return await self._look(now_s, clock)
        except OttlaError as error:
            return Look(now_s, clock, "", -1, {}, {}, {}, problem=str(error))

    async def _look(self, now_s: float, clock: str) -> Look:
        response = await self._client.metadata(None)
        facts = dict(partitions_of(response))
        ends = await offsets.log_offsets(self._client, facts, LATEST, problems=[])
        moves = await reassignments.in_progress(self._client)
        estimate = await self._progress.look(moves, now_s) if moves else None
        if now_s - self._groups_at_s >= GROUPS_EVERY_S:
            self._groups, self._group_progress = await self._look_at_groups()
            self._groups_at_s = now_s
        return Look(
            now_s,
            clock,
            response.cluster_id or "",
            response.controller_id,
            {
                b.node_id: self._broker(b.node_id, address_text(b.host, b.port), b.rack)
                for b in response.brokers
            },
            {
                tp: Partition(
                    p.leader_id,
                    p.leader_epoch,
                    tuple(p.replica_nodes),
                    tuple(p.isr_nodes),
                    ends.get(tp),
                )
                for tp, p in facts.items()
            },
            {tp: move.adding for tp, move in moves.items()},
            estimate,
            self._groups,
            progress=self._group_progress,
        )

    def _broker(self, broker: int, address: str, rack: str | None) -> Broker:
        found = self._metrics_of(broker)
        if found is None:
            return Broker(address, rack)
        requests = sum(
            values.get("OneMinuteRate", 0.0)
            for name, values in found.items()
            if name.startswith(REQUESTS) and not name.startswith(COUNTED_TWICE)
        )
        return Broker(
            address,
            rack,
            requests,
            found.get(TIMES, {}).get("99thPercentile"),
            found.get(status.IDLE, {}).get("Value"),
        )

    async def _look_at_groups(self) -> tuple[dict[str, Group], dict[str, Progress]]:
        found: dict[str, Group] = {}
        of_known: dict[str, Progress] = {}
        for listed in (await groups.list_groups(self._client, []))[:MOST_GROUPS]:
            try:
                group = await groups.describe(self._client, listed.group)
                at_s = time.monotonic()
                rows = await groups.lag_of(self._client, group, [])
            except OttlaError:
                continue  # it has just gone, or its coordinator moves
            lag = sum(row.lag or 0 for row in rows)
            found[listed.group] = Group(group.state, len(group.members), lag)
            progress = progress_of(rows, at_s)
            if progress is not None:
                of_known[listed.group] = progress
        return found, of_known


class BrokerLook(Struct):
    broker: int
    alive: bool
    leaders: int
    replicas: int
    out_of_sync: int
    written_per_s: float | None
    requests_per_s: float | None
    produce_p99_ms: float | None
    idle: float | None

    @classmethod
    def of(cls, row: BrokerRow) -> Self:
        facts = row.facts
        known = (None,) * 3 if facts is None else (facts.requests, facts.p99_ms, facts.idle)
        counts = (row.leaders, row.replicas, row.out_of_sync, row.written)
        return cls(row.broker, facts is not None, *counts, *known)


class TopicLook(Struct):
    topic: str
    partitions: int
    without_leader: int
    under_replicated: int
    moving: int
    written_per_s: float | None
    records: int


class Moves(Struct):
    partitions: int
    bytes_copied: int | None
    bytes: int | None
    bytes_per_s: float | None
    seconds_left: float | None


class GroupLook(Struct):
    group: str
    state: str
    members: int
    lag: int


class LookResult(Struct):
    time_ms: int
    controller: int | None
    problem: str | None
    brokers: list[BrokerLook]
    topics: list[TopicLook]
    reassignments: Moves | None
    groups: list[GroupLook]
    events: list[str]

    @classmethod
    def of(cls, changes: Changes, time_ms: int, events: Sequence[str]) -> Self:
        """Return the newest look; `events`: what has happened since the one before."""
        look = changes.look
        assert look is not None
        known = (None,) * 4 if look.estimate is None else look.estimate
        return cls(
            time_ms,
            look.controller if look.controller >= 0 else None,
            look.problem or None,
            [BrokerLook.of(row) for row in changes.brokers()],
            [TopicLook(*row) for row in changes.topics()],
            Moves(len(look.moves), *known) if look.moves else None,
            [GroupLook(name, *group) for name, group in (look.groups or {}).items()],
            list(events),
        )
