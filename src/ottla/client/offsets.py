"""Offsets of a log: its beginning, its end, and the first one of a time.

Kafka: `GetOffsetShell`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.client.client import Client
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import CONSUMER, EARLIEST, LATEST, READ_UNCOMMITTED, UNKNOWN_OFFSET
from ottla.wire.messages.records import ListOffsetsRequest


class Place(NamedTuple):
    """One of these is set. `before_end` counts records back from the end of each partition."""

    offset: int | None = None
    before_end: int | None = None
    timestamp: int | None = None
    """a time, or EARLIEST or LATEST"""


BEGINNING, END = Place(timestamp=EARLIEST), Place(timestamp=LATEST)


async def by_leader(
    client: Client, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, OttlaError]]:
    """Return which partitions each broker leads, and why the others have no leader."""
    led: dict[int, list[TopicPartition]] = {}
    without: dict[TopicPartition, OttlaError] = {}
    for tp in partitions:
        try:
            led.setdefault(await client.leader(*tp), []).append(tp)
        except OttlaError as error:
            without[tp] = error
    return led, without


async def log_offsets(
    client: Client,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    *,
    isolation: int = READ_UNCOMMITTED,
    problems: list[str] | None = None,
) -> dict[TopicPartition, int]:
    """Return the offset for a time, EARLIEST or LATEST of each partition that has a leader.

    A time after the last record stands for the end, as it does for Kafka's tool. What a leader does
    not tell becomes a line of `problems`; OttlaError for None.
    """
    wanted = list(partitions)
    if not wanted:
        return {}
    await client.metadata(list(dict.fromkeys(tp.topic for tp in wanted)))
    found: dict[TopicPartition, int] = {}
    # Deleted partitions and those without a leader have no offsets.
    for leader, led in (await by_leader(client, wanted))[0].items():
        request = list_offsets_request(led, timestamp, isolation)
        try:
            response = await client.call(request, leader)
        except OttlaError as error:
            if problems is None:
                raise
            problems.append(f"offsets of partitions led by broker {leader}: {error}")
            continue
        for topic in response.topics:
            for p in topic.partitions:
                if p.error_code == 0:
                    found[TopicPartition(topic.name, p.partition_index)] = p.offset
    if timestamp >= 0:
        late = [tp for tp, offset in found.items() if offset == UNKNOWN_OFFSET]
        found |= await log_offsets(client, late, LATEST, isolation=isolation, problems=problems)
    return found


def list_offsets_request(
    partitions: Sequence[TopicPartition], timestamp: int, isolation: int = READ_UNCOMMITTED
) -> Any:
    """Return the request for some partitions of one leader."""
    r = ListOffsetsRequest
    topics: dict[str, list[Any]] = {}
    for topic, index in partitions:
        one = r.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topics.setdefault(topic, []).append(one)
    return r(
        replica_id=CONSUMER,
        isolation_level=isolation,
        topics=[r.ListOffsetsTopic(name=n, partitions=ps) for n, ps in topics.items()],
    )
