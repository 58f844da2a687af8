"""Records deleted from the beginning of logs: DeleteRecords.

Kafka: `DeleteRecordsCommand`, whose files these are.
"""

from collections.abc import Mapping
from typing import Any

from ottla.client.client import Client
from ottla.client.error_texts import explained
from ottla.client.offsets import by_leader
from ottla.model.ids import Partition, TopicPartition
from ottla.wire.messages.records import DeleteRecordsRequest

TIMEOUT_MS = 30_000
END = -1
"""As offset: the high watermark, so all that is acknowledged."""


class Deleted(Partition, frozen=True):
    """What became of one partition: its first offset now, or the reason why not."""

    first_offset: int | None
    problem: str | None


async def delete(client: Client, offsets: Mapping[TopicPartition, int]) -> list[Deleted]:
    """Delete the records before each offset, END being all; ask each leader once."""
    await client.metadata(list(dict.fromkeys(tp.topic for tp in offsets)))
    leaders, without = await by_leader(client, offsets)
    found = [Deleted(*tp, None, str(error)) for tp, error in without.items()]
    for leader, led in leaders.items():
        request = _request({tp: offsets[tp] for tp in led})
        response = await client.call(request, leader, timeout_s=TIMEOUT_MS / 1000 + 5)
        found += [
            Deleted(
                topic.name,
                p.partition_index,
                None if p.error_code else p.low_watermark,
                explained(p.error_code) if p.error_code else None,
            )
            for topic in response.topics
            for p in topic.partitions
        ]
    return sorted(found, key=lambda d: (d.topic, d.partition))


def _request(offsets: Mapping[TopicPartition, int]) -> Any:
    r = DeleteRecordsRequest
    topics: dict[str, list[Any]] = {}
    for (topic, partition), offset in offsets.items():
        one = r.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics.setdefault(topic, []).append(one)
    return r(
        topics=[r.DeleteRecordsTopic(name=n, partitions=ps) for n, ps in topics.items()],
        timeout_ms=TIMEOUT_MS,
    )
