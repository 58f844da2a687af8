"""Records for a page: read from a place on, within bounds of number, bytes and time.

Invariants: records are read as `ottla consume` reads them, up to where the logs end when the
reading begins; whatever stops it, the positions say where to go on.
"""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client import topics
from ottla.client.client import Client
from ottla.client.consumer import Consumer
from ottla.client.offsets import Place
from ottla.client.topics import TopicFacts
from ottla.console.asked import BadRequestError
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_text
from ottla.model.protocol import LATEST
from ottla.wire.records import Record

MIB = 1024 * 1024
MOST_BYTES = 64 * MIB
MOST_S = 8.0
MOST_PARTITIONS = 200
TURN_S = 0.02
"""So long records are looked at until other pages get a turn."""


class Bounds(NamedTuple):
    """What ends a reading, besides the number of records."""

    bytes: int
    s: float


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
    """What was read, so far while the reading goes on. `positions`: all before them was looked at.

    Whoever watches may take records out of it; `count` is how many there were.
    """

    records: list[tuple[TopicPartition, Record]] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    count: int = 0
    looked_at: int = 0
    looked_at_bytes: int = 0
    total: int = 0
    """How many offsets there were to look at."""
    stopped: str = ""
    """Which bound ended it; empty where everything was read."""

    @property
    def left(self) -> int:
        """How many offsets are left to look at."""
        return sum(max(0, end - self.positions[p]) for p, end in self.ends.items())

    @property
    def percent_left(self) -> int:
        """The same in percent of what there was to look at, rounded up."""
        return -(-100 * self.left // max(1, self.total))


async def read(
    client: Client, wanted: Wanted, bounds: Bounds | None = None, found: Found | None = None
) -> Found:
    """Return the records there are; OttlaError if the topic is unknown or cannot be read.

    Bounds are MOST_BYTES and MOST_S unless others are given. Who gives `found` sees it grow.
    """
    bounds = bounds or Bounds(MOST_BYTES, MOST_S)
    found = found or Found()
    facts = await topics.describe_topic(client, wanted.topic)
    chosen = _partitions(facts, wanted.partitions)
    topic_id = uuid_from_text(facts.topic_id) if facts.topic_id else ZERO_UUID

    def settle() -> None:
        found.positions = {tp.partition: offset for tp, offset in reader.positions.items()}

    reader = Consumer(
        client,
        {wanted.topic: topic_id},
        isolation=wanted.isolation,
        settled=settle,
        turn_s=TURN_S,
    )
    try:
        async with asyncio.timeout(bounds.s):
            ends = await reader.offsets(chosen, LATEST)
            starts = await _starts(reader, chosen, wanted)
            for tp in chosen:
                reader.start_at_offset(tp, min(starts[tp], ends[tp]))
                reader.stop_at_offset(tp, ends[tp])
            settle()
            found.ends = {tp.partition: end for tp, end in ends.items()}
            found.total = max(found.total, found.left)
            await reader.read(_Sink(wanted, bounds, found), None)
    except TimeoutError:
        found.stopped = found.stopped or f"time limit of {bounds.s:g} s reached"
    settle()
    return found


def _partitions(facts: TopicFacts, numbers: tuple[int, ...]) -> list[TopicPartition]:
    known = [p.partition for p in facts.partitions]
    for number in numbers:
        if number not in known:
            raise BadRequestError(f"partition {number}: {facts.name} has 0 to {known[-1]}")
    chosen = numbers or tuple(known)
    if len(chosen) > MOST_PARTITIONS:
        raise BadRequestError(
            f"choose a partition: {len(chosen):,} is more than the {MOST_PARTITIONS} read together"
        )
    return [TopicPartition(facts.name, number) for number in chosen]


async def _starts(
    reader: Consumer, chosen: list[TopicPartition], wanted: Wanted
) -> dict[TopicPartition, int]:
    if isinstance(wanted.start, Place):
        return await reader.offsets_at(chosen, wanted.start)
    return {tp: wanted.start.get(tp.partition, 0) for tp in chosen}


class _Sink:
    def __init__(self, wanted: Wanted, bounds: Bounds, found: Found) -> None:
        self._wanted, self._bounds, self._found = wanted, bounds, found

    def __call__(self, tp: TopicPartition, record: Record) -> bool:
        found = self._found
        found.looked_at += 1
        found.looked_at_bytes += len(record.key or b"") + len(record.value or b"")
        if self._fits(record):
            found.records.append((tp, record))
            found.count += 1
        if found.count >= self._wanted.most:
            found.stopped = f"page of {self._wanted.most:,} records"
        elif found.looked_at_bytes >= self._bounds.bytes:
            found.stopped = f"{self._bounds.bytes // MIB:,} MiB searched"
        return not found.stopped

    def _fits(self, record: Record) -> bool:
        wanted = self._wanted
        if wanted.key is not None and record.key != wanted.key:
            return False
        return not wanted.needle or any(
            wanted.needle in part
            for part in (
                record.key or b"",
                record.value or b"",
                *(name.encode(errors="surrogateescape") for name, _ in record.headers),
                *(content or b"" for _, content in record.headers),
            )
        )
