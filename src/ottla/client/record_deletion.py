"""Records deleted from the beginning of logs: DeleteRecords.

Kafka: `DeleteRecordsCommand`, whose files these are.
"""

from collections.abc import Mapping

from ottla.client.client import Client
from ottla.client.coordinators import at_each_leader
from ottla.client.error_texts import explained
from ottla.model.ids import Partition, TopicPartition, by_topic
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
    timeout_s = TIMEOUT_MS / 1000 + 5

    def request(some: list[TopicPartition]) -> DeleteRecordsRequest:
        return _request({tp: offsets[tp] for tp in some})

    asked = await at_each_leader(client, offsets, request, timeout_s=timeout_s)
    asked.note("records", None)
    found = [Deleted(*tp, None, str(error)) for tp, error in asked.leaderless.items()]
    found += [
        Deleted(
            topic.name,
            p.partition_index,
            None if p.error_code else p.low_watermark,
            explained(p.error_code) if p.error_code else None,
        )
        for response in asked.responses
        for topic in response.topics
        for p in topic.partitions
    ]
    return sorted(found, key=lambda d: (d.topic, d.partition))


def _request(offsets: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
    r = DeleteRecordsRequest
    topics = [
        r.DeleteRecordsTopic(
            name=name,
            partitions=[
                r.DeleteRecordsPartition(partition_index=p, offset=offsets[TopicPartition(name, p)])
                for p in indexes
            ],
        )
        for name, indexes in by_topic(offsets).items()
    ]
    return r(topics=topics, timeout_ms=TIMEOUT_MS)
