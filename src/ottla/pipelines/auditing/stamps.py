"""Stamps: a header that distinguishes each record from all others, and a producer's report.

Invariants: needs neither Spark nor a network; a header is `PRODUCER;EVENT_MS;NUMBER` in ASCII,
numbers are counted from 0 by producer and bucket of ten minutes of event time, so that a bucket can
be audited by itself; a producer's name is never used twice. Uber's Chaperone counts by bucket, too,
but cannot say which records are missing.

    stamps = Stamps("web-7", "orders")
    header = stamps.next(event_ms, key, value)
    producer.produce("orders", value, key, headers=[header], on_delivery=…)
    stamps.acknowledged(header)           # when the broker has it
    file.writelines(stamps.report())      # now and then, and at the end
"""

import json
import re
import threading
import uuid
from dataclasses import dataclass, field

HEADER = "ottla.audit"
BUCKET_MS = 600_000
PATTERN = r"^([A-Za-z0-9._-]{1,200});(\d{1,15});(\d{1,15})$"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,160}")

Stamp = tuple[str, bytes]
"""A header as clients take them: its name and its value."""


@dataclass(slots=True)
class _Bucket:
    """`size`: bytes of keys and values; `open`: numbers that no one has acknowledged yet."""

    count: int = 0
    size: int = 0
    open: set[int] = field(default_factory=set)


class Stamps:
    """Stamps what one producer sends to one topic; may be used from several threads."""

    def __init__(self, name: str, topic: str) -> None:
        """`name` is made unique by what is added to it; ValueError if it has odd characters."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no producer's name: letters, digits, . _ - alone")
        self.producer = f"{name}.{uuid.uuid4().hex[:12]}"
        self.topic = topic
        self._buckets: dict[int, _Bucket] = {}
        self._lock = threading.Lock()

    def next(self, event_ms: int, key: bytes | None, value: bytes | None) -> Stamp:
        """Return the header of the next record; `event_ms`: when it happened, since 1970."""
        with self._lock:
            bucket = self._buckets.setdefault(event_ms // BUCKET_MS * BUCKET_MS, _Bucket())
            number = bucket.count
            bucket.count += 1
            bucket.size += len(key or b"") + len(value or b"")
            bucket.open.add(number)
        return HEADER, f"{self.producer};{event_ms};{number}".encode()

    def acknowledged(self, stamp: Stamp) -> None:
        """Take note that a broker has the record: from now on it must be there."""
        _, event_ms, number = stamp[1].decode().split(";")
        with self._lock:
            self._buckets[int(event_ms) // BUCKET_MS * BUCKET_MS].open.discard(int(number))

    def report(self) -> list[str]:
        """Return all that was sent so far, a line of JSON for each bucket.

        `{"topic", "producer", "bucket_ms", "count", "bytes", "unacknowledged": [numbers]}`; a later
        report of the same bucket takes the place of this one.
        """
        with self._lock:
            return [
                json.dumps(
                    {
                        "topic": self.topic,
                        "producer": self.producer,
                        "bucket_ms": bucket_ms,
                        "count": bucket.count,
                        "bytes": bucket.size,
                        "unacknowledged": sorted(bucket.open),
                    }
                )
                + "\n"
                for bucket_ms, bucket in sorted(self._buckets.items())
            ]
