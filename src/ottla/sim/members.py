"""Simulated members of consumer groups: `client`'s, noting what is judged, and who reads as one.

Invariants: nothing of a broker's inside is asked; offsets are fetched stable (KIP-447), as Java's
consumer always does; what was read is noted before it is committed, and only what was read is. The
coordinator is asked with endless patience: what must not wait for ever is judged at the end of a
run. Members are eager (range); those of a `CooperativeReader` follow KIP-429.
"""

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.assignors import COOPERATIVE, RANGE
from ottla.client.client import Client
from ottla.client.coordinators import MOVED, Coordinator, code_of_all
from ottla.client.group_member import REJOIN, GroupMember
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.model.protocol import READ_COMMITTED, READ_UNCOMMITTED
from ottla.sim.clients import REQUEST_TIMEOUT_S, fetch, visible_records
from ottla.sim.history import Assigned, Claimed, Commit, Fetched, History, Taken
from ottla.wire.records import Record

SESSION_MS = 6_000
REBALANCE_MS = 6_000
HEARTBEAT_S = 1.0
STABLE_VERSION = 7
"""OffsetFetch of one group that can ask for stable offsets."""
COMMIT_BYTES = 8_192
AGAIN = MOVED | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT}
"""After these a commit is sent once more."""
TOOK_PART = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
"""What a SyncGroup is answered only if the coordinator knows its sender in that generation."""
SHORT_WAIT_S = 0.1


async def ask_patiently(coordinator: Coordinator, request: Any, code_of: Any, **how: Any) -> Any:
    """Return a coordinator's response, however long no broker can be reached at all."""
    while True:
        with contextlib.suppress(OttlaError):
            return await coordinator.ask(request, code_of, **how)
        coordinator.broker = None
        await asyncio.sleep(SHORT_WAIT_S)


class Member(GroupMember):
    """One member. `due` says that it has to join (again) before it may commit anything."""

    def __init__(
        self,
        world: World,
        client: Client,
        group: str,
        tps: Sequence[TopicPartition],
        history: History,
        name: str,
        instance_id: str | None = None,
        *,
        cooperative: bool = False,
    ) -> None:
        topics = {tp.topic for tp in tps}
        super().__init__(
            client,
            group,
            list(topics),
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            grace_s=REQUEST_TIMEOUT_S,
            patience_s=math.inf,
            assignor=COOPERATIVE if cooperative else RANGE,
            instance_id=instance_id,
        )
        self.world = world
        self.client = client
        self.history = history
        self.name = name
        self.cooperative = cooperative
        self.added: tuple[TopicPartition, ...] = ()
        self.revoked: tuple[TopicPartition, ...] = ()
        """What the last assignment gave us and took from us; what was lost before is not in it."""
        self.away = False
        """Others may have had a generation between our last one and this, and what we own in it:
        `added` is all of `partitions` then."""
        self.due = True
        self.fenced = False
        """Another process has taken our instance id: nothing may be asked any more."""
        self._counts = {topic: sum(tp.topic == topic for tp in tps) for topic in topics}

    async def ask(self, request: Any, code_of: Any = code_of_all, **how: Any) -> Any:
        return await ask_patiently(self.coordinator, request, code_of, **how)

    # --- generations ------------------------------------------------------------------------------

    async def join(self) -> None:
        """Enter the next generation; `partitions` are ours in it. Nothing to do once fenced."""
        self.away = False
        while self.due and not self.fenced:
            code = await self._try_join()
            if code is ErrorCode.NONE:
                self.due = False
            elif not self._heed(code) and code is not ErrorCode.MEMBER_ID_REQUIRED:
                self._complain("join", code)
                await asyncio.sleep(1.0)

    async def _try_join(self) -> ErrorCode:
        said, asked_s = self.partitions, _now()
        joined = await self.send_join()
        if joined.error_code:
            return ErrorCode(joined.error_code)
        self.away = self.away or self.missed
        took = self.generation, self.instance_id or self.member_id
        synced = await self.send_sync(joined, self._counts)
        code = ErrorCode(synced.error_code)
        if self.cooperative and code in TOOK_PART:
            self.history.claimed.append(
                Claimed(self.group, *took, self.name, said, joined.leader, asked_s)
            )
        if code is ErrorCode.NONE:
            kept = () if self.away else self.previous
            self.added = tuple(tp for tp in self.partitions if tp not in kept)
            self.revoked = tuple(tp for tp in self.previous if tp not in self.partitions)
            self.history.assigned.append(
                Assigned(self.group, *took, self.partitions, _now(), self.name, joined.leader)
            )
        return code

    def _heed(self, code: ErrorCode) -> bool:
        """Rejoin as far as the coordinator requires it; False if it asked for something else."""
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = True
        elif code not in REJOIN:
            return False
        elif code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.forget(code)
        if code is not ErrorCode.REBALANCE_IN_PROGRESS and self.cooperative:
            self.partitions = ()  # our place is gone; eager members own nothing while they join
        self.due = True
        return True

    def _complain(self, what: str, code: ErrorCode) -> None:
        self.history.complaints.append(f"{self.name} {what} got {code.name}")

    async def beat(self) -> None:
        """Send heartbeats for as long as this task lives."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self.due:
                continue
            place = self.generation, self.member_id
            code = ErrorCode(await self.send_heartbeat())
            current = place == (self.generation, self.member_id)
            if code and current and not self._heed(code):
                self._complain("heartbeat", code)

    async def leave(self) -> None:
        """Leave the group; a static member does not, so that it finds its place again."""
        if self.instance_id is None:
            await self.send_leave()

    # --- offsets ----------------------------------------------------------------------------------

    async def committed(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return where to go on with partitions, all of ours by default: 0 without a commit."""
        wanted = self.partitions if partitions is None else partitions
        if not wanted:
            return {}
        began = _now()
        response = await self.fetch_committed(wanted, STABLE_VERSION, stable=True)
        found = {}
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                if p.error_code:
                    self._complain(f"offset of {tp}", ErrorCode(p.error_code))
                found[tp] = max(0, p.committed_offset)
                broker = -1 if self.coordinator.broker is None else self.coordinator.broker
                self.history.fetched.append(
                    Fetched(self.group, tp, p.committed_offset, began, _now(), self.name, broker)
                )
        return found

    async def commit(self, offsets: dict[TopicPartition, int]) -> bool:
        """Commit positions, also while others rejoin; False if our generation is over."""
        if not offsets or self.generation < 0:
            return not offsets
        tried = self.note_commits(offsets, self.generation)
        code = ErrorCode(await self.send_commit(offsets, again=AGAIN))
        if code is ErrorCode.NONE:
            for commit in tried:
                commit.completed_s = _now()
        elif not self._heed(code):
            self._complain("commit", code)
        return code is ErrorCode.NONE

    def note_commits(self, offsets: Mapping[TopicPartition, int], generation: int) -> list[Commit]:
        """Write down that offsets are about to be committed."""
        now = _now()
        tried = [Commit(self.group, tp, offset, generation, now) for tp, offset in offsets.items()]
        self.history.commits += tried
        return tried

    # --- reading ----------------------------------------------------------------------------------

    async def poll(
        self, tp: TopicPartition, offset: int, *, committed_only: bool, max_bytes: int
    ) -> tuple[list[Record], int]:
        """Return the next records of a partition that are for us, and where to go on."""
        isolation = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        with contextlib.suppress(OttlaError):
            leader = await self.client.leader(*tp)
            data = await fetch(
                self.client, tp, offset, leader, isolation, max_wait_ms=50, max_bytes=max_bytes
            )
            if not data.error_code:
                records, position = [], offset
                for _, header, visible in visible_records(data):
                    records += [r for r in visible if r.offset >= offset]
                    position = max(position, header.next_offset)
                return records, position
        with contextlib.suppress(OttlaError):
            await self.client.metadata([tp.topic])
        return [], offset


def _now() -> float:
    return asyncio.get_running_loop().time()


class GroupReader:
    """A process that reads as a member and commits now and then."""

    cooperative = False

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        name: str,
        group: str,
        tps: Sequence[TopicPartition],
        history: History,
        instance_id: str | None,
    ) -> None:
        self.client = Client(world, bootstrap, name, timeout_s=REQUEST_TIMEOUT_S)
        self.world = world
        self.name = name
        self.member = Member(
            world,
            self.client,
            group,
            tps,
            history,
            name,
            instance_id,
            cooperative=self.cooperative,
        )
        self._settled = instance_id is None
        self.stopping = False
        self._history = history
        self._consumed = history.consumed.setdefault(group, set())
        self._positions: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Read until `stopping`, or until another process has our place."""
        beating = asyncio.ensure_future(self.member.beat())
        try:
            while not self.stopping and not self.member.fenced:
                await self._generation()
            await self.member.leave()
        finally:
            beating.cancel()
            await self.client.close()

    async def _generation(self) -> None:
        member = self.member
        await member.join()
        if member.fenced:
            return
        self._positions = await member.committed()
        self._sent = dict(self._positions)
        await self._read_on()
        await self._commit(self._mine())

    async def _read_on(self) -> None:
        """Read, and commit now and then, until the member has to join again."""
        pause_s = self.world.random.uniform(0.5, 2.0)
        while not self.stopping and not self.member.due:
            until_s = _now() + pause_s
            while _now() < until_s and not self.member.due:
                await self._read()
            await self._commit(self._mine())

    def _mine(self) -> dict[TopicPartition, int]:
        return {tp: at for tp, at in self._positions.items() if tp in self.member.partitions}

    async def _read(self) -> None:
        """Read once of each partition that is ours at this moment."""
        member = self.member
        for tp, offset in self._mine().items():
            records, reached = await member.poll(
                tp, offset, committed_only=False, max_bytes=COMMIT_BYTES
            )
            # The group may have moved it on while the response was on its way.
            if tp in member.partitions:
                self._positions[tp] = reached
                self._consume(tp, records)
        await asyncio.sleep(0.1)

    def _consume(self, tp: TopicPartition, records: Sequence[Record]) -> None:
        """Give records to the application: note them."""
        if not records:
            return
        self._consumed.update((tp, r.offset) for r in records)
        seat, now = self.member.seat, _now()
        self._history.taken.append(
            Taken(self.member.group, self.name, seat.generation, tp, records[0].offset, now)
        )

    async def _commit(self, positions: dict[TopicPartition, int]) -> None:
        moved = {tp: at for tp, at in positions.items() if self._sent[tp] != at}
        if moved and await self.member.commit(moved):
            self._sent.update(moved)


class CooperativeReader(GroupReader):
    """A process that reads as a cooperative member (KIP-429), also during a rebalance.

    While the member joins, the process goes on reading what is the member's; what it has to give up
    it commits first, then joins again; what it lost with its place in the group it neither commits
    nor reads; after a generation that it did not join it goes on from what is committed; a new
    process of a static member joins twice. Kafka: the cooperative half of `ConsumerCoordinator`.
    """

    cooperative = True

    async def _generation(self) -> None:
        member = self.member
        joining = asyncio.ensure_future(member.join())
        try:
            while not joining.done():
                await self._read()
            joining.result()
        finally:
            joining.cancel()
        if member.fenced:
            return
        await self._give_up()
        if member.added:
            begin = await member.committed(member.added)
            self._positions.update(begin)
            self._sent.update(begin)
        if member.revoked:
            # The others wait for these: join again at once, without them.
            member.due = True
            return
        if not self._settled:
            # Its former process may have died between the two joins of a rebalance. A static member
            # gets its place back without another one, and what that process was to give up would be
            # no one's. (Kafka's consumer does not do this: there it stays so until the next one.)
            self._settled = member.due = True
            return
        await self._read_on()

    async def _give_up(self) -> None:
        """Commit what moves to others; forget it, and what was lost.

        After a generation without us another may have read on and committed: our positions are of
        no use. (Kafka's consumer cannot tell. A listener of its that commits what is revoked sets
        the group back then, so that records are read twice.)
        """
        member = self.member
        if not member.away:
            revoked = {tp: self._positions[tp] for tp in member.revoked if tp in self._positions}
            await self._commit(revoked)
        kept = set(member.partitions) - set(member.added)
        for positions in (self._positions, self._sent):
            for tp in set(positions) - kept:
                del positions[tp]
