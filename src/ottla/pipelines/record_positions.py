"""Where the fields of many records lie, found with a few calls for all of them.

Invariants: pure functions over bytes; what they accept is exactly what `wire.records.iter_payload`
accepts, with the same values; for all else the response is None, and the caller asks that plain
reader. Only the records' lengths are walked one by one: they are varints, and each tells where the
next record begins. Kafka: `DefaultRecord.readFrom`.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ottla.wire.record_check import read_int

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

PADDING = bytes(16)
"""What has to stand behind the last record, so that a varint may be read at its very end."""

SMALLEST_RECORD = 7
"""Size, attributes, timestamp, offset, key and value lengths, header count: a byte each."""

_LONGEST_VARINT = 9
"""In bytes. Ten are allowed, but 63 bits are all that int64 holds before the sign is undone."""

_LARGEST_DELTA = 1 << 53
"""Deltas beyond are left to the plain reader, so that no sum here can overflow."""


@dataclass(frozen=True, slots=True)
class Positions:
    """One entry per record in each; positions are into the bytes that were parsed.

    A key or value of None has a length of -1, and its end equals its start.
    """

    timestamp_deltas: Ints
    offset_deltas: Ints
    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints
    headers: "HeaderPositions | None"
    """None where no record has any."""


@dataclass(frozen=True, slots=True)
class HeaderPositions:
    """`counts` has an entry per record, the rest one per header, in the records' order."""

    counts: Ints
    records: Ints
    name_starts: Ints
    name_lengths: Ints
    value_starts: Ints
    value_lengths: Ints


def record_starts(data: bytes, pos: int, end: int, count: int, found: list[int]) -> bool:
    """Append the starts of `count` records that fill `data[pos:end]`; False if they do not."""
    if count * SMALLEST_RECORD > end - pos:
        return False
    append = found.append
    last = len(found) + count
    previous = reach = 0
    next_try = len(found)
    while len(found) < last:
        append(pos)
        byte = data[pos]
        second = data[pos + 1]
        if byte < 0x80:
            length = 1 + (byte >> 1)
        elif second < 0x80:
            length = 2 + (second << 6 | (byte & 0x7F) >> 1)
        else:
            length = _length(data, pos)
        pos += length
        if pos > end:
            return False
        if length == previous and len(found) >= next_try:
            most = min(last - len(found), (end - pos) // length, max(_FIRST_REACH, reach))
            same = _same_size(data, pos, length, most)
            found.extend(range(pos, pos + same * length, length))
            pos += same * length
            reach = 4 * most if same == most else 0
            next_try = len(found) if same else len(found) + _WALK_AFTER_MISS
        previous = length
    return pos == end


_FIRST_REACH = 32
_WALK_AFTER_MISS = 24
"""Records walked plainly after a run proved too short, so that irregular batches lose little."""


def _length(data: bytes, pos: int) -> int:
    """Return how long a record is, its size included."""
    size, after = read_int(data, pos)
    return after - pos + max(size, 0)


def _same_size(data: bytes, pos: int, length: int, most: int) -> int:
    """Return how many of `most` records from `pos` on begin with the size of the one before.

    The same byte of all of them is one strided slice. A record's size starts with bytes that no
    other size starts with, so what begins alike is equally long.
    """
    same = most
    for at in range(4):
        byte = data[pos - length + at : pos - length + at + 1]
        column = data[pos + at : pos + at + same * length : length]
        same = min(same, len(column) - len(column.lstrip(byte)))
        if byte < b"\x80" or not same:
            return same
    return 0


def parse(data: bytes, starts: Ints, limits: Ints) -> Positions | None:
    """Find all fields of the records that begin and end there; None if any is malformed or odd.

    `data` ends with PADDING, which is part of no record.
    """
    octets = np.frombuffer(data, np.uint8)
    if (octets[starts] & 1).any():  # a negative size
        return None
    at = _after_varint(octets, starts) + 1  # and the attributes
    try:
        timestamp_deltas, at = _varints(octets, at)
        offset_deltas, at = _varints(octets, at)
        key_lengths, key_starts = _varints(octets, at)
        value_lengths, value_starts = _varints(octets, _skipped(key_starts, key_lengths, limits))
        header_counts, at = _varints(octets, _skipped(value_starts, value_lengths, limits))
        headers, at = _headers(octets, header_counts, at, limits)
    except _OddError:
        return None
    if (at != limits).any() or _too_large(timestamp_deltas) or _too_large(offset_deltas):
        return None
    return Positions(
        timestamp_deltas,
        offset_deltas,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        headers,
    )


class _OddError(Exception):
    """Something that the plain reader has to judge."""


def _too_large(deltas: Ints) -> bool:
    return bool(deltas.max() > _LARGEST_DELTA or deltas.min() < -_LARGEST_DELTA)


def _skipped(starts: Ints, lengths: Ints, limits: Ints) -> Ints:
    """Return where fields end; a length below zero stands for null, as in the plain reader."""
    ends: Ints = starts + np.maximum(lengths, 0)
    if (ends > limits).any():
        raise _OddError
    return ends


def _after_varint(octets: Bytes, at: Ints) -> Ints:
    """Return the positions after varints known to be whole."""
    after = at + 1
    going = np.flatnonzero(octets[at] >= 0x80)
    while going.size:
        more = octets[after[going]] >= 0x80
        after[going] += 1
        going = going[more]
    return after


def _varints(octets: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Return the zigzag varints at these positions, and the positions after them."""
    first = octets[at]
    after = at + 1
    longer = first >= 0x80
    values = first.astype(np.int64)
    if longer.all():  # mostly all are equally long: spare the detour through indices
        values &= 0x7F
        second = octets[after]
        values |= (second & 0x7F).astype(np.int64) << 7
        after += 1
        _continue(octets, values, after, np.flatnonzero(second >= 0x80), 14)
    elif longer.any():
        going = np.flatnonzero(longer)
        values[going] &= 0x7F
        _continue(octets, values, after, going, 7)
    return (values >> 1) ^ -(values & 1), after


def _continue(octets: Bytes, values: Ints, after: Ints, going: Any, shift: int) -> None:
    """Add the further bytes of the varints `going`, in place."""
    while going.size:
        if shift == 7 * _LONGEST_VARINT:
            raise _OddError
        more = octets[np.minimum(after[going], len(octets) - 1)]
        values[going] |= (more & 0x7F).astype(np.int64) << shift
        after[going] += 1
        going = going[more >= 0x80]
        shift += 7


def _headers(
    octets: Bytes, counts: Ints, at: Ints, limits: Ints
) -> tuple[HeaderPositions | None, Ints]:
    """Walk all records' first headers, then all second ones ...; return where records end."""
    if not counts.any():
        return None, at
    if (counts < 0).any() or (counts > limits - at).any():
        raise _OddError
    rounds: list[tuple[Ints, ...]] = []
    after = at.copy()
    left = np.flatnonzero(counts)
    while left.size:
        name_lengths, name_starts = _varints(octets, after[left])
        if (name_lengths < 0).any():
            raise _OddError
        value_lengths, value_starts = _varints(
            octets, _skipped(name_starts, name_lengths, limits[left])
        )
        after[left] = _skipped(value_starts, value_lengths, limits[left])
        rounds.append((left, name_starts, name_lengths, value_starts, value_lengths))
        left = left[counts[left] > len(rounds)]
    columns = [np.concatenate(parts) for parts in zip(*rounds, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return HeaderPositions(counts, *(column[order] for column in columns)), after
