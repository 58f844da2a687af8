"""Records deleted from the beginning of logs: DeleteRecords.

Kafka: `DeleteRecordsCommand`, whose files these are.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ottla.admin.error_texts import explained
from ottla.admin.operations.offsets import by_leader
from ottla.admin.operations.partitions import Partition
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.client import Client
from ottla.wire.messages.delete_records import DeleteRecordsRequest

TIMEOUT_MS = 30_000
MAX_FILE_BYTES = 4_194_304
END = -1
"""As offset: the high watermark, so all that is acknowledged."""


class Deleted(Partition, frozen=True):
    """What became of one partition: its first offset now, or the reason why not."""

    first_offset: int | None
    problem: str | None


class _Entry(msgspec.Struct):
    topic: str
    partition: int
    offset: int


class _File(msgspec.Struct):
    partitions: list[_Entry]
    version: int = 1


def parse_file(data: bytes, where: str) -> dict[TopicPartition, int]:
    """Return the offsets of Kafka's file: {"partitions": [{"topic", "partition", "offset"}]}."""
    if len(data) > MAX_FILE_BYTES:
        raise OttlaError(f"{where}: more than {MAX_FILE_BYTES:,} bytes are no list of offsets")
    try:
        found = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OttlaError(f"{where}: {error}") from None
    if found.version != 1:
        raise OttlaError(f"{where}: version {found.version}, expected 1")
    offsets: dict[TopicPartition, int] = {}
    for entry in found.partitions:
        tp = TopicPartition(entry.topic, entry.partition)
        if tp in offsets:
            raise OttlaError(f"{where}: {tp} is named twice")
        if not END <= entry.offset < 1 << 63:
            raise OttlaError(f"{where}: {tp}: {entry.offset} is no offset")
        offsets[tp] = entry.offset
    if not offsets:
        raise OttlaError(f"{where}: no partitions in it")
    return offsets


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
