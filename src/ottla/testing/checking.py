"""Checking: whether what was acknowledged to an application is what the topic holds.

Invariants: a record is known by key and value, and by partition and offset where the
application tells them; nothing is found wrong that a correct cluster may do: a record that was sent
and never acknowledged may be there or not, but never twice.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

from ottla.client.client import Client
from ottla.client.consumer import Consumer
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import Files
from ottla.model.protocol import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from ottla.net.runtime import real_world
from ottla.wire.records import Record

SHOWN = 5

__tracebackhide__ = True


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A record that was acknowledged to the application. -1: it does not know where."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int = -1
    offset: int = -1

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}@{self.offset}" if self.offset >= 0 else self.topic
        return f"{where} key={self.key!r} value={self.value!r}"


@dataclass(frozen=True, slots=True)
class Found:
    """A record as the second reader found it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset} key={self.key!r} value={self.value!r}"


@dataclass(slots=True)
class Checked:
    """The result: how much was compared, and what is wrong."""

    acknowledged: int = 0
    found: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    """How many of each kind happened."""
    late: dict[str, int] = field(default_factory=dict)
    """How many of these began when the application had finished."""

    @property
    def right(self) -> bool:
        return not (self.lost or self.doubled or self.reordered)

    def __str__(self) -> str:
        lines = [f"{self.acknowledged} records acknowledged, {self.found} found"]
        kinds = {"lost": self.lost, "doubled": self.doubled, "reordered": self.reordered}
        for name, wrong in kinds.items():
            lines += [f"{name}: {len(wrong)}"] if wrong else []
            lines += [f"  {one}" for one in wrong[:SHOWN]]
            lines += [f"  and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        if self.faults:
            late = f" (after the block's work: {_counts(self.late)})" if self.late else ""
            lines.append(f"faults: {_counts(self.faults)}{late}")
        return "\n".join(lines)


def _counts(faults: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(faults.items()))


_Content = tuple[str, bytes | None, bytes | None]


def check(acknowledged: Sequence[Acknowledged], found: Iterable[Found]) -> Checked:
    """Compare the acknowledged records, in their order, with all that the topics hold."""
    by_place: dict[tuple[str, int, int], Found] = {}
    by_content: dict[_Content, list[Found]] = {}
    for one in found:
        by_place[one.topic, one.partition, one.offset] = one
        by_content.setdefault((one.topic, one.key, one.value), []).append(one)
    result = Checked(len(acknowledged), len(by_place))
    places = _lost(acknowledged, by_place, by_content, result)
    _doubled(acknowledged, by_content, result)
    _reordered(acknowledged, places, result)
    return result


def _lost(
    acknowledged: Sequence[Acknowledged],
    by_place: dict[tuple[str, int, int], Found],
    by_content: dict[_Content, list[Found]],
    result: Checked,
) -> list[Found | None]:
    """Note what is not there; return where each acknowledged record was found."""
    places: list[Found | None] = []
    taken: Counter[_Content] = Counter()
    for one in acknowledged:
        content = (one.topic, one.key, one.value)
        if one.offset >= 0:
            there = by_place.get((one.topic, one.partition, one.offset))
            if there is None:
                result.lost.append(str(one))
            elif (there.key, there.value) != (one.key, one.value):
                result.lost.append(f"{one}; there is key={there.key!r} value={there.value!r}")
                there = None
        else:
            same = by_content.get(content, [])
            there = same[taken[content]] if taken[content] < len(same) else None
            taken[content] += 1
            if there is None:
                result.lost.append(str(one))
        places.append(there)
    return places


def _doubled(
    acknowledged: Sequence[Acknowledged],
    by_content: dict[_Content, list[Found]],
    result: Checked,
) -> None:
    """Note what is there more often than it was acknowledged, and more than once."""
    wanted = Counter((one.topic, one.key, one.value) for one in acknowledged)
    for content, same in by_content.items():
        most = max(1, wanted[content])
        if len(same) > most:
            at = ", ".join(f"{one.topic}-{one.partition}@{one.offset}" for one in same)
            result.doubled.append(
                f"key={content[1]!r} value={content[2]!r} is there {len(same)} times, "
                f"acknowledged {wanted[content]}: {at}"
            )


def _reordered(
    acknowledged: Sequence[Acknowledged], places: Sequence[Found | None], result: Checked
) -> None:
    """Note records of one key that lie in another order than they were acknowledged in."""
    last: dict[tuple[str, int, bytes], Found] = {}
    for one, there in zip(acknowledged, places, strict=True):
        if one.key is None or there is None:
            continue
        key = (there.topic, there.partition, one.key)
        before = last.get(key)
        if before is not None and before.offset > there.offset:
            result.reordered.append(f"{there} was acknowledged after {before}")
        else:
            last[key] = there


def read_back(
    bootstrap: str, topics: Sequence[str], *, committed: bool, timeout_s: float
) -> list[Found]:
    """Return all records of these topics, by partition in the order of their offsets.

    `committed`: without those of transactions that were aborted or are open. A loop may run in the
    caller's thread.
    """

    async def bounded() -> list[Found]:
        try:
            async with asyncio.timeout(timeout_s):
                return await _read(bootstrap, topics, committed=committed)
        except TimeoutError:
            names = ", ".join(topics)
            raise OttlaError(f"{names} could not be read within {timeout_s:g} s") from None

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(bounded())).result()


async def _read(bootstrap: str, topics: Sequence[str], *, committed: bool) -> list[Found]:
    world = real_world(cast("Files", None))
    client = Client(world, bootstrap, "ottla-checker")
    found: list[Found] = []

    def take(tp: TopicPartition, record: Record) -> bool:
        value = None if record.value is None else bytes(record.value)
        key = None if record.key is None else bytes(record.key)
        found.append(Found(tp.topic, tp.partition, record.offset, key, value))
        return True

    try:
        metadata = await client.metadata(topics)
        ids = {str(topic.name): topic.topic_id for topic in metadata.topics}
        partitions = [
            TopicPartition(str(topic.name), part.partition_index)
            for topic in metadata.topics
            for part in topic.partitions
        ]
        missing = sorted(set(topics) - {tp.topic for tp in partitions})
        if missing:
            raise OttlaError(f"no such topic: {', '.join(missing)}")
        reader = Consumer(client, ids, isolation=READ_COMMITTED if committed else READ_UNCOMMITTED)
        ends = await reader.offsets(partitions, LATEST)
        await reader.start_at(partitions, EARLIEST)
        for tp, end in ends.items():
            reader.stop_at_offset(tp, end)
        await reader.read(take, None)
    finally:
        await client.close()
    return sorted(found, key=lambda one: (one.topic, one.partition, one.offset))
