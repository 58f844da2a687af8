"""What was written, held against what was planned: every offset is a row, a dead letter or a gap.

Invariants: what counts is what another reader than Spark (pyarrow) finds in the files; an offset
that stands twice, or that was not asked for, fails the batch before it is committed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.model.errors import OttlaError
from ottla.pipelines.landing.spans import Span, merged
from ottla.pipelines.landing.table import hidden

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARTITION, OFFSET = "kafka_partition", "kafka_offset"
ROWS_AT_ONCE = 1_000_000


@dataclass(slots=True)
class Found:
    """What stands in a batch's files of one partition."""

    rows: int = 0
    dead: int = 0
    missing: list[Span] = field(default_factory=list)


def offsets_in(folder: Path) -> "dict[int, NDArray[Any]]":
    """Return the offsets in a folder of Parquet files, by partition, sorted."""
    import numpy as np
    from pyarrow import dataset

    found: dict[int, list[Any]] = {}
    there = folder.rglob("*.parquet") if folder.is_dir() else ()
    files = sorted(str(p) for p in there if not hidden(str(p.relative_to(folder))))
    if not files:
        return {}
    scanner = dataset.dataset(files, format="parquet").scanner(
        columns=[PARTITION, OFFSET], batch_size=ROWS_AT_ONCE
    )
    for batch in scanner.to_batches():
        partitions = batch.column(PARTITION).to_numpy(zero_copy_only=False)
        offsets = batch.column(OFFSET).to_numpy(zero_copy_only=False)
        for partition in np.unique(partitions):
            found.setdefault(int(partition), []).append(offsets[partitions == partition])
    return {p: np.sort(np.concatenate(parts)) for p, parts in found.items()}


def compare(topic: str, planned: Mapping[int, Span], data: Path, dead: Path) -> dict[int, Found]:
    """Compare a batch's files with its plan; OttlaError if an offset is doubled or foreign."""
    import numpy as np

    rows, letters = offsets_in(data), offsets_in(dead)
    strangers = (rows.keys() | letters.keys()) - planned.keys()
    if strangers:
        raise OttlaError(f"{topic}-{min(strangers)}: rows of a partition that was not asked for")
    found: dict[int, Found] = {}
    nothing: NDArray[Any] = np.empty(0, np.int64)
    for partition, span in planned.items():
        of_rows, of_letters = rows.get(partition, nothing), letters.get(partition, nothing)
        there = np.sort(np.concatenate([of_rows, of_letters]))
        name = f"{topic}-{partition}"
        if len(there) and (there[0] < span.start or there[-1] >= span.end):
            raise OttlaError(
                f"{name}: the source gave offsets {there[0]}..{there[-1]}, "
                f"asked for were {span.start}..{span.end - 1}"
            )
        again = there[1:][there[1:] == there[:-1]]
        if len(again):
            raise OttlaError(f"{name}: offset {again[0]} stands {len(again) + 1} times or more")
        found[partition] = Found(len(of_rows), len(of_letters), _holes(there, span))
    return found


def _holes(there: "NDArray[Any]", span: Span) -> list[Span]:
    """Return the spans of a span in which no offset is there; `there` is sorted."""
    import numpy as np

    if len(there) == span.size:
        return []
    edges = np.concatenate([[span.start - 1], there, [span.end]])
    at = np.flatnonzero(np.diff(edges) > 1)
    return merged(Span(int(edges[i]) + 1, int(edges[i + 1])) for i in at)
