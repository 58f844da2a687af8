"""Damage: which offsets of a log cannot be read, and the file beside the log that lists them.

Pure values, text in, text out (fault F20). Kafka has no such file: a JVM broker looks only at names
that it knows in a partition's folder, so it ignores this one. Invariant: bytes that are no such
file still say that the log is damaged; only a file that is not there says that it is not.
"""

from collections.abc import Iterable

import msgspec

from ottla.model.ids import TopicPartition

DAMAGE_FILE = ".ottla-damaged"
"""In a partition's folder, and in one that was set aside."""

MOST_RANGES = 1000
"""Ranges in the file at most; a log may have more."""

Range = tuple[int, int]
"""The first offset that cannot be read, and the one from which on records can be read again."""


class DamageFile(msgspec.Struct, frozen=True):
    """The contents of a damage file. `committed` is the high watermark, -1 if not known."""

    partition: str
    ranges: tuple[Range, ...]
    committed: int = -1


def encode(tp: TopicPartition, ranges: Iterable[Range], committed: int) -> bytes:
    """Return the contents of a damage file."""
    lines = [f"partition={tp}", f"committed={committed}"]
    lines += [f"damaged={first}..{end - 1}" for first, end in ranges]
    return "".join(f"{line}\n" for line in lines).encode()


def decode(data: bytes) -> DamageFile:
    """Read a damage file; lines that are garbage are left out."""
    partition = ""
    committed = -1
    ranges = []
    for line in data.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        try:
            if key == "partition":
                partition = value
            elif key == "committed":
                committed = int(value)
            elif key == "damaged":
                first, _, last = value.partition("..")
                ranges.append((int(first), int(last) + 1))
        except ValueError:
            continue
    return DamageFile(partition, tuple(ranges), committed)


def with_range(ranges: Iterable[Range], first: int, end: int) -> tuple[Range, ...]:
    """Return the ranges with another one, in order; those that touch become one."""
    merged: list[Range] = []
    for one in sorted((*ranges, (first, end))):
        if merged and one[0] <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], one[1])
        else:
            merged.append(one)
    return tuple(merged[:MOST_RANGES])


def above(ranges: Iterable[Range], log_start_offset: int) -> tuple[Range, ...]:
    """Return the ranges that a log still has whose first records were deleted."""
    return tuple((first, end) for first, end in ranges if end > log_start_offset)


def text_of(ranges: Iterable[Range]) -> str:
    """Return the ranges for a log line: `120..135,200..207`."""
    return ",".join(f"{first}..{end - 1}" for first, end in ranges)
