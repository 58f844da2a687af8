"""Simulated members of consumer groups: join, sync, heartbeat, read, commit, leave.

Invariants: the classic protocol over `client`, nothing of a broker's inside; offsets are
fetched stable (KIP-447), as Java's consumer always does; what was read is noted before it is
committed, and only what was read is. Members are eager (range); with `cooperative` set they follow
KIP-429, and `CooperativeReader` reads.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.client import Client
from ottla.client.coordinators import GROUP
from ottla.client.group_consumer import (
    ASSIGNOR,
    LEAVE_VERSION,
    PROTOCOL_TYPE,
    REJOIN,
    assign_range,
)
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.model.protocol import READ_COMMITTED, READ_UNCOMMITTED
from ottla.sim.clients import REQUEST_TIMEOUT_S, batches_of, fetch
from ottla.sim.cooperative import Claim, assign_cooperative
from ottla.sim.coordinated import Coordinator
from ottla.sim.history import Assigned, Claimed, Commit, Fetched, History, Taken
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from ottla.wire.records import Record, iter_records

SESSION_MS = 6_000
REBALANCE_MS = 6_000
HEARTBEAT_S = 1.0
STABLE_VERSION = 7
"""OffsetFetch of one group that can ask for stable offsets."""
COMMIT_BYTES = 8_192
COOPERATIVE = "cooperative-sticky"
AGAIN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT})
"""After these a commit is sent once more."""
TOOK_PART = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
"""What a SyncGroup is answered only if the coordinator knows its sender in that generation."""


def code_of(response: Any) -> tuple[int]:
    return (int(response.error_code),)


def partition_codes(response: Any) -> list[int]:
    return [int(p.error_code) for t in response.topics for p in t.partitions]


def _fetched_codes(response: Any) -> list[int]:
    return [int(response.error_code), *partition_codes(response)]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tp in partitions:
        found.setdefault(tp.topic, []).append(tp.partition)
    return found


class Seat(NamedTuple):
    """A place in a generation. It stays what it was when the coordinator has put us out."""

    generation: int
    member_id: str


class Member:
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
    ) -> None:
        self.world = world
        self.client = client
        self.group = group
        self.tps = tps
        self.history = history
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.seat = Seat(-1, "")
        self.partitions: tuple[TopicPartition, ...] = ()
        self.cooperative = False
        self.added: tuple[TopicPartition, ...] = ()
        self.revoked: tuple[TopicPartition, ...] = ()
        """What the last assignment gave us and took from us; what was lost before is not in it."""
        self.away = False
        """Others may have had a generation between our last one and this, and what we own in it:
        `added` is all of `partitions` then."""
        self.due = True
        self.fenced = False
        """Another process has taken our instance id: nothing may be asked any more."""
        self._coordinator = Coordinator(world, client, group, GROUP)

    async def ask(self, request: Any, codes_of: Any = code_of, **how: Any) -> Any:
        return await self._coordinator.ask(request, codes_of, **how)

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
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name=COOPERATIVE if self.cooperative else ASSIGNOR, metadata=self._subscription()
        )
        patience_s = REBALANCE_MS / 1000 + REQUEST_TIMEOUT_S
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        said, asked_s = self.partitions, asyncio.get_running_loop().time()
        joined = await self.ask(request, timeout_s=patience_s)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        if joined.error_code:
            return ErrorCode(joined.error_code)
        self.away = self.away or joined.generation_id != self.generation + 1
        self.member_id, self.generation = joined.member_id, joined.generation_id
        shares = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            shares = self._share_out(joined.members)
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=shares,
        )
        synced = await self.ask(sync, timeout_s=patience_s)
        code = ErrorCode(synced.error_code)
        if self.cooperative and code in TOOK_PART:
            owner = self.instance_id or sync.member_id
            took_part = self.group, sync.generation_id, owner, self.name
            self.history.claimed.append(Claimed(*took_part, said, joined.leader, asked_s))
        if code is ErrorCode.NONE:
            self._receive(synced.assignment, joined.leader)
        return code

    def _receive(self, assignment: bytes, leader: str) -> None:
        """Own from now on what this generation gives us."""
        self.seat = Seat(self.generation, self.member_id)
        before, self.partitions = self.partitions, ()
        if assignment:
            mine = decode_versioned(ConsumerProtocolAssignment, assignment, newer_ok=True)
            self.partitions = tuple(
                TopicPartition(t.topic, p) for t in mine.assigned_partitions for p in t.partitions
            )
        kept = () if self.away else before
        self.added = tuple(tp for tp in self.partitions if tp not in kept)
        self.revoked = tuple(tp for tp in before if tp not in self.partitions)
        owner = self.instance_id or self.member_id
        now = asyncio.get_running_loop().time()
        self.history.assigned.append(
            Assigned(self.group, self.generation, owner, self.partitions, now, self.name, leader)
        )

    def _subscription(self) -> bytes:
        """Say what we subscribe to; a cooperative member also what it owns, and since when."""
        topics = sorted({tp.topic for tp in self.tps})
        if not self.cooperative:
            return encode_versioned(ConsumerProtocolSubscription(topics=topics), 0)
        one = ConsumerProtocolSubscription.TopicPartition
        owned = [one(topic=t, partitions=p) for t, p in _by_topic(self.partitions).items()]
        subscription = ConsumerProtocolSubscription(
            topics=topics, owned_partitions=owned, generation_id=self.seat.generation
        )
        return encode_versioned(subscription, 3)

    def _share_out(self, members: Sequence[Any]) -> list[Any]:
        shares = self._cooperative_shares(members) if self.cooperative else self._ranges(members)
        one = ConsumerProtocolAssignment.TopicPartition
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member,
                assignment=encode_versioned(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[one(topic=t, partitions=p) for t, p in own.items()]
                    ),
                    0,
                ),
            )
            for member, own in shares.items()
        ]

    def _cooperative_shares(self, members: Sequence[Any]) -> dict[str, dict[str, list[int]]]:
        claims = {}
        for m in members:
            said = decode_versioned(ConsumerProtocolSubscription, m.metadata, newer_ok=True)
            owned = [
                TopicPartition(t.topic, p) for t in said.owned_partitions for p in t.partitions
            ]
            claims[m.member_id] = Claim(said.generation_id, frozenset(owned))
        given = assign_cooperative(self.tps, claims)
        return {member: _by_topic(partitions) for member, partitions in given.items()}

    def _ranges(self, members: Sequence[Any]) -> dict[str, dict[str, list[int]]]:
        subscriptions: dict[str, Iterable[str]] = {
            m.member_id: decode_versioned(
                ConsumerProtocolSubscription, m.metadata, newer_ok=True
            ).topics
            for m in members
        }
        counts: dict[str, int] = {}
        for tp in self.tps:
            counts[tp.topic] = counts.get(tp.topic, 0) + 1
        return assign_range(counts, subscriptions)

    def _heed(self, code: ErrorCode) -> bool:
        """Rejoin as far as the coordinator requires it; False if it asked for something else."""
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = self.due = True
            self._lose()
            return True
        if code not in REJOIN:
            return False
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.generation = -1
            self._lose()
        self.due = True
        return True

    def _lose(self) -> None:
        """Own nothing any more, as our place is gone; eager members own nothing while they join."""
        if self.cooperative:
            self.partitions = ()

    def _complain(self, what: str, code: ErrorCode) -> None:
        self.history.complaints.append(f"{self.name} {what} got {code.name}")

    async def beat(self) -> None:
        """Send heartbeats for as long as this task lives."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self.due:
                continue
            generation, member_id = self.generation, self.member_id
            request = HeartbeatRequest(
                group_id=self.group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=self.instance_id,
            )
            response = await self.ask(request)
            if response.error_code and (generation, member_id) == (self.generation, self.member_id):
                code = ErrorCode(response.error_code)
                if not self._heed(code):
                    self._complain("heartbeat", code)

    async def leave(self) -> None:
        """Leave the group; a static member does not, so that it finds its place again."""
        if self.member_id and self.instance_id is None:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
            with contextlib.suppress(OttlaError):
                await self.ask(request, version=LEAVE_VERSION)

    # --- offsets ----------------------------------------------------------------------------------

    async def committed(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return where to go on with partitions, all of ours by default: 0 without a commit."""
        wanted = self.partitions if partitions is None else partitions
        if not wanted:
            return {}
        r = OffsetFetchRequest
        request = r(
            group_id=self.group,
            topics=[
                r.OffsetFetchRequestTopic(name=t, partition_indexes=p)
                for t, p in _by_topic(wanted).items()
            ],
            require_stable=True,
        )
        patient = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})
        began = asyncio.get_running_loop().time()
        response = await self.ask(request, _fetched_codes, version=STABLE_VERSION, again=patient)
        ended = asyncio.get_running_loop().time()
        found = {}
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                if p.error_code:
                    self._complain(f"offset of {tp}", ErrorCode(p.error_code))
                found[tp] = p.committed_offset
                broker = -1 if self._coordinator.broker is None else self._coordinator.broker
                self.history.fetched.append(
                    Fetched(self.group, tp, p.committed_offset, began, ended, self.name, broker)
                )
        return {tp: max(0, offset) for tp, offset in found.items()}

    async def commit(self, offsets: dict[TopicPartition, int]) -> bool:
        """Commit positions, also while others rejoin; False if our generation is over."""
        if not offsets or self.generation < 0:
            return not offsets
        r = OffsetCommitRequest
        by_topic: dict[str, list[Any]] = {}
        for tp, offset in offsets.items():
            by_topic.setdefault(tp.topic, []).append(
                r.OffsetCommitRequestPartition(
                    partition_index=tp.partition, committed_offset=offset, committed_metadata=""
                )
            )
        request = r(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[r.OffsetCommitRequestTopic(name=t, partitions=p) for t, p in by_topic.items()],
        )
        tried = self.note_commits(offsets, self.generation)
        response = await self.ask(request, partition_codes, again=AGAIN)
        codes = {ErrorCode(code) for code in partition_codes(response)}
        if codes == {ErrorCode.NONE}:
            for commit in tried:
                commit.completed_s = asyncio.get_running_loop().time()
            return True
        for code in codes - {ErrorCode.NONE}:
            if not self._heed(code):
                self._complain("commit", code)
        return False

    def note_commits(self, offsets: Mapping[TopicPartition, int], generation: int) -> list[Commit]:
        """Write down that offsets are about to be committed."""
        now = asyncio.get_running_loop().time()
        tried = [Commit(self.group, tp, offset, generation, now) for tp, offset in offsets.items()]
        self.history.commits += tried
        return tried

    # --- reading ----------------------------------------------------------------------------------

    async def poll(
        self, tp: TopicPartition, offset: int, *, committed_only: bool, max_bytes: int
    ) -> tuple[list[Record], int]:
        """Return the next records of a partition that are for us, and where to go on."""
        try:
            leader = await self.client.leader(tp.topic, tp.partition)
            isolation = READ_COMMITTED if committed_only else READ_UNCOMMITTED
            data = await fetch(
                self.world,
                self.client,
                tp,
                offset,
                leader,
                isolation_level=isolation,
                max_wait_ms=50,
                max_bytes=max_bytes,
            )
            if data is None or data.error_code:
                await self.client.metadata([tp.topic])
                return [], offset
        except OttlaError:
            with contextlib.suppress(OttlaError):
                await self.client.metadata([tp.topic])
            return [], offset
        records, position = [], offset
        for place, header, visible in batches_of(data, isolation):
            if visible:
                batch = iter_records(data.records or b"", place)
                records += [r for r in batch if r.offset >= offset]
            position = max(position, header.next_offset)
        return records, position


class GroupReader:
    """A process that reads as a member and commits now and then."""

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
        self.member = Member(world, self.client, group, tps, history, name, instance_id)
        self.stopping = False
        self._history = history
        self._consumed = history.consumed.setdefault(group, set())

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
        positions = await member.committed()
        sent = dict(positions)
        pause_s = self.world.random.uniform(0.5, 2.0)
        while not self.stopping and not member.due:
            until = asyncio.get_running_loop().time() + pause_s
            while asyncio.get_running_loop().time() < until and not member.due:
                for tp in member.partitions:
                    records, positions[tp] = await member.poll(
                        tp, positions[tp], committed_only=False, max_bytes=COMMIT_BYTES
                    )
                    self._consume(tp, records)
                await asyncio.sleep(0.1)
            await self._commit(positions, sent)
        await self._commit(positions, sent)

    def _consume(self, tp: TopicPartition, records: Sequence[Record]) -> None:
        """Give records to the application: note them."""
        if not records:
            return
        self._consumed.update((tp, r.offset) for r in records)
        seat, now = self.member.seat, asyncio.get_running_loop().time()
        self._history.taken.append(
            Taken(self.member.group, self.name, seat.generation, tp, records[0].offset, now)
        )

    async def _commit(
        self, positions: dict[TopicPartition, int], sent: dict[TopicPartition, int]
    ) -> None:
        moved = {tp: at for tp, at in positions.items() if sent[tp] != at}
        if moved and await self.member.commit(moved):
            sent.update(moved)


class CooperativeReader(GroupReader):
    """A process that reads as a cooperative member (KIP-429), also during a rebalance.

    While the member joins, the process goes on reading what is the member's; what it has to give up
    it commits first, then joins again; what it lost with its place in the group it neither commits
    nor reads; after a generation that it did not join it goes on from what is committed; a new
    process of a static member joins twice. Kafka: the cooperative half of `ConsumerCoordinator`.
    """

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
        super().__init__(world, bootstrap, name, group, tps, history, instance_id)
        self.member.cooperative = True
        self._positions: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, int] = {}
        self._settled = instance_id is None

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
        pause_s = self.world.random.uniform(0.5, 2.0)
        loop = asyncio.get_running_loop()
        while not self.stopping and not member.due:
            until_s = loop.time() + pause_s
            while loop.time() < until_s and not member.due:
                await self._read()
            await self._commit(self._mine(), self._sent)

    async def _give_up(self) -> None:
        """Commit what moves to others; forget it, and what was lost.

        After a generation without us another may have read on and committed: our positions are of
        no use. (Kafka's consumer cannot tell. A listener of its that commits what is revoked sets
        the group back then, so that records are read twice.)
        """
        member = self.member
        if not member.away:
            revoked = {tp: self._positions[tp] for tp in member.revoked if tp in self._positions}
            await self._commit(revoked, self._sent)
        kept = set(member.partitions) - set(member.added)
        for positions in (self._positions, self._sent):
            for tp in set(positions) - kept:
                del positions[tp]

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
