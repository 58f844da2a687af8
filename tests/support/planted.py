"""Faults in segment files, as tests plant them: one per function, each told by what it changed."""

import functools
import os
from pathlib import Path

from ottla.log import checkpoints
from ottla.model.ids import TopicPartition
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import Record, build_batch, iter_batches, iter_records
from support.batches import patch_leader_fields


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def batches(path: Path) -> list[tuple[int, BatchHeader, bytes]]:
    """Return position, header and bytes of each batch of a file."""
    data = path.read_bytes()
    return [
        (at, header, data[at : at + header.size]) for at, header in iter_batches(memoryview(data))
    ]


def write(path: Path, pieces: list[bytes]) -> None:
    path.write_bytes(b"".join(pieces))


def flip(path: Path, number: int, at: int = 70) -> int:
    """Flip a bit of a batch; return its base offset."""
    position, header, _ = batches(path)[number]
    data = bytearray(path.read_bytes())
    data[position + at] ^= 0x10
    path.write_bytes(data)
    return header.base_offset


def cut_tail(path: Path, number: int, inside: int = 0) -> int:
    """Cut a file before a batch, or `inside` bytes into it; return the log's end offset then."""
    position, header, _ = batches(path)[number]
    os.truncate(path, position + inside)
    return header.base_offset


def lose(path: Path, number: int) -> tuple[int, int]:
    """Take a batch out of a file; return its first and last offset."""
    found = batches(path)
    write(path, [data for i, (_, _, data) in enumerate(found) if i != number])
    return found[number][1].base_offset, found[number][1].last_offset


def double(path: Path, number: int) -> int:
    """Write a batch twice; return its base offset."""
    found = batches(path)
    write(path, [d for i, (_, _, d) in enumerate(found) for _ in range(2 if i == number else 1)])
    return found[number][1].base_offset


def other_epoch(path: Path, number: int, epoch: int) -> int:
    """Give a batch another leader epoch, which its checksum does not cover; return its offset."""
    position, header, _ = batches(path)[number]
    data = bytearray(path.read_bytes())
    patch_leader_fields(memoryview(data), position, header.base_offset, epoch)
    path.write_bytes(data)
    return header.base_offset


def other_value(path: Path, number: int) -> int:
    """Change a value and mend the checksum, so that the batch is sound by itself."""
    found = batches(path)
    _, header, data = found[number]
    records = list(iter_records(data))
    value = records[0].value or b"x"
    records[0] = records[0]._replace(value=bytes([value[0] ^ 1]) + value[1:])
    changed = build_batch(
        records,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    write(path, [changed if i == number else d for i, (_, _, d) in enumerate(found)])
    return header.base_offset


def swap(one: Path, other: Path) -> None:
    """Let two files change names."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def log(
    folder: Path,
    runs: list[tuple[int, int]],
    *,
    per_segment: int = 4,
    per_batch: int = 5,
    salt: bytes = b"",
    first: int = 0,
) -> int:
    """Write a log of runs (epoch, batches) with its epochs and topic id; return its end offset."""
    folder.mkdir(parents=True)
    offset = first
    epochs: list[tuple[int, int]] = []
    pieces: list[tuple[int, bytes]] = []
    for epoch, count in runs:
        epochs.append((epoch, offset))
        for _ in range(count):
            batch = bytearray(_batch(per_batch, salt, len(pieces) % 7))
            patch_leader_fields(memoryview(batch), 0, offset, epoch)
            pieces.append((offset, bytes(batch)))
            offset += per_batch
    cut(folder, pieces, per_segment)
    (folder / checkpoints.LEADER_EPOCHS).write_bytes(checkpoints.encode_epochs(epochs))
    id_ = checkpoints.encode_partition_metadata(b"0123456789abcdef")
    (folder / checkpoints.PARTITION_METADATA).write_bytes(id_)
    return offset


@functools.cache
def _batch(count: int, salt: bytes, number: int) -> bytes:
    value = salt + b"%d" % number + b"v" * 40
    return build_batch([Record(timestamp=1000 + i, key=b"k", value=value) for i in range(count)])


def cut(folder: Path, pieces: list[tuple[int, bytes]], per_segment: int) -> None:
    """Write batches (base offset, bytes) as files of so many."""
    for at in range(0, len(pieces), per_segment):
        some = pieces[at : at + per_segment]
        write(folder / f"{some[0][0]:020}.log", [data for _, data in some])


def marks(log_dir: Path, name: str, offsets: dict[str, int]) -> None:
    """Write an offset checkpoint, of `topic-partition` names."""
    entries = {}
    for text, offset in offsets.items():
        topic, _, number = text.rpartition("-")
        entries[TopicPartition(topic, int(number))] = offset
    (log_dir / name).write_bytes(checkpoints.encode_offsets(entries))
