"""Unusual record batches: what our leader accepts and stores, compared with Kafka's own classes.

OTTLA_TEST_BATCHES=20000 runs that many, OTTLA_TEST_SEED=2 different ones.
"""

import dataclasses
import os
import random
import struct
import subprocess
import zlib
from collections import Counter
from pathlib import Path

import pytest

from ottla.log.validate import CLIENT, ValidationRules, check_leader_batch, one_batch
from ottla.model.config import default_topic_config
from ottla.model.errors import OttlaError
from ottla.wire.batch_header import ATTRIBUTES, CODEC_MASK, LENGTH, stamp, unpack_header
from ottla.wire.compression import CODEC_NAMES, NONE
from ottla.wire.records import Record, build_batch, iter_records
from support import kafka_tools
from support.odd_batches import (
    BOUNDED_TOPIC,
    COMPACTED_TOPIC,
    LOG_APPEND_TIME_TOPIC,
    NOW_MS,
    PRODUCER,
    Item,
    batches,
)

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_tools.why_not() is not None, reason=str(kafka_tools.why_not())),
]
PROGRAM = Path(__file__).parents[1] / "support" / "Batches.java"
COUNT = int(os.environ.get("OTTLA_TEST_BATCHES", "2000"))
SEED = int(os.environ.get("OTTLA_TEST_SEED", "1"))
HOUR_MS = 3_600_000

WE_REFUSE = {
    "offset delta": "Kafka stores them, and consumers see offsets that do not exist",
    "timestamp is beyond 64 bits": "Kafka's wrap around",
    "invalid snappy stream header": "Kafka continues or stops, depending on its buffer",
    "zstd data is cut short": "unnoticed if a complete frame ends in the same buffer",
    "incomplete frame": "the same",
    "too much memory": "Kafka accepts a zstd window above 128 MiB if the output is small",
}
"""Part of our error: why we refuse what Kafka accepts (docs/COMPATIBILITY.md)."""

KAFKA_FAILS = (
    "Invalid negative timestamp",
    "Invalid negative producer epoch",
    "Cannot write transactional messages",
)
"""Errors of Kafka when it compresses a batch again for the topic's codec."""


def judged_by_kafka(folder: Path, items: list[Item]) -> list[list[str]]:
    """Return for each item (error code, CRC of what is stored, CRC of the records, text)."""
    file = folder / "items"
    with file.open("wb") as out:
        for item in items:
            out.write(struct.pack(">ibb", len(item.batch), item.topic, item.codec) + item.batch)
    done = subprocess.run(
        kafka_tools.command(str(PROGRAM), str(file), "texts"),
        capture_output=True,
        text=True,
        timeout=100 + COUNT // 100,
        check=True,
    )
    found = [[*line.split(" ", 3), ""][:4] for line in done.stdout.splitlines()]
    assert len(found) == len(items)
    return found


def rules(topic: int, codec: int) -> ValidationRules:
    changed: dict[str, object] = {"max_message_bytes": 64 << 20}
    if codec != PRODUCER:
        changed["compression_type"] = CODEC_NAMES[codec] if codec else "uncompressed"
    if topic & LOG_APPEND_TIME_TOPIC:
        changed["message_timestamp_type"] = "LogAppendTime"
    if topic & COMPACTED_TOPIC:
        changed["cleanup_policy"] = ["compact"]
    if topic & BOUNDED_TOPIC:
        changed["message_timestamp_before_max_ms"] = HOUR_MS
        changed["message_timestamp_after_max_ms"] = HOUR_MS
    return ValidationRules(dataclasses.replace(default_topic_config(), **changed))


def judged_by_us(item: Item) -> list[str]:
    """Return what `judged_by_kafka` does, for one item."""
    try:
        whole = one_batch(memoryview(bytearray(item.batch)))
        kept, header = check_leader_batch(whole, rules(item.topic, item.codec), CLIENT, NOW_MS)
    except OttlaError as error:
        return [str(int(error.code)), "-", "-", str(error)]
    stamp(kept, 0, header[LENGTH], 0)
    return ["0", f"{zlib.crc32(kept):x}", content(bytes(kept)), ""]


def content(batch: bytes) -> str:
    """Return a CRC of all records, as Batches.java computes it."""
    parts: list[bytes] = []

    def put(data: bytes | None) -> None:
        parts.append(b"-1 " if data is None else b"%d " % len(data) + data)

    for record in iter_records(batch):
        parts.append(b"%d %d " % (record.offset, record.timestamp))
        put(record.key)
        put(record.value)
        for name, value in record.headers:
            text = name.encode(errors="surrogateescape").decode(errors="replace")
            put(b"?" if "\ufffd" in text else text.encode())
            put(value)
    return f"{zlib.crc32(b''.join(parts)):x}"


def explained(item: Item, ours: list[str], theirs: list[str]) -> str | None:
    """Return the reason for an intended difference, or None."""
    attributes = unpack_header(item.batch, 0)[ATTRIBUTES]
    recompressed = item.codec not in (PRODUCER, attributes & CODEC_MASK)
    if theirs[0] == "0" and ours[0] != "0":
        return next((text for text in WE_REFUSE if text in ours[3]), None)
    if theirs[0] != "0" and recompressed:
        return next((text for text in KAFKA_FAILS if text in theirs[3]), None)
    if recompressed and attributes & 8:
        return "recompressed with the records' own timestamps, which Kafka replaces"
    return None


def same_code(item: Item, ours: list[str], theirs: list[str]) -> bool:
    """Return whether the error code is Kafka's, or a better one for its UNKNOWN_SERVER_ERROR."""
    if theirs[0] == "-1":
        return ours[0] in ("87", "76", "32")
    if (theirs[0], ours[0]) == ("32", "87") or (item.topic & COMPACTED_TOPIC and ours[0] == "32"):
        return True  # the batch has two errors
    return ours[0] == theirs[0]


def test_odd_batches_like_kafka(tmp_path):
    items = list(batches(SEED, COUNT))
    theirs = judged_by_kafka(tmp_path, items)
    differing, reasons, taken, codes = [], Counter(), Counter(), []
    for item, they in zip(items, theirs, strict=True):
        we = judged_by_us(item)
        readable = they[0] == "0" and they[2] != "unreadable"
        taken[item.made.split()[1]] += readable
        recompressed = item.codec != PRODUCER
        if readable and we[0] == "0" and (recompressed or we[1] == they[1]) and we[2] == they[2]:
            continue
        if not readable and we[0] != "0":
            if they[0] != "0" and not same_code(item, we, they):
                codes.append((item.made, we, they))
            continue
        reason = explained(item, we, they)
        if reason is None:
            differing.append((item.made, we, they))
        reasons[reason] += 1
    print(f"{len(items)} batches, taken {dict(taken)}, meant {dict(reasons)}")
    assert not differing
    assert not codes
    assert min(taken.values()) > COUNT // 30  # enough batches of every codec are valid
    assert sum(reasons.values()) < COUNT // 20


def test_what_we_write_is_read_by_kafka(tmp_path):
    """All codecs, from 0 bytes to 3 MB, compressible and not."""
    r = random.Random(5)
    sizes = (0, 1, 11, 12, 255, 256, 4096, 32767, 32768, 65535, 65536, 65537, 131072, 262145)
    items = []
    for codec in range(NONE, len(CODEC_NAMES)):
        for size in (*sizes, 1 << 20, (1 << 20) + 1, 3_000_001):
            for value in (bytes(size), r.randbytes(size), b"some text " * (size // 10)):
                record = Record(timestamp=NOW_MS, value=value)
                several = [record, Record(timestamp=NOW_MS, value=b"last")]
                items.append(Item(0, PRODUCER, build_batch(several, codec=codec), "ours"))
    for item, they in zip(items, judged_by_kafka(tmp_path, items), strict=True):
        assert they[0] == "0", they
        assert they[2] == content(item.batch)
        assert judged_by_us(item)[:3] == they[:3]
