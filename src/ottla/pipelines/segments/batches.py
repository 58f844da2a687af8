"""One row per batch: what its header says and what its bytes are, as Arrow columns.

Invariants: values are the header's own, also where they make no sense; times are milliseconds since
1970, -1 for none. Kafka: `DefaultRecordBatch`, `DumpLogSegments`.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.pipelines.segments.folders import Segment
from ottla.pipelines.segments.headers import headers_of
from ottla.pipelines.segments.reading import Damage, Piece
from ottla.wire.batch_header import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
)
from ottla.wire.compression import CODEC_NAMES

CODECS = (*CODEC_NAMES, *(f"codec {n}" for n in range(len(CODEC_NAMES), CODEC_MASK + 1)))

COLUMNS = {
    "broker": pa.int32(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "file": pa.string(),
    "segment": pa.int64(),
    "position": pa.int64(),
    "size": pa.int64(),
    "base_offset": pa.int64(),
    "last_offset": pa.int64(),
    "leader_epoch": pa.int32(),
    "record_count": pa.int32(),
    "codec": pa.string(),
    "log_append_time": pa.bool_(),
    "transactional": pa.bool_(),
    "control": pa.bool_(),
    "delete_horizon": pa.bool_(),
    "base_timestamp": pa.int64(),
    "max_timestamp": pa.int64(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int32(),
    "base_sequence": pa.int32(),
    "crc": pa.int64(),
    "crc_computed": pa.int64(),
    "damage": pa.string(),
}
"""`segment` is the base offset in the file's name, `crc_computed` what the bytes really have;
`damage` says what is wrong, null where nothing is. Bytes that are no batch are a row with their
place, size and damage alone."""

SCHEMA = (
    "broker int, topic string, partition int, file string, segment long, position long, "
    "size long, base_offset long, last_offset long, leader_epoch int, record_count int, "
    "codec string, log_append_time boolean, transactional boolean, control boolean, "
    "delete_horizon boolean, base_timestamp long, max_timestamp long, producer_id long, "
    "producer_epoch int, base_sequence int, crc long, crc_computed long, damage string"
)


def said_of(damage: Damage) -> str:
    """Return what is wrong, as a row tells it."""
    return f"{damage.kind}: {damage.reason}"


def batch_rows(segment: Segment, piece: Piece) -> pa.Table:
    """Return a piece's batches, and its damage that is no batch, with all of `COLUMNS`."""
    return pa.concat_tables([_good_rows(segment, piece), _bare_rows(segment, piece)])


def _good_rows(segment: Segment, piece: Piece) -> pa.Table:
    heads = headers_of(piece)
    count = len(heads)
    attributes = heads["attributes"].astype(np.int16)
    bad = {d.position: said_of(d) for d in piece.damage}
    base = heads["base_offset"].astype(np.int64)
    codec = pa.DictionaryArray.from_arrays(
        pa.array((attributes & CODEC_MASK).astype(np.int8)), pa.array(CODECS)
    )
    values: dict[str, Any] = {
        **_place(segment, count),
        "position": np.array(piece.positions, np.int64),
        "size": heads["length"].astype(np.int64) + LOG_OVERHEAD,
        "base_offset": base,
        "last_offset": base + heads["last_offset_delta"],
        "leader_epoch": heads["partition_leader_epoch"].astype(np.int32),
        "record_count": heads["count"].astype(np.int32),
        "codec": codec.cast(pa.string()),
        "log_append_time": (attributes & LOG_APPEND_TIME_FLAG) != 0,
        "transactional": (attributes & TRANSACTIONAL_FLAG) != 0,
        "control": (attributes & CONTROL_FLAG) != 0,
        "delete_horizon": (attributes & DELETE_HORIZON_FLAG) != 0,
        "base_timestamp": heads["base_timestamp"].astype(np.int64),
        "max_timestamp": heads["max_timestamp"].astype(np.int64),
        "producer_id": heads["producer_id"].astype(np.int64),
        "producer_epoch": heads["producer_epoch"].astype(np.int32),
        "base_sequence": heads["base_sequence"].astype(np.int32),
        "crc": heads["crc"].astype(np.int64),
        "crc_computed": np.array(piece.checksums, np.int64),
        "damage": [bad.get(at) for at in piece.positions] if bad else pa.nulls(count, pa.string()),
    }
    return _table(values)


def _bare_rows(segment: Segment, piece: Piece) -> pa.Table:
    """Return damage that is no batch: of a batch with a bad checksum there is a row already."""
    rows = set(piece.positions)
    bare = [d for d in piece.damage if d.position not in rows]
    known: dict[str, Any] = {
        **_place(segment, len(bare)),
        "position": [d.position for d in bare],
        "size": [d.size for d in bare],
        "base_offset": [d.offset if d.offset >= 0 else None for d in bare],
        "damage": [said_of(d) for d in bare],
    }
    nulls = {name: pa.nulls(len(bare), kind) for name, kind in COLUMNS.items()}
    return _table(nulls | known)


def _place(segment: Segment, count: int) -> dict[str, Any]:
    """Return the columns that say where a segment's rows come from."""
    return {
        "broker": pa.repeat(pa.scalar(segment.broker, pa.int32()), count),
        "topic": pa.repeat(pa.scalar(segment.topic), count),
        "partition": pa.repeat(pa.scalar(segment.partition, pa.int32()), count),
        "file": pa.repeat(pa.scalar(segment.path), count),
        "segment": pa.repeat(pa.scalar(segment.base_offset), count),
    }


def _table(values: dict[str, Any]) -> pa.Table:
    return pa.table({name: pa.array(values[name], kind) for name, kind in COLUMNS.items()})
