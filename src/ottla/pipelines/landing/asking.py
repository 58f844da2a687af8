"""What the cluster says of a topic: its id, its partitions, their first and last offsets.

Who may call: the lake's parts. Invariants: every wait has a bound; while a partition has no leader
it is asked for again, for PATIENCE_S.
"""

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ottla.log.files import OsFiles
from ottla.model.errors import RETRIABLE, ErrorCode, OttlaError, UnknownTopicError
from ottla.model.ids import ZERO_UUID
from ottla.model.ports import World
from ottla.net import runtime
from ottla.net.client import Client
from ottla.pipelines.config import Cluster
from ottla.pipelines.landing.offsets import Span
from ottla.pipelines.landing.settings import EARLIEST, LATEST
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

T = TypeVar("T")
CALL_TIMEOUT_S = 10.0
PATIENCE_S = 60.0
RETRY_WAIT_S = 0.3
MOST_AT_ONCE = 500
"""Partitions in one request."""
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster names it. Both ids are empty where brokers are too old for them."""

    name: str
    cluster_id: str
    topic_id: str
    partitions: tuple[int, ...]


def asked(cluster: Cluster, ask: Callable[[Client, World], Awaitable[T]]) -> T:
    """Run `ask` with a client of the cluster; return its result."""
    if cluster.secured:
        raise OttlaError(
            "cluster.options ask for TLS or SASL: offsets are asked for over PLAINTEXT alone; "
            "give a PLAINTEXT listener in bootstrap_servers"
        )

    async def conversation() -> T:
        world = runtime.real_world(OsFiles())
        try:
            client = Client(
                world, cluster.bootstrap_servers, "ottla-lake", timeout_s=CALL_TIMEOUT_S
            )
        except ValueError as error:
            raise OttlaError(f"bootstrap_servers: {error}") from None
        try:
            return await ask(client, world)
        finally:
            await client.close()

    return runtime.run(conversation)


async def describe(client: Client, topic: str) -> Topic:
    """Return what the cluster says of a topic; UnknownTopicError if there is none."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = await client.metadata([topic])
        found = response.topics[0]
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(f"there is no topic {topic}")
        if not found.error_code:
            break
        if found.error_code not in RETRIABLE or time.monotonic() > deadline:
            raise OttlaError(f"topic {topic}: {ErrorCode(found.error_code).name}")
        await asyncio.sleep(RETRY_WAIT_S)
    topic_id = "" if found.topic_id == ZERO_UUID else str(uuid.UUID(bytes=bytes(found.topic_id)))
    partitions = sorted(p.partition_index for p in found.partitions)
    return Topic(topic, response.cluster_id or "", topic_id, tuple(partitions))


async def offsets(
    client: Client, topic: str, partitions: Iterable[int], timestamp: int, isolation: str
) -> dict[int, int]:
    """Return an offset of each partition: EARLIEST, LATEST, or the first one from a time on.

    Where nothing is as late as `timestamp` (milliseconds), it is the end. With read_committed the
    end is the last stable offset. OttlaError if a partition has no leader for PATIENCE_S.
    """
    found: dict[int, int] = {}
    left = set(partitions)
    deadline = time.monotonic() + PATIENCE_S
    refresh, last = False, ""
    while left:
        by_leader: dict[int, list[int]] = defaultdict(list)
        try:
            for partition in sorted(left):
                leader = await client.leader(topic, partition, refresh=refresh)
                refresh = False
                by_leader[leader].append(partition)
            for leader, wanted in by_leader.items():
                for start in range(0, len(wanted), MOST_AT_ONCE):
                    some = wanted[start : start + MOST_AT_ONCE]
                    last = await _ask(client, leader, topic, some, timestamp, isolation, found)
        except OttlaError as error:
            if not error.retriable:
                raise
            last = str(error)
        left -= found.keys()
        if left:
            if time.monotonic() > deadline:
                raise OttlaError(f"offsets of {topic}-{min(left)}: {last} for {PATIENCE_S:g} s")
            await asyncio.sleep(RETRY_WAIT_S)
            refresh = True
    if timestamp >= 0 and (late := [p for p, offset in found.items() if offset < 0]):
        found |= await offsets(client, topic, late, LATEST, isolation)
    return found


async def _ask(
    client: Client,
    leader: int,
    topic: str,
    partitions: list[int],
    timestamp: int,
    isolation: str,
    found: dict[int, int],
) -> str:
    """Ask one leader; put its answers into `found`; return the last problem worth another try."""
    wanted = ListOffsetsRequest.ListOffsetsTopic(
        name=topic,
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=p, timestamp=timestamp)
            for p in partitions
        ],
    )
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=ISOLATION_LEVELS[isolation], topics=[wanted]
    )
    response = await client.call(request, leader)
    problem = ""
    for answer in response.topics[0].partitions:
        code = answer.error_code
        if code == 0:
            found[answer.partition_index] = int(answer.offset)
        elif code in RETRIABLE:
            problem = ErrorCode(code).name
        else:
            name = f"{topic}-{answer.partition_index}"
            raise OttlaError(f"offsets of {name}: {ErrorCode(code).name}", ErrorCode(code))
    return problem


async def epoch_ends(client: Client, topic: str, epochs: Mapping[int, int]) -> dict[int, int]:
    """Return where each partition's log ends that leaders up to an epoch have written.

    That is the log's end while the epoch is the newest. -1 where the leader does not know any more.
    """
    found: dict[int, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    refresh, problem = False, ""
    for partition, epoch in epochs.items():
        wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=-1, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[wanted])
            ],
        )
        while partition not in found:
            try:
                leader = await client.leader(topic, partition, refresh=refresh)
                answer = (await client.call(request, leader)).topics[0].partitions[0]
                if not answer.error_code:
                    found[partition] = int(answer.end_offset)
                    continue
                problem = ErrorCode(answer.error_code).name
                retriable = answer.error_code in RETRIABLE
            except OttlaError as error:
                problem, retriable = str(error), error.retriable
            if not retriable or time.monotonic() > deadline:
                raise OttlaError(f"leader epochs of {topic}-{partition}: {problem}")
            refresh = True
            await asyncio.sleep(RETRY_WAIT_S)
    return found


async def bounds(client: Client, topic: Topic, isolation: str) -> dict[int, Span]:
    """Return what the cluster holds of each partition: its first offset, and its end."""
    first = await offsets(client, topic.name, topic.partitions, EARLIEST, isolation)
    end = await offsets(client, topic.name, topic.partitions, LATEST, isolation)
    return {p: Span(first[p], max(first[p], end[p])) for p in topic.partitions}
