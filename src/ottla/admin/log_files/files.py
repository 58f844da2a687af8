"""Which reader a file of a log dir needs; checkpoints, producer snapshots, properties.

Kafka: `DumpLogSegments`, `CheckpointFile`.
"""

import stat
from collections.abc import Iterable
from pathlib import Path

from ottla.admin.log_files.entries import (
    EpochEntry,
    Found,
    OffsetEntry,
    Problem,
    ProducerEntry,
    PropertyEntry,
)
from ottla.admin.log_files.segments import (
    INDEX,
    LOG,
    TIME_INDEX,
    TXN_INDEX,
    index,
    is_segment_file,
    segment,
    time_index,
    transaction_index,
)
from ottla.local.folders import files_below
from ottla.log import checkpoints
from ottla.log.checkpoints import CheckpointError
from ottla.log.producers import CRC_COVERS_FROM, decode_snapshot
from ottla.model.errors import OttlaError
from ottla.model.properties import load_properties
from ottla.wire.batch_header import crc32c

SNAPSHOT = ".snapshot"
OFFSET_CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.CLEANER_OFFSETS,
)
CHECKPOINTS = (
    *OFFSET_CHECKPOINTS,
    checkpoints.LEADER_EPOCHS,
    checkpoints.PARTITION_METADATA,
    checkpoints.META_PROPERTIES,
)


def known(name: str) -> bool:
    """Return whether `dump` can read a file of this name."""
    return name in CHECKPOINTS or is_segment_file(name)


def expanded(paths: Iterable[Path]) -> list[Path]:
    """Return files as they are, of folders and what is below them all known files.

    OttlaError for a folder without any; OSError for what is not there or cannot be read.
    """
    found: list[Path] = []
    for path in paths:
        if not stat.S_ISDIR(path.stat().st_mode):
            found.append(path)
            continue
        inside = list(files_below(path, known))
        if not inside:
            raise OttlaError(
                f"no segment, index, snapshot or checkpoint in {path} or below it; name a log dir, "
                "such as ottla-data/broker-0/data, a partition's folder in it, or a file"
            )
        found += inside
    return found


def topic_of(path: Path) -> str:
    """Return the topic of a file, by the name of its folder."""
    return path.absolute().parent.name.rpartition("-")[0]


def dump(path: Path, *, records: bool, contents: bool, state_of: str | None = None) -> Found:
    """Yield what a file holds and what is wrong with it; OttlaError for an unknown name."""
    if path.name in CHECKPOINTS:
        return _checkpoint(path)
    if not is_segment_file(path.name):
        raise OttlaError(
            f"{path}: not a segment, index, snapshot or checkpoint by its name; their names are as "
            "00000000000000000000.log or leader-epoch-checkpoint"
        )
    if path.suffix == LOG:
        return segment(path, records=records, contents=contents, state_of=state_of)
    if path.suffix == SNAPSHOT:
        return _producer_snapshot(path)
    return {INDEX: index, TIME_INDEX: time_index, TXN_INDEX: transaction_index}[path.suffix](path)


def _producer_snapshot(path: Path) -> Found:
    data = path.read_bytes()
    try:
        for part in decode_snapshot(data, crc32c(data[CRC_COVERS_FROM:])):
            for producer in part:
                last = producer.batches[-1] if producer.batches else None
                yield ProducerEntry(
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    coordinator_epoch=producer.coordinator_epoch,
                    txn_first_offset=producer.txn_first,
                    last_timestamp=producer.last_timestamp,
                    first_sequence=last and last.first_sequence,
                    last_sequence=last and last.last_sequence,
                    last_offset=last and last.last_offset,
                    offset_delta=last and last.offset_delta,
                )
    except OttlaError as error:
        yield Problem(str(error))


def _checkpoint(path: Path) -> Found:
    data = path.read_bytes()
    try:
        if path.name == checkpoints.LEADER_EPOCHS:
            yield from (EpochEntry(*entry) for entry in checkpoints.decode_epochs(data))
        elif path.name in OFFSET_CHECKPOINTS:
            for (topic, partition), offset in checkpoints.decode_offsets(data).items():
                yield OffsetEntry(topic, partition, offset)
        elif path.name == checkpoints.PARTITION_METADATA:
            checkpoints.decode_partition_metadata(data)
            for line in data.decode().splitlines():
                yield PropertyEntry(*line.split(": ", 1))
        else:
            for name, value in load_properties(data).items():
                yield PropertyEntry(name, value)
    except (CheckpointError, UnicodeDecodeError) as error:
        yield Problem(str(error))
