"""A segment's aborted transactions: Kafka's `.txnindex`, for read_committed consumers.

Who may call: `segment`. Kafka: `TransactionIndex` and `AbortedTxn`. Invariants: the
file is created with its first entry; entries are in the order of their markers; bytes that
cannot be an index raise `CorruptIndexError` and the segment builds it again.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.index import CorruptIndexError

ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = ENTRY.size
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """Read an index file; CorruptIndexError unless it can be one."""
    if len(data) % ENTRY_SIZE:
        raise CorruptIndexError(f"{len(data)} bytes are no whole number of entries")
    entries = []
    for version, *fields in ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptIndexError(f"an entry of version {version}")
        entry = AbortedTransaction(*fields)
        if entry.last_offset < base_offset:
            raise CorruptIndexError(f"offset {entry.last_offset} lies before the segment")
        entries.append(entry)
    return entries


def overlapping(
    entries: Iterable[AbortedTransaction], first: int, upper: int
) -> tuple[list[AbortedTransaction], bool]:
    """Return transactions with records in [first, upper), and whether no later one can follow."""
    found = []
    for entry in entries:
        if entry.last_offset >= first and entry.first_offset < upper:
            found.append(entry)
        if entry.last_stable_offset >= upper:
            return found, True
    return found, False
