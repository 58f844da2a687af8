"""The demo's proof: everything read back by another client (aiokafka) and compared with the acks.

Invariants: `problems` is a pure function of what was acknowledged and what was read: an
acknowledged record stands at its place, nothing stands twice, and each key's records are in order.
Reading has a bound in time and ends at the offsets that were the end when it began.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.admin.demo.producing import number_of
from ottla.model.errors import OttlaError, StartupError
from ottla.model.printable import plural

READ_TIMEOUT_S = 180.0
MAX_PROBLEMS = 20
METADATA_AGE_MS = 2_000


@dataclass(slots=True)
class ReadBack:
    """What a reading found: by (partition, offset) the record's number and key."""

    found: dict[tuple[int, int], tuple[int, bytes]] = field(default_factory=dict)
    seconds: float = 0.0


def problems(
    acked: Iterable[tuple[int, int, int]],
    found: dict[tuple[int, int], tuple[int, bytes]],
) -> list[str]:
    """Return what is wrong, in words; `acked` holds (number, partition, offset)."""
    wrong: list[str] = []
    for number, partition, offset in acked:
        got = found.get((partition, offset))
        if got is None or got[0] != number:
            there = "nothing" if got is None else f"record {got[0]}"
            wrong.append(
                f"lost: record {number} was acknowledged at {partition}:{offset}, {there} is there"
            )
    seen: dict[int, tuple[int, int]] = {}
    last: dict[bytes, int] = {}
    for place in sorted(found):
        number, key = found[place]
        if number < 0:
            wrong.append(f"foreign: what stands at {place[0]}:{place[1]} was never produced")
            continue
        if number in seen:
            wrong.append(f"twice: record {number} stands at {seen[number]} and {place}")
        seen[number] = place
        if number <= last.get(key, -1):
            wrong.append(f"order: key {key.decode()} has record {number} after record {last[key]}")
        last[key] = number
    return wrong


@dataclass(frozen=True, slots=True)
class Landed:
    """What DuckDB counts in the Delta tables: rows, flights, flights by the hour; by airline."""

    rows: int
    distinct: int
    in_hours: int
    delays: list[tuple[str, int, float | None, float | None, float, int]]
    """airline, flights, mean delay at departure and at arrival in minutes, late in %, cancelled"""


DELAYS = """
SELECT airline, CAST(sum(flights) AS BIGINT), sum(departure_delay) / sum(departed),
       sum(arrival_delay) / sum(arrived), 100.0 * sum(late) / sum(flights),
       CAST(sum(flights) - sum(departed) AS BIGINT)
FROM hourly GROUP BY airline ORDER BY 2 DESC, 1
"""
"""Late is more than 15 minutes after schedule."""


def count_landed(lake: Path) -> Landed:
    """Count by another reader than the one that wrote, from the files that each table names."""
    import duckdb
    from deltalake import DeltaTable

    database = duckdb.connect()
    for name in ("flights", "hourly"):
        files = DeltaTable(lake / name).file_uris()
        database.from_parquet(files).create_view(name)
    rows, distinct = database.sql("SELECT count(*), count(DISTINCT n) FROM flights").fetchall()[0]
    delays = database.sql(DELAYS).fetchall()
    return Landed(rows, distinct, sum(row[1] for row in delays), delays)


def read_back(
    bootstrap: str,
    topic: str,
    partitions: Sequence[int],
    progress: Callable[[int], None] = lambda _: None,
    timeout_s: float = READ_TIMEOUT_S,
) -> ReadBack:
    """Read partitions from their beginning to their present end, with aiokafka."""
    return asyncio.run(_read_back(bootstrap, topic, partitions, progress, timeout_s))


async def _read_back(
    bootstrap: str,
    topic: str,
    partitions: Sequence[int],
    progress: Callable[[int], None],
    timeout_s: float,
) -> ReadBack:
    try:
        import aiokafka
        from aiokafka.errors import KafkaError
    except ImportError:
        raise StartupError(
            "the demo needs aiokafka, which is not installed: pip install 'ottla[demo]'"
        ) from None
    result = ReadBack()
    started = time.monotonic()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 * 1024 * 1024,
        # A leader that moved while it looked for a beginning is asked again and again, until the
        # metadata is old (`Fetcher._reset_offsets`).
        metadata_max_age_ms=METADATA_AGE_MS,
    )
    try:
        async with asyncio.timeout(timeout_s):
            await consumer.start()
            wanted = [aiokafka.TopicPartition(topic, p) for p in partitions]
            consumer.assign(wanted)
            ends = await consumer.end_offsets(wanted)
            await consumer.seek_to_beginning(*wanted)
            while await _behind(consumer, ends):
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    for record in records:
                        place = (record.partition, record.offset)
                        result.found[place] = (number_of(record.value), record.key or b"")
                progress(len(result.found))
    except TimeoutError:
        raise OttlaError(
            f"reading {topic} back did not end within {timeout_s:g} s "
            f"({plural(len(result.found), 'record')} came)"
        ) from None
    except KafkaError as error:
        raise OttlaError(f"reading {topic} back failed: {error}") from error
    finally:
        await consumer.stop()
    result.seconds = time.monotonic() - started
    return result


async def _behind(consumer: Any, ends: dict[Any, int]) -> bool:
    for partition, end in ends.items():
        if await consumer.position(partition) < end:
            return True
    return False
