"""The offset map: which offset of the source became which of the target, as Parquet files.

Invariants: one file for each check, by its number, put in place by one rename; written again under
the same number if the job was killed before the check was noted. So the files of the checks that
are noted hold each copied record once. `_ottla-map.json` says which job they are of; other readers
of Parquet leave it out because of its name.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.durable_files import replace_file, replacing, unfinished
from ottla.model.errors import OttlaError
from ottla.pipelines.paths import of_disk, refuse_unwritable

if TYPE_CHECKING:
    import pyarrow as pa

OWNER = "_ottla-map.json"
PATTERN = "check-{:08}.parquet"
COLUMNS = (
    "source_partition", "source_first", "source_last",
    "target_partition", "target_first", "target_last",
)  # fmt: skip


def refuse_other(folder: Path, job: str, source: str, target_id: str) -> bool:
    """Return whether a folder is this job's already; OttlaError if it is something else."""
    try:
        found = json.loads((folder / OWNER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        # A run that died, or met a full disk, may have left the beginning of our own file.
        if folder.exists() and any(path != unfinished(folder / OWNER) for path in folder.iterdir()):
            raise OttlaError(
                f"offset_map {folder} has files, but no {OWNER}: give a folder of its own"
            ) from None
        refuse_unwritable(folder, "replay.offset_map")
        return False
    except ValueError:
        found = None
    if found != _owner(job, source, target_id):
        raise OttlaError(
            f"offset_map {folder} is the map of another job, source or target: give another folder"
        )
    return True


def open_folder(folder: Path, job: str, source: str, target_id: str) -> None:
    """Make the folder, or make sure that it is this job's; OttlaError if it is another's."""
    if not refuse_other(folder, job, source, target_id):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            owner = json.dumps(_owner(job, source, target_id)).encode()
            replace_file(folder / OWNER, owner)
        except OSError as error:
            raise OttlaError(f"offset_map {of_disk(error, folder)}") from None


def _owner(job: str, source: str, target_id: str) -> dict[str, str]:
    return {"job": job, "source": source, "target_id": target_id}


def complete(folder: Path, checks: int) -> bool:
    """Return whether the files of all checks before the number `checks` are there."""
    return all((folder / PATTERN.format(n)).exists() for n in range(checks))


def write(folder: Path, number: int, runs: Sequence[tuple[int, int, int, int, int]]) -> int:
    """Write a check's file of `comparing.Run`s; return how many rows it has."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [(b, y, y + count - 1, a, x, x + count - 1) for a, b, x, y, count in runs]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    kinds = (pa.int32(), pa.int64(), pa.int64()) * 2
    found = pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)],
        names=list(COLUMNS),
    )
    path = folder / PATTERN.format(number)
    try:
        with replacing(path) as part:
            parquet.write_table(found, part)
    except OSError as error:
        raise OttlaError(f"offset_map {of_disk(error, path)}") from None
    return len(rows)


def read(folder: Path) -> "pa.Table":
    """Return all of a map; OttlaError if there is none."""
    import pyarrow as pa
    from pyarrow import parquet

    files = sorted(folder.glob("check-*.parquet"))
    if not files:
        raise OttlaError(f"offset_map {folder} has no files: set replay.offset_map and run the job")
    return pa.concat_tables([parquet.read_table(file) for file in files])
