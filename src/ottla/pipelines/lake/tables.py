"""What the lake asks of a table, whatever its format: the port that `delta` and `iceberg` fill.

Invariants: `append` commits files and the offsets that they stand for at once, or nothing; of two
drivers that began with the same state one is refused (ConflictError); one whose commit went through
without an acknowledgement finds it there. What others do to the table meanwhile (OPTIMIZE, VACUUM,
DELETE, expiry) does not change its state.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from ottla.model.errors import ErrorCode, OttlaError
from ottla.pipelines.lake.state import State
from ottla.pipelines.lake.writing import File, Target

CLUSTER, TOPIC, TOPIC_ID = "ottla.cluster_id", "ottla.topic", "ottla.topic_id"
"""Properties of a table: what it belongs to."""
COMMIT = "ottla.commit"
"""What a commit is called in the table's history."""


class ConflictError(OttlaError):
    """Another run committed to the table meanwhile."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where}: another run landed into this table meanwhile; nothing of this batch was "
            "committed. Let one run at a time land a topic",
            ErrorCode.INVALID_TXN_STATE,
        )


class Table(Protocol):
    """A table that is there, as of when it was opened or refreshed last."""

    where: str
    uri: str
    state: State

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's own properties, what it belongs to (`CLUSTER`, …) among them."""

    @property
    def schema(self) -> pa.Schema:
        """The columns as this job makes them, the partition's among them."""

    def target(self, compression: str) -> Target:
        """Return where and how files are written."""

    def retyped(self, kinds: Mapping[str, pa.DataType], compression: str) -> Target:
        """Return where and how files are written that `replace` will take, with other types."""

    def refresh(self) -> None:
        """See what was committed since."""

    def widen(self, schema: pa.Schema) -> None:
        """Add the columns that only `schema` has."""

    def append(self, files: Sequence[File], state: State) -> None:
        """Commit files with the state that they lead to."""

    def replace(self, schema: pa.Schema, files: Sequence[File], state: State) -> None:
        """Commit these files in place of all that the table has."""

    def read(
        self, columns: Sequence[str] | None = None, least: Mapping[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; with `least` at least those from an offset on, by partition."""

    def rows(self) -> int:
        """Return how many rows the table's metadata says there are."""

    def files(self) -> list[str]:
        """Return the addresses of the files that the newest version names."""

    def compact(self) -> Mapping[str, Any]:
        """Merge files that are small (`merges`); return how many there were and are."""

    def clean(self, older_than_hours: float) -> int:
        """Delete files that no version names any more; return how many."""

    @property
    def version(self) -> int:
        """The newest version's number, or the snapshot's."""


def merges(sizes: Sequence[int], most: int = 128 * 1024 * 1024) -> int:
    """Return how many of the smallest files are worth merging into one; 0: none.

    At least four, each no larger than all smaller ones together (but for the first): so a row is
    rewritten a few times as its file grows, not every night.
    """
    total = count = 0
    for n, size in enumerate(sorted(sizes)):
        if size > most or (n >= 2 and size > total):
            break
        total += size
        count = n + 1
    return count if count >= 4 else 0
