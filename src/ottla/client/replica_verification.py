"""Replicas verified over the wire: every follower's batches beside the leader's.

Replicas are read by Fetch with the replica id of the debugging consumer, to which followers
respond, those of Apache Kafka too. Invariants: nothing changes; only what is committed is compared
(below the high watermark); a broker that does not respond is named, the others are compared all the
same; memory is bounded by `fetch_size` for each replica of `AT_ONCE` partitions, which share
requests (`replica_requests`). Kafka: `ReplicaVerificationTool`.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from msgspec import Struct

from ottla.client import configs
from ottla.client.client import Client, partitions_of
from ottla.client.error_texts import failure
from ottla.client.replica_comparison import (
    Difference,
    batches_of,
    compare,
    compare_compacted,
    extent,
    same,
)
from ottla.client.replica_requests import ReplicaRequests, all_of
from ottla.model.errors import OttlaError
from ottla.model.ids import Partition, TopicPartition
from ottla.model.protocol import EARLIEST, LATEST
from ottla.model.waits import waiting

AT_ONCE = 32
KEPT = 20
"""So many differences of a replica are kept; all are counted."""
EMPTY_RESPONSES = 20
"""A replica that has records and sends none so many times cannot be read."""
EMPTY_WAIT_S = 0.1
CLEANUP = "cleanup.policy"


class Limits(NamedTuple):
    """How replicas are read. `since`: a time in ms since 1970, EARLIEST or LATEST."""

    since: int = EARLIEST
    fetch_size: int = 1_048_576
    max_wait_ms: int = 0


@dataclass(slots=True)
class Replica:
    """One follower, or leader, and what came of it. `lag` is in records, None if not known."""

    partition: TopicPartition
    broker: int
    leads: bool
    begins: int | None = None
    ends: int | None = None
    lag: int | None = None
    problem: str | None = None
    found: int = 0
    differences: list[Difference] = field(default_factory=list)
    last: int = -1

    def note(self, differences: Iterable[Difference]) -> None:
        """Count differences; one that was seen at the end of the bytes before is not again."""
        for difference in differences:
            if difference.offset > self.last:
                self.last = difference.offset
                self.found += 1
                if len(self.differences) < KEPT:
                    self.differences.append(difference)


@dataclass(slots=True)
class Verified:
    """A partition. `offset`: all below was compared, from `first` on; `end`: high watermark."""

    partition: TopicPartition
    leader: int
    replicas: list[Replica]
    compacted: bool
    first: int | None = None
    offset: int | None = None
    end: int | None = None
    batches: int = 0
    problem: str | None = None

    @property
    def differs(self) -> bool:
        return any(replica.found for replica in self.replicas)

    @property
    def compared(self) -> bool:
        """Whether every replica was compared."""
        return self.problem is None and all(replica.problem is None for replica in self.replicas)

    @property
    def lag(self) -> int:
        """How far what is compared is behind the high watermark, or a replica is."""
        left = 0 if self.end is None or self.offset is None else max(0, self.end - self.offset)
        return max([left, *(r.lag or 0 for r in self.replicas)])


class ComparedReplica(Struct):
    """A replica as it is printed: `different` differences, of which the first are listed."""

    broker: int
    lag: int | None
    problem: str | None
    different: int
    differences: list[Difference]


class ComparedPartition(Partition, frozen=True, rename={"first": "from", "last": "to"}):
    """A partition as it is printed, compared from `from` up to `to`, which is not included."""

    leader: int | None
    first: int | None
    last: int | None
    high_watermark: int | None
    batches: int
    compacted: bool
    problem: str | None
    replicas: list[ComparedReplica]

    @classmethod
    def of(cls, found: Verified) -> Self:
        return cls(
            *found.partition,
            found.leader if found.leader >= 0 else None,
            found.first,
            found.offset,
            found.end,
            found.batches,
            found.compacted,
            found.problem,
            [
                ComparedReplica(r.broker, r.lag, r.problem, r.found, r.differences)
                for r in found.replicas
            ],
        )


async def partitions(client: Client, topics: Collection[str]) -> list[Verified]:
    """Return the partitions of these topics, nothing compared yet."""
    response = await client.metadata(sorted(topics))
    found = []
    for topic in response.topics:
        name = topic.name or ""
        if topic.error_code and not topic.partitions:
            raise failure(f"topic {name}", topic.error_code)
        policy = await configs.effective(client, configs.TOPIC, name, [CLEANUP])
        compacted = "compact" in (policy.get(CLEANUP, ("", False))[0] or "")
        for p in topic.partitions:
            tp = TopicPartition(name, p.partition_index)
            replicas = [Replica(tp, b, b == p.leader_id) for b in p.replica_nodes]
            found.append(Verified(tp, p.leader_id, replicas, compacted))
    return sorted(found, key=lambda verified: verified.partition)


async def refresh(client: Client, wanted: Sequence[Verified]) -> None:
    """Take who leads now; positions stay."""
    response = await client.metadata(sorted({verified.partition.topic for verified in wanted}))
    leaders = {tp: p.leader_id for tp, p in partitions_of(response)}
    for verified in wanted:
        verified.leader = leaders.get(verified.partition, -1)
        for replica in verified.replicas:
            replica.leads = replica.broker == verified.leader


async def verify(client: Client, wanted: Sequence[Verified], limits: Limits) -> None:
    """Compare all partitions, from where each is, up to the high watermark it has now."""
    slots = asyncio.Semaphore(AT_ONCE)

    async with ReplicaRequests(client, limits.fetch_size, limits.max_wait_ms) as requests:

        async def one(verified: Verified) -> None:
            async with slots:
                verified.problem = None
                try:
                    await _verify(requests, verified, limits.since)
                except OttlaError as error:
                    verified.problem = str(error)

        async with asyncio.TaskGroup() as tasks:
            for verified in wanted:
                tasks.create_task(one(verified))


async def _verify(requests: ReplicaRequests, verified: Verified, since: int) -> None:
    tp = verified.partition
    if verified.leader < 0:
        raise OttlaError("it has no leader")
    replicas = verified.replicas
    end, *found = await all_of(
        [
            requests.offset(tp, verified.leader, LATEST, of_consumer=True),
            *(requests.offset(tp, r.broker, EARLIEST) for r in replicas),
            *(requests.offset(tp, r.broker, LATEST) for r in replicas),
        ]
    )
    if isinstance(end, OttlaError):
        raise end
    verified.end = end
    half = len(replicas)
    for replica, begins, ends in zip(replicas, found[:half], found[half:], strict=True):
        replica.problem = None
        if isinstance(begins, OttlaError) or isinstance(ends, OttlaError):
            replica.problem = str(begins if isinstance(begins, OttlaError) else ends)
        else:
            replica.begins, replica.ends = begins, ends
            replica.lag = max(0, end - ends)
    leader = next(r for r in replicas if r.leads)
    if leader.problem is not None:
        raise OttlaError(leader.problem)
    if verified.offset is None:
        verified.first = verified.offset = await _first(requests, verified, since)
    while (there := _there(verified)) and (progress := await _step(requests, verified, there)):
        verified.offset = progress


def _there(verified: Verified) -> list[Replica]:
    """Return who has committed records from the offset on: the leader, and one more at least."""
    assert verified.offset is not None
    assert verified.end is not None
    there = [
        r
        for r in verified.replicas
        if r.problem is None and r.ends is not None and r.ends > verified.offset
    ]
    more = verified.offset < verified.end and len(there) > 1 and any(r.leads for r in there)
    return there if more else []


async def _first(requests: ReplicaRequests, verified: Verified, since: int) -> int:
    """Return the first offset that all replicas have, of those from the wanted time on."""
    first = max(r.begins for r in verified.replicas if r.begins is not None)
    if since != EARLIEST:
        found = await requests.offset(verified.partition, verified.leader, since, of_consumer=True)
        assert verified.end is not None
        first = max(first, verified.end if found < 0 else found)
    return first


async def _step(
    requests: ReplicaRequests, verified: Verified, there: Sequence[Replica]
) -> int | None:
    """Fetch from each replica at the same offset, compare; return the next offset, None: no end."""
    assert verified.offset is not None
    assert verified.end is not None
    sent = await asyncio.gather(*(_sent(requests, r, verified.offset) for r in there))
    by_broker = {r.broker: b for r, b in zip(there, sent, strict=True) if b is not None}
    compared = [r for r in there if r.problem is None]
    leader = next((r for r in compared if r.leads), None)
    if leader is None:
        raise OttlaError(next(r.problem or "" for r in there if r.leads))
    until = min(verified.end, *(r.ends for r in compared if r.ends is not None))
    others = [r for r in compared if not r.leads]
    alike = same(by_broker[leader.broker], [by_broker[r.broker] for r in others])
    if alike is not None:
        end = min(until, alike.end)
        verified.batches += sum(base < end for base in alike.bases)
    else:
        end = _look_into(verified, leader, others, by_broker, until)
    return end if end > verified.offset else None


def _look_into(
    verified: Verified,
    leader: Replica,
    others: Sequence[Replica],
    sent: Mapping[int, memoryview],
    until: int,
) -> int:
    """Note what differs, batch by batch, below an offset; return up to which all were sent."""
    batches = {broker: batches_of(data) for broker, data in sent.items()}
    mine = batches[leader.broker]
    end = extent([mine, *(batches[r.broker] for r in others)], until)
    judge = compare_compacted if verified.compacted else compare
    for replica in others:
        replica.note(d for d in judge(mine, batches[replica.broker], end) if d.offset < end)
    verified.batches += sum(batch.base < end for batch in mine)
    return end


async def _sent(requests: ReplicaRequests, replica: Replica, offset: int) -> memoryview | None:
    """Return the batches a replica has from an offset on; None with its `problem` set."""
    try:
        with waiting(f"{replica.partition}: broker {replica.broker} to send offset {offset}"):
            for _ in range(EMPTY_RESPONSES):
                if found := await requests.batches(replica.partition, replica.broker, offset):
                    return found
                await asyncio.sleep(EMPTY_WAIT_S)
        raise OttlaError(f"it sends no record of offset {offset}, though its log goes on")
    except OttlaError as error:
        replica.problem = str(error)
        return None
