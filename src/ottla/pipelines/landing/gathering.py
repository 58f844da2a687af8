"""One file for each date of a batch: a second task reads what the first ones kept of each date.

Invariants: those of `writing`: an attempt writes into a folder of its own and names its files.
Pieces are read where they lie, from Arrow files below `_staging` that are mapped into memory; they
are gone with the batch. Memory: the rows of one date.
"""

import heapq
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ottla.pipelines.landing.writing import Piece, Written, attempted, save


@dataclass(frozen=True, slots=True)
class Gathering:
    """Dates that a task writes, each in one file: the pieces of each date's folder."""

    dates: dict[str, list[Piece]]
    folder: str
    compression: str


def divided_dates(pieces: Iterable[Piece], count: int) -> list[dict[str, list[Piece]]]:
    """Return the pieces by date, in about `count` shares of as many rows each."""
    by_date: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_date.setdefault(piece.folder, []).append(piece)
    sizes = {folder: sum(p.rows for p in some) for folder, some in by_date.items()}
    shares: list[dict[str, list[Piece]]] = [{} for _ in range(min(count, len(by_date)))]
    smallest = [(0, number) for number in range(len(shares))]
    for folder in sorted(by_date, key=lambda f: (-sizes[f], f)):
        size, number = heapq.heappop(smallest)
        shares[number][folder] = by_date[folder]
        heapq.heappush(smallest, (size + sizes[folder], number))
    return shares


def gather(task: Gathering) -> Written:
    """Write each date of a task."""
    return attempted(lambda: _gathered(task), task.folder)


def _gathered(task: Gathering) -> Written:
    written, name = Written(), uuid.uuid4().hex
    folder = Path(task.folder) / name
    folder.mkdir(parents=True)
    paths = {piece.path for pieces in task.dates.values() for piece in pieces}
    files = {path: pa.ipc.open_file(pa.memory_map(path)) for path in paths}
    for number, (date, pieces) in enumerate(task.dates.items()):
        rows = pa.Table.from_batches([files[p.path].get_batch(p.number) for p in pieces])
        path = folder / f"part-{number}-{name}.parquet"
        save(path, rows, task.compression)
        written.rows[str(path)] = f"{date}/{path.name}"
    return written
