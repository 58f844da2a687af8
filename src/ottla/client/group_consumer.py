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
from ottla.client.coordinators import VERSION_OF_ONE_GROUP
from ottla.client.error_texts import explained, failure
from ottla.client.group_member import REJOIN, GroupMember
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition, by_topic
from ottla.model.protocol import EARLIEST, LATEST
from ottla.wire.messages.groups import JoinGroupResponse

SESSION_MS = 10_000
REBALANCE_MS = 60_000
JOIN_GRACE_S = 15.0
HEARTBEAT_S = 1.0
COMMIT_S = 5.0
PATIENCE_S = 60.0
END_S = 6.0
"""For the last commit, and for leaving: the user waits for both."""
LOOK_AGAIN_S, KNOWN_WITHIN_S = 0.25, 5.0
"""So soon a broker has heard of a topic that was just created."""

MakeConsumer = Callable[[], Consumer]


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
        self._member = GroupMember(
            client,
            group,
            topics,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            grace_s=JOIN_GRACE_S,
            patience_s=PATIENCE_S,
        )
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
                code = await self._member.send_heartbeat()
                if code in REJOIN:
                    if code == ErrorCode.REBALANCE_IN_PROGRESS:
                        await self._stop(reading)
                        await self._commit(consumer)
                    self._member.forget(code)
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
                await self._member.send_leave()

    async def _stop(self, reading: "asyncio.Future[None]") -> None:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    # --- joining ----------------------------------------------------------------------------------

    async def _join(self) -> list[TopicPartition]:
        """Enter the next generation; return our partitions in it."""
        member, what = self._member, f"group {self._group}"
        while True:
            with self._client.waiting(f"{what}: its members to join"):
                joined = await member.send_join()
            code = joined.error_code
            if not code:
                self._shared_out = await self._to_share_out(joined)
                with self._client.waiting(f"{what}: the member that assigns the partitions"):
                    code = (await member.send_sync(joined, self._shared_out)).error_code
                if not code:
                    return sorted(tp for tp in member.partitions if tp.topic in self._topics)
            if code in REJOIN:
                member.forget(code)
            elif code != ErrorCode.MEMBER_ID_REQUIRED:
                self._check(code, "join")

    async def _to_share_out(self, joined: JoinGroupResponse) -> dict[str, int]:
        """Return how many partitions there are of each topic, as the leader of a generation."""
        subscriptions = self._member.subscriptions(joined)
        if subscriptions is None:
            return {}
        names = sorted({topic for said in subscriptions.values() for topic in said.topics})
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
        return known

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

    # --- offsets ----------------------------------------------------------------------------------

    async def _begin(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Go on where the group stopped, or at the chosen end where it never was."""
        self._committed = {}
        if not partitions:
            return
        response = await self._member.fetch_committed(partitions, VERSION_OF_ONE_GROUP)
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
        if not moved or self._member.generation < 0:
            return
        code = await self._member.send_commit(moved)
        if code in REJOIN:
            self._client.say(f"not committed: {explained(code)}; some records may be read again")
        else:
            self._check(code, "commit")
            self._committed |= moved

    def _check(self, code: int, what: str) -> None:
        if code:
            raise failure(f"group {self._group}: {what}", code)


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return (
        ", ".join(f"{name} {indexes}" for name, indexes in by_topic(partitions).items())
        or "nothing"
    )
