"""Replicas verified over the wire: every follower's batches beside the leader's.

Who may call: `ottla verify-replicas` and tests. Replicas are read by Fetch with the replica id of
the debugging consumer, to which followers respond, those of Apache Kafka too. Invariants: nothing
changes; only what is committed is compared (below the high watermark); a broker that does not
respond is named, the others are compared all the same; memory is bounded by `fetch_size` for each
replica of `AT_ONCE` partitions. Kafka: `ReplicaVerificationTool`.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.admin.operations import configs
from ottla.admin.operations.partitions import partitions_of
from ottla.admin.operations.replica_comparison import (
    Batch,
    Difference,
    compare,
    compare_compacted,
    extent,
)
from ottla.admin.operations.replica_reading import read_batches, read_offset
from ottla.admin.session import failure
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import EARLIEST, LATEST
from ottla.net.client import Client

AT_ONCE = 8
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

    async def one(verified: Verified) -> None:
        async with slots:
            verified.problem = None
            try:
                await _verify(client, verified, limits)
            except OttlaError as error:
                verified.problem = str(error)

    async with asyncio.TaskGroup() as tasks:
        for verified in wanted:
            tasks.create_task(one(verified))


async def _verify(client: Client, verified: Verified, limits: Limits) -> None:
    tp = verified.partition
    if verified.leader < 0:
        raise OttlaError("it has no leader")
    verified.end = await read_offset(client, tp, verified.leader, LATEST, of_consumer=True)
    for replica in verified.replicas:
        replica.problem = None
        try:
            replica.begins = await read_offset(client, tp, replica.broker, EARLIEST)
            replica.ends = await read_offset(client, tp, replica.broker, LATEST)
        except OttlaError as error:
            replica.problem = str(error)
            continue
        replica.lag = max(0, verified.end - replica.ends)
    leader = next(r for r in verified.replicas if r.leads)
    if leader.problem is not None:
        raise OttlaError(leader.problem)
    if verified.offset is None:
        first = await _first(client, verified, limits)
        verified.first = verified.offset = first
    while (there := _there(verified)) and (
        progress := await _step(client, verified, there, limits)
    ):
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


async def _first(client: Client, verified: Verified, limits: Limits) -> int:
    """Return the first offset that all replicas have, of those from the wanted time on."""
    first = max(r.begins for r in verified.replicas if r.begins is not None)
    if limits.since != EARLIEST:
        tp = verified.partition
        since = await read_offset(client, tp, verified.leader, limits.since, of_consumer=True)
        assert verified.end is not None
        first = max(first, verified.end if since < 0 else since)
    return first


async def _step(
    client: Client, verified: Verified, there: Sequence[Replica], limits: Limits
) -> int | None:
    """Fetch from each replica at the same offset, compare; return the next offset, None: no end."""
    assert verified.offset is not None
    assert verified.end is not None
    sent = await asyncio.gather(*(_batches(client, r, verified.offset, limits) for r in there))
    by_broker = {r.broker: b for r, b in zip(there, sent, strict=True) if b is not None}
    compared = [r for r in there if r.problem is None]
    leader = next((r for r in compared if r.leads), None)
    if leader is None:
        raise OttlaError(next(r.problem or "" for r in there if r.leads))
    until = min(verified.end, *(r.ends for r in compared if r.ends is not None))
    end = extent([by_broker[r.broker] for r in compared], until)
    judge = compare_compacted if verified.compacted else compare
    mine = by_broker[leader.broker]
    for replica in compared:
        if not replica.leads:
            theirs = by_broker[replica.broker]
            replica.note(d for d in judge(mine, theirs, end) if d.offset < end)
    verified.batches += sum(batch.base < end for batch in mine)
    return end if end > verified.offset else None


async def _batches(
    client: Client, replica: Replica, offset: int, limits: Limits
) -> list[Batch] | None:
    """Return the batches a replica has from an offset on; None with its `problem` set."""
    try:
        for _ in range(EMPTY_RESPONSES):
            found = await read_batches(
                client, replica.partition, replica.broker, offset, limits.fetch_size,
                limits.max_wait_ms,
            )  # fmt: skip
            if found:
                return found
            await asyncio.sleep(EMPTY_WAIT_S)
        raise OttlaError(f"it sends no record of offset {offset}, though its log goes on")
    except OttlaError as error:
        replica.problem = str(error)
        return None
