"""A member of a consumer group that reads some topics: `ottla consume --group`.

Invariants: what was given to the sink before a commit is covered by it, nothing else is; before a
rebalance and at the end the position is committed, so that the next consumer goes on right there; a
dead coordinator is waited out. The assignor is `range`, which every Kafka consumer offers by
default. Kafka: `ConsumerCoordinator`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

from ottla.client.client import Client
from ottla.client.consumer import Consumer, Sink
from ottla.client.coordinators import VERSION_OF_ONE_GROUP, Coordinator
from ottla.client.error_texts import explained, failure
from ottla.client.group_resets import commit_request, worst_code
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition, by_topic
from ottla.model.protocol import EARLIEST, LATEST
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

PROTOCOL_TYPE, ASSIGNOR = "consumer", "range"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
HEARTBEAT_S = 1.0
COMMIT_S = 5.0
PATIENCE_S = 60.0
END_S = 6.0
"""For the last commit, and for leaving: the user waits for both."""
LOOK_AGAIN_S, KNOWN_WITHIN_S = 0.25, 5.0
"""So soon a broker has heard of a topic that was just created."""
LEAVE_VERSION = 2
"""The last that names one member, as every broker understands."""

REJOIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)

MakeConsumer = Callable[[], Consumer]


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


class GroupConsumer:
    """Joins, reads what it is assigned, commits, and rejoins when asked."""

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Sequence[str],
        make_consumer: MakeConsumer,
        *,
        from_beginning: bool,
    ) -> None:
        self._client = client
        self._now_s = client.world.clock.monotonic
        self._group = group
        self._topics = sorted(topics)
        self._make_consumer = make_consumer
        self._start = EARLIEST if from_beginning else LATEST
        self._member = ""
        self._generation = -1
        self._coordinator = Coordinator(client, group, patience_s=PATIENCE_S)
        self._committed: dict[TopicPartition, int] = {}
        self._shared_out: dict[str, int] = {}
        """as the leader of this generation: how many partitions of each topic were given out"""

    async def read(self, sink: Sink, idle_s: float | None) -> None:
        """Read as a member until the sink has enough, or nothing came for `idle_s`."""
        consumer = self._make_consumer()
        try:
            while True:
                partitions = await self._join()
                self._client.say(f"group {self._group}: {_listed(partitions)} is ours")
                consumer = self._make_consumer()
                await self._begin(consumer, partitions)
                if await self._attend(consumer, asyncio.ensure_future(consumer.read(sink, idle_s))):
                    return
        finally:
            await self._end(consumer)

    async def _attend(self, consumer: Consumer, reading: "asyncio.Future[None]") -> bool:
        """Heartbeat and commit while it reads; True if the reading came to its end."""
        commit_at_s = self._now_s() + COMMIT_S
        try:
            while True:
                await asyncio.wait([reading], timeout=HEARTBEAT_S)
                if reading.done():
                    reading.result()
                    return True
                if self._now_s() >= commit_at_s:
                    commit_at_s = self._now_s() + COMMIT_S
                    await self._commit(consumer)
                    if await self._topics_grew():
                        await self._stop(reading)
                        await self._commit(consumer)
                        return False
                request = HeartbeatRequest(
                    group_id=self._group, generation_id=self._generation, member_id=self._member
                )
                code = (await self._coordinator.ask(request)).error_code
                if code in REJOIN:
                    if code == ErrorCode.REBALANCE_IN_PROGRESS:
                        await self._stop(reading)
                        await self._commit(consumer)
                    self._forget(code)
                    return False
                self._check(code, "heartbeat")
        finally:
            await self._stop(reading)

    async def _end(self, consumer: Consumer) -> None:
        """Commit and leave; say so if the position is not known to be committed."""
        try:
            async with asyncio.timeout(END_S):
                await self._commit(consumer)
        except (OttlaError, TimeoutError) as error:
            why = str(error) or f"no response within {END_S:.0f} s"
            self._client.say(f"not committed: {why}; some records may be read again")
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
            with self._client.waiting(f"group {self._group}: its members to join"):
                joined = await self._coordinator.ask(request, timeout_s=REBALANCE_MS / 1000 + 15)
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
            with self._client.waiting(
                f"group {self._group}: the member that assigns the partitions"
            ):
                synced = await self._coordinator.ask(sync, timeout_s=REBALANCE_MS / 1000 + 15)
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

    async def _assign(
        self, joined: JoinGroupResponse
    ) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """Share the partitions out: we lead this generation."""
        subscriptions: dict[str, Iterable[str]] = {}
        for member in joined.members:
            said = decode_versioned(ConsumerProtocolSubscription, member.metadata, newer_ok=True)
            subscriptions[member.member_id] = said.topics
        names = sorted({topic for topics in subscriptions.values() for topic in topics})
        known = await self._counts(names)
        with self._client.waiting(
            f"a broker does not know all of the topics {', '.join(self._topics)} yet"
        ):
            until_s = self._now_s() + KNOWN_WITHIN_S
            while not all(known.get(topic) for topic in self._topics):
                if self._now_s() > until_s:
                    break
                # Just created, and this broker has not heard of it yet.
                await asyncio.sleep(LOOK_AGAIN_S)
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
        """Reset what the coordinator has forgotten."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member = ""
        self._generation = -1

    # --- offsets ----------------------------------------------------------------------------------

    async def _begin(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Go on where the group stopped, or at the chosen end where it never was."""
        self._committed = {}
        if not partitions:
            return
        one = OffsetFetchRequest.OffsetFetchRequestTopic
        asked = [one(name=n, partition_indexes=ps) for n, ps in by_topic(partitions).items()]
        request = OffsetFetchRequest(group_id=self._group, topics=asked)
        response = await self._coordinator.ask(request, version=VERSION_OF_ONE_GROUP)
        self._check(response.error_code, "offsets")
        self._committed = {
            TopicPartition(t.name, p.partition_index): p.committed_offset
            for t in response.topics
            for p in t.partitions
            if p.committed_offset >= 0
        }
        for partition, offset in self._committed.items():
            consumer.start_at_offset(partition, offset)
        await consumer.start_at([p for p in partitions if p not in self._committed], self._start)

    async def _commit(self, consumer: Consumer) -> None:
        """Commit what has moved."""
        moved = {
            p: offset
            for p, offset in consumer.positions.items()
            if self._committed.get(p) != offset
        }
        if not moved or self._generation < 0:
            return
        request = commit_request(self._group, moved, self._generation, self._member)
        code = worst_code(await self._coordinator.ask(request, worst_code))
        if code in REJOIN:
            self._client.say(f"not committed: {explained(code)}; some records may be read again")
        else:
            self._check(code, "commit")
            self._committed |= moved

    async def _leave(self) -> None:
        if self._member:
            request = LeaveGroupRequest(group_id=self._group, member_id=self._member)
            await self._coordinator.ask(request, version=LEAVE_VERSION)

    def _check(self, code: int, what: str) -> None:
        if code:
            raise failure(f"group {self._group}: {what}", code)


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return (
        ", ".join(f"{name} {indexes}" for name, indexes in by_topic(partitions).items())
        or "nothing"
    )


def _encode(topics: dict[str, list[int]]) -> bytes:
    r = ConsumerProtocolAssignment
    assigned = [r.TopicPartition(topic=name, partitions=ps) for name, ps in topics.items()]
    return encode_versioned(r(assigned_partitions=assigned), 0)
