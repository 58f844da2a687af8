"""Where a copied record came from: the header that says so, written and read.

Pure functions. The header is `ottla.source`, its value is text:
`CLUSTER_ID;TOPIC;TOPIC_ID;PARTITION;OFFSET`, the ids as Kafka's tools print them. No topic name and
no id has a semicolon. A record that is copied again keeps its headers and gets one more: the last
one names the record that it was copied from, those before it the earlier steps.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.wire.record_check import read_int, varint

HEADER = "ottla.source"
ENCODED_NAME = varint(len(HEADER)) + HEADER.encode()
"""How the header's name stands in a record's bytes."""


class Origin(NamedTuple):
    """The coordinates of a record. `topic_id` is the 22-character text."""

    cluster_id: str
    topic: str
    topic_id: str
    partition: int
    offset: int


def prefix(cluster_id: str, topic: str, topic_id: str, partition: int) -> bytes:
    """Return the value of the header up to the offset, which is the same for a partition."""
    return f"{cluster_id};{topic};{topic_id};{partition};".encode()


def value_of(origin: Origin) -> bytes:
    """Return the header's value."""
    return prefix(*origin[:4]) + str(origin.offset).encode()


def parse(value: bytes | None) -> Origin | None:
    """Read the header's value; None for anything else."""
    try:
        cluster_id, topic, topic_id, partition, offset = (value or b"").decode().split(";")
        return Origin(cluster_id, topic, topic_id, int(partition), int(offset))
    except ValueError:
        return None


def chain(headers: Iterable[tuple[str, bytes | None]]) -> list[Origin]:
    """Return where a record came from, the first step first."""
    found = (parse(value) for name, value in headers if name == HEADER)
    return [origin for origin in found if origin is not None]


def encoded_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    """Read the headers of a record whose bytes behind the headers' count are given."""
    found: list[tuple[str, bytes | None]] = []
    at = 0
    while at < len(data):
        size, at = read_int(data, at)
        name = data[at : at + size].decode(errors="surrogateescape")
        at += size
        size, at = read_int(data, at)
        found.append((name, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    return found
