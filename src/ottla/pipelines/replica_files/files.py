"""The small files of a replica, and single cells of its segments, read for the comparison.

Invariant: what is missing is left open (None), what is there and cannot be read is reported.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.log import checkpoints
from ottla.log.checkpoints import CheckpointError
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.pipelines.replica_files.replica import Batch, Replica, SegmentFacts
from ottla.pipelines.segments.folders import DirFacts
from ottla.pipelines.segments.headers import headers_of
from ottla.pipelines.segments.reading import Piece, SegmentReader
from ottla.pipelines.segments.summary import GRID
from ottla.wire.batch_header import LOG_OVERHEAD


class Known(NamedTuple):
    """A log as it was listed: whose it is, where, and what the checkpoints beside it say of it."""

    broker: int | None
    log_dir: str
    high_watermark: int | None
    log_start: int | None
    cleaned: int | None


def known_of(broker: int | None, log_dir: str, tp: TopicPartition, facts: DirFacts) -> Known:
    """Return what the checkpoints of a log dir say of one of its logs."""
    return Known(
        broker,
        log_dir,
        facts.high_watermarks.get(tp),
        facts.log_starts.get(tp),
        facts.cleaned.get(tp),
    )


def replica_of(tp: TopicPartition, known: Known, segments: Sequence[SegmentFacts]) -> Replica:
    """Return a replica with what its small files say; segments that are gone are left out."""
    folder = f"{known.log_dir}/{tp}"
    epochs, problem = _epochs_in(folder)
    return Replica(
        tp=tp,
        broker=known.broker,
        folder=folder,
        segments=sorted(s for s in segments if not s.facts.vanished),
        topic_id=topic_id_in(folder),
        checkpoint=epochs,
        checkpoint_problem=problem,
        high_watermark=known.high_watermark,
        log_start=known.log_start,
        cleaned=known.cleaned,
    )


def _epochs_in(folder: str) -> tuple[list[tuple[int, int]] | None, str]:
    try:
        data = Path(folder, checkpoints.LEADER_EPOCHS).read_bytes()
        return checkpoints.decode_epochs(data), ""
    except FileNotFoundError:
        return None, ""
    except CheckpointError as error:
        return None, f"{checkpoints.LEADER_EPOCHS}: {error}"


def topic_id_in(folder: str) -> str | None:
    """Return the topic id of a log's partition.metadata, as text; None if there is none."""
    try:
        data = Path(folder, checkpoints.PARTITION_METADATA).read_bytes()
        return uuid_to_text(checkpoints.decode_partition_metadata(data))
    except (FileNotFoundError, CheckpointError):
        return None


def read_cell(replica: Replica, cell: int) -> list[Batch]:
    """Return the batches of a replica whose base offset is in a cell, in the files' order."""
    found: list[Batch] = []
    for segment, place in replica.places_of(cell):
        try:
            for piece in SegmentReader(segment.path, segment.size, place).pieces():
                found += _batches_of(piece, segment.path, cell)
                # Offsets rise, but for what is wrong; then the first difference is what counts.
                if piece.headers and int(headers_of(piece)["base_offset"][-1]) // GRID > cell:
                    break
        except FileNotFoundError:
            continue
    return found


def _batches_of(piece: Piece, path: str, cell: int) -> list[Batch]:
    heads = headers_of(piece)
    base = heads["base_offset"]
    return [
        Batch(
            int(base[at]),
            int(base[at]) + int(heads["last_offset_delta"][at]),
            int(heads["partition_leader_epoch"][at]),
            int(heads["length"][at]) + LOG_OVERHEAD,
            int(heads["crc"][at]),
            piece.checksums[at],
            piece.positions[at],
            path,
        )
        for at in range(len(heads))
        if int(base[at]) // GRID == cell
    ]
