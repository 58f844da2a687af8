"""The small files of a replica, and single cells of its segments, read for the comparison.

Invariant: what is missing is left open (None), what is there and cannot be read is reported.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.admin.replica_files.folders import DirFacts
from ottla.admin.replica_files.reading import PIECE, Batch, Damage, SegmentReader
from ottla.admin.replica_files.replica import Replica, SegmentFacts
from ottla.admin.replica_files.summary import GRID
from ottla.log import checkpoints
from ottla.log.checkpoints import CheckpointError
from ottla.model.ids import TopicPartition, uuid_to_text


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


def read_cell(replica: Replica, cell: int) -> list[tuple[Batch, str]]:
    """Return the batches whose base offset is in a cell, in the files' order, with their files."""
    found: list[tuple[Batch, str]] = []
    for segment in replica.segments:
        there = segment.facts.cells.get(cell)
        if there is None:
            continue
        try:
            for item in SegmentReader(segment.path, segment.size, there.position).items():
                if isinstance(item, Damage):
                    continue
                if item.base // GRID == cell:
                    found.append((item, segment.path))
                # Offsets rise, but for what is wrong: so not at the first of the next cell.
                elif item.base // GRID > cell and item.position > there.position + PIECE:
                    break
        except FileNotFoundError:
            continue
    return found
