"""Replicas compared batch by batch: what one has otherwise than the leader.

A decider. Invariants: bytes in, differences out; every batch that both have whole is compared once;
what only one side was sent yet is compared later. Replicas have the same bytes as a rule, so bytes
are compared first (`Same`), and looked into where they are not the same. Replicas of a compacted
topic are cleaned each on its own, so only records that both have are compared. Kafka:
`ReplicaVerificationTool`, which compares offsets and the header's checksum.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from ottla.model.errors import OttlaError
from ottla.model.ports import Buffer
from ottla.wire.records import Record, crc_ok, iter_batches, iter_records

PIECE = 1 << 16


class Batch(NamedTuple):
    """One record batch; `data` is the whole of it."""

    base: int
    last: int
    crc: int
    epoch: int
    damaged: bool
    data: bytes


class Same(NamedTuple):
    """Batches that all replicas have byte for byte: first offsets, and the offset behind them."""

    bases: list[int]
    end: int


class Difference(Struct, frozen=True):
    """What a replica has otherwise: `kind` is offsets, checksum, epoch, damaged or record."""

    kind: str
    offset: int
    text: str


def batches_of(records: bytes | memoryview | None) -> list[Batch]:
    """Return the batches that a Fetch response holds whole; CorruptRecordError for no batches."""
    if not records:
        return []
    data = bytes(records)
    return [
        Batch(
            header.base_offset,
            header.last_offset,
            header.crc,
            header.partition_leader_epoch,
            not crc_ok(data, position, header),
            data[position : position + header.size],
        )
        for position, header in iter_batches(data, allow_partial=True)
    ]


def same(leader: Buffer, others: Sequence[Buffer]) -> Same | None:
    """Return what all were sent whole and alike; None: look into it, by `batches_of`.

    That is where a byte differs, or a batch has not the checksum that its header claims, which is
    not to be passed over where all replicas have the same wrong bytes. CorruptRecordError for no
    batches.
    """
    common = min([len(leader), *map(len, others)])
    if not all(_alike(leader, other, common) for other in others):
        return None
    bases: list[int] = []
    end = 0
    for position, header in iter_batches(leader, allow_partial=True):
        if position + header.size > common:
            break
        if not crc_ok(leader, position, header):
            return None
        bases.append(header.base_offset)
        end = header.next_offset
    return Same(bases, end)


def _alike(one: Buffer, other: Buffer, length: int) -> bool:
    """Compare in pieces: a copy of a whole response costs more than all else (page faults)."""
    a, b = memoryview(one)[:length], memoryview(other)[:length]
    return all(
        a[i : i + PIECE].tobytes() == b[i : i + PIECE].tobytes() for i in range(0, length, PIECE)
    )


def extent(replicas: Sequence[Sequence[Batch]], until: int) -> int:
    """Return the offset up to which (exclusive) all replicas were sent whole batches."""
    return min(until, *((batches[-1].last + 1 if batches else 0) for batches in replicas))


def compare(leader: Sequence[Batch], other: Sequence[Batch], end: int) -> list[Difference]:
    """Return what differs below `end`."""
    found: list[Difference] = []
    i = j = 0
    while i < len(leader) and j < len(other) and min(leader[i].base, other[j].base) < end:
        mine, theirs = leader[i], other[j]
        if (mine.base, mine.last) == (theirs.base, theirs.last):
            found += _same_offsets(mine, theirs)
            i, j = i + 1, j + 1
            continue
        found.append(
            Difference(
                "offsets", min(mine.base, theirs.base),
                f"the leader has a batch of offsets {mine.base} to {mine.last}, the replica one of "
                f"{theirs.base} to {theirs.last}",
            )
        )  # fmt: skip
        i, j = _aligned(leader, i, other, j)
    return found


def _same_offsets(leader: Batch, other: Batch) -> list[Difference]:
    if other.damaged and not leader.damaged:
        text = "the replica's batch does not have the checksum that its header claims"
        return [Difference("damaged", other.base, text)]
    if leader.damaged and not other.damaged:
        text = "the leader's batch does not have the checksum that its header claims"
        return [Difference("damaged", other.base, text)]
    if leader.damaged:
        text = "neither the leader's batch nor the replica's has the checksum that it claims"
        return [Difference("damaged", other.base, text)]
    if leader.crc != other.crc:
        text = f"the leader's checksum is {leader.crc}, the replica's {other.crc}"
        return [Difference("checksum", other.base, text)]
    if leader.epoch != other.epoch:
        text = f"the leader has it of leader epoch {leader.epoch}, the replica of {other.epoch}"
        return [Difference("epoch", other.base, text)]
    return []


def _aligned(leader: Sequence[Batch], i: int, other: Sequence[Batch], j: int) -> tuple[int, int]:
    """Return the next places where both have a batch that begins at the same offset."""
    i, j = i + 1, j + 1
    while i < len(leader) and j < len(other) and leader[i].base != other[j].base:
        if leader[i].base < other[j].base:
            i += 1
        else:
            j += 1
    return i, j


def compare_compacted(
    leader: Sequence[Batch], other: Sequence[Batch], end: int
) -> list[Difference]:
    """Return what differs below `end` in records that both have."""
    mine, damaged = _records(leader, "leader")
    theirs, more = _records(other, "replica")
    found = damaged + more
    for offset in sorted(mine.keys() & theirs.keys()):
        if offset < end and mine[offset] != theirs[offset]:
            text = f"the records of offset {offset} are not the same"
            found.append(Difference("record", offset, text))
    return sorted(found, key=lambda difference: difference.offset)


def _records(batches: Sequence[Batch], whose: str) -> tuple[dict[int, Record], list[Difference]]:
    records: dict[int, Record] = {}
    damaged: list[Difference] = []
    for batch in batches:
        try:
            if batch.damaged:
                raise OttlaError("it does not have the checksum that its header claims")
            records.update((record.offset, record) for record in iter_records(batch.data))
        except OttlaError as error:
            damaged.append(
                Difference("damaged", batch.base, f"the {whose}'s batch cannot be read: {error}")
            )
    return records, damaged
