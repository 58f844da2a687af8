"""A member of a consumer group that reads some topics: `ottla consume --group`.

Invariants: what was given to the sink before a commit is covered by it, nothing else is; before a
rebalance and at the end the position is committed, so that the next reader goes on right there; a
dead coordinator is waited out. The assignor is `range`, which every Kafka consumer offers by
default. Kafka: `ConsumerCoordinator`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.admin.error_texts import explained
from ottla.admin.operations.consume import Reader, Sink
from ottla.admin.operations.coordinators import (
    MOVED,
    VERSION_OF_ONE_GROUP,
    WAIT_S,
    find_coordinator,
)
from ottla.admin.session import failure
from ottla.admin.waits import Wait, waiting
from ottla.cli.output import say
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.model.protocol import EARLIEST, LATEST
from ottla.net.client import Client
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest
from ottla.wire.messages.sync_group import SyncGroupRequest

PROTOCOL_TYPE, ASSIGNOR = "consumer", "range"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
HEARTBEAT_S = 1.0
COMMIT_S = 5.0
PATIENCE_S = 60.0
END_S = 6.0
"""For the last commit, and for leaving: whoever ended it waits."""
TRIES = 20
LEAVE_VERSION = 2
"""The last that names one member, as every broker understands."""

REJOIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)

MakeReader = Callable[[], Reader]


def assign_range(
    partitions: dict[str, int], subscriptions: dict[str, Iterable[str]]
) -> dict[str, dict[str, list[int]]]:
    """Give each topic's partitions to its members in runs, members sorted by id.

    `partitions` maps topics to their counts, `subscriptions` members to topics. The first members
    get one more where it does not divide evenly (Kafka's RangeAssignor without racks).
    """
    given: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
    for topic, count in partitions.items():
        members = sorted(m for m, topics in subscriptions.items() if topic in topics)
        start = 0
        for place, member in enumerate(members):
            size = count // len(members) + (place < count % len(members))
            if size:
                given[member][topic] = list(range(start, start + size))
            start += size
    return given


class GroupReader:
    """Joins, reads what it is assigned, commits, and joins anew when asked."""

    def __init__(
        self,
        client: Client,
        world: World,
        group: str,
        topics: Sequence[str],
        make_reader: MakeReader,
        *,
        from_beginning: bool,
    ) -> None:
        self._client = client
        self._world = world
        self._group = group
        self._topics = sorted(topics)
        self._make_reader = make_reader
        self._start = EARLIEST if from_beginning else LATEST
        self._member = ""
        self._generation = -1
        self._coordinator: int | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._shared_out: dict[str, int] = {}
        """as the leader of this generation: how many partitions of each topic were given out"""

    async def read(self, sink: Sink, idle_s: float | None) -> None:
        """Read as a member until the sink has enough, or nothing came for `idle_s`."""
        reader = self._make_reader()
        try:
            while True:
                partitions = await self._join()
                say(f"group {self._group}: {_listed(partitions)} is ours")
                reader = self._make_reader()
                await self._begin(reader, partitions)
                if await self._attend(reader, asyncio.ensure_future(reader.read(sink, idle_s))):
                    return
        finally:
            await self._end(reader)

    async def _attend(self, reader: Reader, reading: "asyncio.Future[None]") -> bool:
        """Heartbeat and commit while it reads; True if the reading came to its end."""
        clock = self._world.clock
        commit_at_s = clock.monotonic() + COMMIT_S
        try:
            while True:
                await asyncio.wait([reading], timeout=HEARTBEAT_S)
                if reading.done():
                    reading.result()
                    return True
                if clock.monotonic() >= commit_at_s:
                    commit_at_s = clock.monotonic() + COMMIT_S
                    await self._commit(reader)
                    if await self._topics_grew():
                        await self._stop(reading)
                        await self._commit(reader)
                        return False
                request = HeartbeatRequest(
                    group_id=self._group, generation_id=self._generation, member_id=self._member
                )
                code = (await self._ask(request, lambda a: a.error_code)).error_code
                if code in REJOIN:
                    if code == ErrorCode.REBALANCE_IN_PROGRESS:
                        await self._stop(reading)
                        await self._commit(reader)
                    self._forget(code)
                    return False
                self._check(code, "heartbeat")
        finally:
            await self._stop(reading)

    async def _end(self, reader: Reader) -> None:
        """Commit and leave; say so if the position is not known to be committed."""
        try:
            async with asyncio.timeout(END_S):
                await self._commit(reader)
        except (OttlaError, TimeoutError) as error:
            why = str(error) or f"no response within {END_S:.0f} s"
            say(f"not committed: {why}; some records may be read again")
        with contextlib.suppress(OttlaError, TimeoutError):
            async with asyncio.timeout(END_S):
                await self._leave()

    async def _stop(self, reading: "asyncio.Future[None]") -> None:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    # --- joining ----------------------------------------------------------------------------------

    async def _join(self) -> list[TopicPartition]:
        """Enter the next generation; return our partitions in it."""
        subscription = ConsumerProtocolSubscription(topics=self._topics)
        metadata = encode_versioned(subscription, 0)
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self._member,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequest.JoinGroupRequestProtocol(name=ASSIGNOR, metadata=metadata)
                ],
            )
            with waiting(f"group {self._group}: its members to join"):
                joined = await self._ask(
                    request, lambda a: a.error_code, timeout_s=REBALANCE_MS / 1000 + 15
                )
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member = joined.member_id
                continue
            if joined.error_code in REJOIN:
                self._forget(joined.error_code)
                continue
            self._check(joined.error_code, "join")
            self._member, self._generation = joined.member_id, joined.generation_id
            self._shared_out = {}
            assignments = await self._assign(joined) if joined.leader == self._member else []
            sync = SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=joined.protocol_name,
                assignments=assignments,
            )
            with waiting(f"group {self._group}: the member that assigns the partitions"):
                synced = await self._ask(
                    sync, lambda a: a.error_code, timeout_s=REBALANCE_MS / 1000 + 15
                )
            if synced.error_code in REJOIN:
                self._forget(synced.error_code)
                continue
            self._check(synced.error_code, "sync")
            if not synced.assignment:
                return []
            mine = decode_versioned(ConsumerProtocolAssignment, synced.assignment, newer_ok=True)
            return sorted(
                TopicPartition(t.topic, p)
                for t in mine.assigned_partitions
                if t.topic in self._topics
                for p in t.partitions
            )

    async def _assign(self, joined: Any) -> list[Any]:
        """Share the partitions out: we lead this generation."""
        subscriptions: dict[str, Iterable[str]] = {}
        for member in joined.members:
            said = decode_versioned(ConsumerProtocolSubscription, member.metadata, newer_ok=True)
            subscriptions[member.member_id] = said.topics
        names = sorted({topic for topics in subscriptions.values() for topic in topics})
        known = await self._counts(names)
        with waiting(f"a broker does not know all of the topics {', '.join(self._topics)} yet"):
            for _ in range(TRIES):
                if all(known.get(topic) for topic in self._topics):
                    break
                # Just created, and this broker has not heard of it yet.
                await asyncio.sleep(WAIT_S)
                known = await self._counts(names)
        self._shared_out = known
        one = SyncGroupRequest.SyncGroupRequestAssignment
        return [
            one(member_id=member, assignment=_encode(topics))
            for member, topics in assign_range(known, subscriptions).items()
        ]

    async def _counts(self, topics: list[str]) -> dict[str, int]:
        found = (await self._client.metadata(topics)).topics
        return {t.name or "": len(t.partitions) for t in found}

    async def _topics_grew(self) -> bool:
        """Return whether we led, and some partitions are assigned to no member now."""
        shared_out = self._shared_out
        if not shared_out:
            return False
        try:
            known = await self._counts(list(shared_out))
        except OttlaError:
            return False
        return any(known.get(topic, 0) > count for topic, count in shared_out.items())

    def _forget(self, code: int) -> None:
        """Begin anew as far as the coordinator has forgotten us."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member = ""
        self._generation = -1

    # --- offsets ----------------------------------------------------------------------------------

    async def _begin(self, reader: Reader, partitions: list[TopicPartition]) -> None:
        """Go on where the group stopped, or at the chosen end where it never was."""
        self._committed = {}
        if not partitions:
            return
        one = OffsetFetchRequest.OffsetFetchRequestTopic
        asked = [
            one(name=name, partition_indexes=indexes) for name, indexes in _by_topic(partitions)
        ]
        request = OffsetFetchRequest(group_id=self._group, topics=asked)
        response = await self._ask(request, lambda a: a.error_code, version=VERSION_OF_ONE_GROUP)
        self._check(response.error_code, "offsets")
        self._committed = {
            TopicPartition(t.name, p.partition_index): p.committed_offset
            for t in response.topics
            for p in t.partitions
            if p.committed_offset >= 0
        }
        for partition, offset in self._committed.items():
            reader.start_at_offset(partition, offset)
        await reader.start_at([p for p in partitions if p not in self._committed], self._start)

    async def _commit(self, reader: Reader) -> None:
        """Commit what has moved."""
        moved = {
            p: offset for p, offset in reader.positions.items() if self._committed.get(p) != offset
        }
        if not moved or self._generation < 0:
            return
        r = OffsetCommitRequest
        one = r.OffsetCommitRequestPartition
        topics = [
            r.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    one(
                        partition_index=p,
                        committed_offset=moved[TopicPartition(name, p)],
                        committed_metadata="",
                    )
                    for p in indexes
                ],
            )
            for name, indexes in _by_topic(moved)
        ]
        request = r(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member,
            topics=topics,
        )

        def worst(response: Any) -> int:
            codes = [int(p.error_code) for t in response.topics for p in t.partitions]
            return max(codes, default=0)

        code = worst(await self._ask(request, worst))
        if code in REJOIN:
            say(f"not committed: {explained(code)}; some records may be read again")
        else:
            self._check(code, "commit")
            self._committed |= moved

    async def _leave(self) -> None:
        if self._member:
            request = LeaveGroupRequest(group_id=self._group, member_id=self._member)
            await self._ask(request, lambda a: a.error_code, version=LEAVE_VERSION)

    # --- asking -----------------------------------------------------------------------------------

    def _check(self, code: int, what: str) -> None:
        if code:
            raise failure(f"group {self._group}: {what}", code)

    async def _ask(
        self,
        request: Any,
        code_of: Callable[[Any], int],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Ask the coordinator, and look for it again while it moves."""
        with waiting() as wait:
            return await self._ask_patiently(request, code_of, version, timeout_s, wait)

    async def _ask_patiently(
        self,
        request: Any,
        code_of: Callable[[Any], int],
        version: int | None,
        timeout_s: float | None,
        wait: Wait,
    ) -> Any:
        until_s = self._world.clock.monotonic() + PATIENCE_S
        while True:
            try:
                if self._coordinator is None:
                    self._coordinator = await find_coordinator(self._client, self._group)
                response = await self._client.call(
                    request, self._coordinator, version=version, timeout_s=timeout_s
                )
                if code_of(response) not in MOVED:
                    return response
                problem = OttlaError(explained(code_of(response)))
            except OttlaError as error:
                if not error.retriable:
                    raise
                problem = error
            self._coordinator = None
            wait.text = f"group {self._group}: {problem}"
            if self._world.clock.monotonic() >= until_s:
                raise problem
            await asyncio.sleep(WAIT_S)
            with contextlib.suppress(OttlaError):
                await self._client.metadata([])


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return list(found.items())


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{name} {indexes}" for name, indexes in _by_topic(partitions)) or "nothing"


def _encode(topics: dict[str, list[int]]) -> bytes:
    r = ConsumerProtocolAssignment
    assigned = [r.TopicPartition(topic=name, partitions=ps) for name, ps in topics.items()]
    return encode_versioned(r(assigned_partitions=assigned), 0)
