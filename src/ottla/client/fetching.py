"""Fetch: batches of partitions, asked of one broker.

Consumers, Spark jobs and replica comparison share it. The caller knows the leader, decides what to
retry, and reads the batches. Kafka: `Fetcher`.
"""

from collections.abc import Mapping

from ottla.client.client import Client
from ottla.client.error_texts import explained
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NO_EPOCH, ZERO_UUID, TopicPartition, by_topic
from ottla.model.protocol import CONSUMER, READ_UNCOMMITTED
from ottla.wire.messages.records import FetchRequest, FetchResponse

LAST_VERSION_WITH_NAMES = 12
"""Later ones name topics by their ids. Every broker of 2.7 and later knows it."""

NO_IDS: Mapping[str, bytes] = {}
NO_EPOCHS: Mapping[TopicPartition, int] = {}


async def fetch(
    client: Client,
    broker: int,
    positions: Mapping[TopicPartition, int],
    *,
    partition_bytes: int,
    max_bytes: int | None = None,
    max_wait_ms: int = 0,
    topic_ids: Mapping[str, bytes] = NO_IDS,
    leader_epochs: Mapping[TopicPartition, int] = NO_EPOCHS,
    isolation: int = READ_UNCOMMITTED,
    replica_id: int = CONSUMER,
    rack: str = "",
    timeout_s: float | None = None,
    version: int | None = None,
) -> list[tuple[TopicPartition, FetchResponse.PartitionData]]:
    """Send one Fetch from these offsets on; return the response to each partition.

    A broker sends the first batch whole, however large it is, and waits up to `max_wait_ms` for
    records. `topic_ids`: leave out, or give zeros for, topics known by name only. `rack`: where
    the consumer is; a leader may name a follower there to be asked instead (KIP-392). `version`:
    the newest by default. Raises OttlaError with the error code of the whole response.
    """
    r = FetchRequest
    topics = by_topic(positions)
    ids = {name: topic_ids.get(name, ZERO_UUID) for name in topics}

    def asked(tp: TopicPartition) -> FetchRequest.FetchPartition:
        return r.FetchPartition(
            partition=tp.partition,
            current_leader_epoch=leader_epochs.get(tp, NO_EPOCH),
            fetch_offset=positions[tp],
            partition_max_bytes=partition_bytes,
        )

    request = r(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=max_bytes or partition_bytes,
        isolation_level=isolation,
        rack_id=rack,
        topics=[
            r.FetchTopic(
                topic=name,
                topic_id=ids[name],
                partitions=[asked(TopicPartition(name, p)) for p in indexes],
            )
            for name, indexes in topics.items()
        ],
    )
    if version is None and ZERO_UUID in ids.values():
        version = LAST_VERSION_WITH_NAMES
    response = await client.call(request, broker, version=version, timeout_s=timeout_s)
    if response.error_code:
        raise responded(f"broker {broker}", response.error_code)
    names = {topic_id: name for name, topic_id in ids.items()}
    answered = [
        (TopicPartition(topic.topic or names.get(topic.topic_id, ""), p.partition_index), p)
        for topic in response.responses
        for p in topic.partitions
    ]
    return [(tp, found) for tp, found in answered if tp in positions]


def responded(who: object, code: int) -> OttlaError:
    """Return an error that says what a broker, or a partition's leader, responds with."""
    return OttlaError(f"{who} responds with {explained(code)}", ErrorCode(code))
