"""Small files made few: the newest batches of a table become one, by one exchange of folders.

Invariants: a new `data` is made in `_staging` (batches that stay are hard links), every row of it
is read back and held against the old ones, and then both folders change places at once (Linux:
renameat2 with RENAME_EXCHANGE). A reader that lists `data` sees the old files or the new, never
both: the new batch has a number of its own, so that no path means first the one and then the other.
A run that is killed leaves one of them whole, the other in `_staging`, which the next run removes.
Only the newest batches can be taken: a manifest holds the digest of the one before. Memory: a few
times BUFFER_BYTES.
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from ottla.model.errors import OttlaError
from ottla.pipelines.landing.manifest import DATA, File, Landed, Manifest, batch_folder
from ottla.pipelines.landing.table import Table
from ottla.pipelines.landing.writing import BUFFER_BYTES, writer

TARGET_BYTES = 128 * 1024 * 1024
"""A batch whose files are half as large on the average, by date, is left as it is."""
ROWS_AT_ONCE = 65_536


def compact(table: Table, compression: str, target: int = TARGET_BYTES) -> int:
    """Make the newest batches one; return how many there were, 0 if there is nothing to do."""
    some = small(table.batches, target)
    if len(some) < 2 and not any(has_many_files(manifest, target) for manifest in some):
        return 0
    stage = table.stage()
    data = stage.data
    for manifest in table.batches[: -len(some)]:
        _link(table.folder / DATA, data, batch_folder(manifest.batch))
    folder = data / batch_folder(table.next_batch)
    folder.mkdir(parents=True)
    for place, paths in _by_date(table.folder / DATA, some).items():
        _rewrite(paths, folder / place, compression, target)
    table.replace(stage, some, lambda files, before: merged_manifest(some, files, before))
    return len(some)


def small(batches: list[Manifest], target: int) -> list[Manifest]:
    """Return the batches from the first small one on."""
    for at, manifest in enumerate(batches):
        folders = {os.path.dirname(file.path) for file in manifest.files}  # noqa: PTH120
        if sum(file.bytes for file in manifest.files) < target // 2 * len(folders):
            return batches[at:]
    return []


def has_many_files(manifest: Manifest, target: int) -> bool:
    """Return whether a batch has more files than its bytes need, date by date."""
    bytes_of: dict[str, int] = {}
    for file in manifest.files:
        folder = os.path.dirname(file.path)  # noqa: PTH120 - a relative text
        bytes_of[folder] = bytes_of.get(folder, 0) + file.bytes
    return len(manifest.files) > sum(-(-size // target) for size in bytes_of.values())


def merged_manifest(some: list[Manifest], files: list[File], previous: str) -> Manifest:
    """Return the manifest of batches that have become one."""
    parts: dict[int, list[Landed]] = {}
    for manifest in some:
        for partition, landed in manifest.partitions.items():
            for one in landed:
                _add(parts.setdefault(partition, []), one)
    return msgspec.structs.replace(
        some[-1],
        batch=some[-1].batch + 1,
        first=some[0].first,
        previous=previous,
        committed_ms=time.time_ns() // 1_000_000,
        partitions=parts,
        keep=any(manifest.keep for manifest in some),
        files=files,
        dead_files=[dead for manifest in some for dead in manifest.dead_in_place()],
    )


def _add(parts: list[Landed], one: Landed) -> None:
    """Add what landed of a partition; offsets that follow each other are one part."""
    if parts and parts[-1].end == one.start:
        last = parts.pop()
        one = Landed(
            start=last.start,
            end=one.end,
            rows=last.rows + one.rows,
            dead=last.dead + one.dead,
            gaps=last.gaps + one.gaps,
            lost=last.lost + one.lost,
        )
    parts.append(one)


def _link(data: Path, into: Path, name: str) -> None:
    for parent, _, files in os.walk(data / name):
        target = into / Path(parent).relative_to(data)
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            os.link(Path(parent, file), target / file)


def _by_date(data: Path, some: list[Manifest]) -> dict[str, list[Path]]:
    """Return the files of each date's folder, in the order of their batches."""
    found: dict[str, list[Path]] = {}
    for manifest in some:
        for file in manifest.files:
            folder = str(Path(file.path).parent)
            found.setdefault(folder, []).append(
                data / batch_folder(manifest.batch) / file.path
            )  # fmt: skip
    return found


def _rewrite(paths: list[Path], folder: Path, compression: str, target: int) -> None:
    """Write the rows of files into few; OttlaError if they do not read the same afterwards."""
    folder.mkdir(exist_ok=True)
    schema = _united(paths)
    made: list[Path] = []
    rows = _buffered(_read(paths, schema))
    some = next(rows, None)
    while some is not None:
        made.append(folder / f"part-{len(made)}.parquet")
        with writer(made[-1], schema, compression) as out:
            while some is not None:
                out.write_table(some)
                some = next(rows, None)
                if made[-1].stat().st_size >= target:
                    break
    if not _same(_read(paths, schema), _read(made, schema)):
        raise OttlaError(f"{folder.name}: the new files differ from the old; nothing was changed")


def _united(paths: list[Path]) -> pa.Schema:
    """Return the columns of all files: the newest's, and what only others have behind them."""
    schemas = [_without_int96(parquet.read_schema(path)) for path in reversed(paths)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise OttlaError(
            f"{paths[-1].parent}: its columns cannot be united with those of batches before: "
            f"{error}; nothing was changed"
        ) from None


def _without_int96(schema: pa.Schema) -> pa.Schema:
    """Return a file's columns; times as Spark once wrote them become what they are now."""
    kinds = {pa.timestamp("ns"): pa.timestamp("us", tz="UTC")}
    return pa.schema([pa.field(f.name, kinds.get(f.type, f.type)) for f in schema])


def _read(paths: Iterable[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    for path in paths:
        with parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield _fitted(pa.Table.from_batches([batch]), schema)


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with all columns of a schema; null where they have none."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _buffered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in tables of about BUFFER_BYTES: they become row groups."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(one.nbytes for one in held) >= BUFFER_BYTES:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def _same(old: Iterator[pa.Table], new: Iterator[pa.Table]) -> bool:
    """Return whether two readings give the same rows in the same order."""
    left: pa.Table | None = None
    right: pa.Table | None = None
    while True:
        left = next(old, None) if left is None or not left.num_rows else left
        right = next(new, None) if right is None or not right.num_rows else right
        if left is None or right is None:
            return left is None and right is None
        count = min(left.num_rows, right.num_rows)
        pairs = zip(left.columns, right.columns, strict=True)
        if not all(_equal(a.slice(0, count), b.slice(0, count)) for a, b in pairs):
            return False
        left, right = left.slice(count), right.slice(count)


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if left.equals(right):
        return True
    if pa.types.is_floating(left.type):  # NaN equals nothing, itself included
        odd = [pc.is_nan(x) for x in (left, right)]
        plain = [pc.if_else(nan, 0.0, x) for nan, x in zip(odd, (left, right), strict=True)]
        return bool(odd[0].equals(odd[1]) and plain[0].equals(plain[1]))
    return pa.types.is_nested(left.type) and repr(left.to_pylist()) == repr(right.to_pylist())
