"""Records for a page: read from a place on, within bounds of number, bytes and time.

Who may call: the pages of records. Invariants: records are read as `ottla consume` reads them, up
to where the logs end when the reading begins; whatever stops it, the positions say where to go on.
"""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.admin.operations import topics
from ottla.admin.operations.consume import Reader
from ottla.admin.operations.places import Place
from ottla.admin.operations.topics import TopicFacts
from ottla.admin.session import world
from ottla.console.asked import BadRequestError
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_text
from ottla.model.protocol import LATEST
from ottla.net.client import Client
from ottla.wire.records import Record

MOST_BYTES = 64 * 1024 * 1024
MOST_S = 8.0
MOST_PARTITIONS = 200


class Wanted(NamedTuple):
    """What to read. `needle` is looked for in keys, values and headers; `key`: exactly this key."""

    topic: str
    partitions: tuple[int, ...]
    """None named: all"""
    start: Place | dict[int, int]
    """a place, or the offset of each partition"""
    most: int
    needle: bytes = b""
    key: bytes | None = None
    isolation: int = 0


@dataclass(slots=True)
class Found:
    """What was read. `positions` by partition: all before them was looked at."""

    records: list[tuple[TopicPartition, Record]] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    looked_at: int = 0
    looked_at_bytes: int = 0
    stopped: str = ""
    """Which bound ended it; empty where everything was read."""

    @property
    def left(self) -> int:
        """How many offsets are left to look at."""
        return sum(max(0, end - self.positions[p]) for p, end in self.ends.items())


async def read(client: Client, wanted: Wanted) -> Found:
    """Return the records there are; OttlaError if the topic is unknown or cannot be read."""
    facts = await topics.describe_topic(client, wanted.topic)
    chosen = _partitions(facts, wanted.partitions)
    topic_id = uuid_from_text(facts.topic_id) if facts.topic_id else ZERO_UUID
    reader = Reader(client, world(), {wanted.topic: topic_id}, isolation=wanted.isolation)
    found = Found()
    try:
        async with asyncio.timeout(MOST_S):
            ends = await reader.offsets(chosen, LATEST)
            found.ends = {tp.partition: end for tp, end in ends.items()}
            starts = await _starts(reader, chosen, wanted)
            for tp in chosen:
                reader.start_at_offset(tp, min(starts[tp], ends[tp]))
                reader.stop_at_offset(tp, ends[tp])
            await reader.read(_Sink(wanted, found), None)
    except TimeoutError:
        found.stopped = f"{MOST_S:g} s are over"
    found.positions = {tp.partition: offset for tp, offset in reader.positions.items()}
    found.ends = {p: end for p, end in found.ends.items() if p in found.positions}
    return found


def _partitions(facts: TopicFacts, numbers: tuple[int, ...]) -> list[TopicPartition]:
    known = [p.partition for p in facts.partitions]
    for number in numbers:
        if number not in known:
            raise BadRequestError(f"partition {number}: {facts.name} has 0 to {known[-1]}")
    chosen = numbers or tuple(known)
    if len(chosen) > MOST_PARTITIONS:
        raise BadRequestError(f"name a partition: {len(chosen):,} are too many to read at once")
    return [TopicPartition(facts.name, number) for number in chosen]


async def _starts(
    reader: Reader, chosen: list[TopicPartition], wanted: Wanted
) -> dict[TopicPartition, int]:
    if isinstance(wanted.start, Place):
        return await reader.offsets_at(chosen, wanted.start)
    return {tp: wanted.start.get(tp.partition, 0) for tp in chosen}


class _Sink:
    def __init__(self, wanted: Wanted, found: Found) -> None:
        self._wanted, self._found = wanted, found

    def __call__(self, tp: TopicPartition, record: Record) -> bool:
        found = self._found
        found.looked_at += 1
        found.looked_at_bytes += len(record.key or b"") + len(record.value or b"")
        if self._fits(record):
            found.records.append((tp, record))
        if len(found.records) >= self._wanted.most:
            found.stopped = f"{self._wanted.most:,} records are a page"
        elif found.looked_at_bytes >= MOST_BYTES:
            found.stopped = f"{MOST_BYTES // 1024 // 1024} MiB were looked at"
        return not found.stopped

    def _fits(self, record: Record) -> bool:
        wanted = self._wanted
        if wanted.key is not None and record.key != wanted.key:
            return False
        return not wanted.needle or any(
            wanted.needle in part
            for part in (
                record.key or b"", record.value or b"",
                *(name.encode(errors="surrogateescape") for name, _ in record.headers),
                *(content or b"" for _, content in record.headers),
            )
        )  # fmt: skip
