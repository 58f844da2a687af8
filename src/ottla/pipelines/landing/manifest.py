"""What a batch of a table says of itself: its offsets, its files, and what has landed up to it.

Invariants: values alone. A manifest lies in its batch's folder and carries all that the next batch
needs, so that the newest one is the job's only checkpoint. Each holds the SHA-256 of the one before
it: a folder from elsewhere does not fit into the row.
"""

import hashlib

import msgspec

from ottla.model.errors import OttlaError
from ottla.pipelines.landing.spans import Span

PARQUET, DELTA = 1, 2
"""Formats of a table: the manifests alone, or a Delta log beside them, too."""
FORMATS = {"parquet": PARQUET, "delta": DELTA}
NAME = "_manifest.json"
BATCH_FOLDER = "batch="
DATA, DEAD, STAGING = "data", "dead", "_staging"
"""Folders of a table."""


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What a table belongs to. `starts`: the offsets that its first run began at."""

    format: int
    lake_id: str
    path: str
    cluster_id: str
    topic: str
    topic_id: str
    isolation: str
    created_ms: int
    starts: dict[int, int]

    @property
    def has_delta(self) -> bool:
        return self.format == DELTA


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Parquet file by its path inside the batch's folder, or inside of `dead` (dead_in_place).

    `rows` is counted in tables with a Delta log alone.
    """

    path: str
    bytes: int
    rows: int | None = None


class Landed(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch took of one partition: every offset of [start, end) is in one of the counts.

    `rows` are in the table, `dead` are dead letters. `gaps` hold no record that readers see:
    transaction markers, aborted records, what compaction removed. `lost` was removed by the
    cluster before it landed (on_loss = "skip").
    """

    start: int
    end: int
    rows: int
    dead: int = 0
    gaps: int = 0
    lost: int = 0


class Totals(msgspec.Struct, frozen=True):
    """Counts of one partition, of all batches up to this one."""

    rows: int = 0
    dead: int = 0
    gaps: int = 0
    lost: int = 0

    def plus(self, landed: Landed) -> "Totals":
        return Totals(
            self.rows + landed.rows,
            self.dead + landed.dead,
            self.gaps + landed.gaps,
            self.lost + landed.lost,
        )


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One batch. `first` is the first batch that its files hold: after compaction it is lower.

    `epochs`: the leader epoch in which each partition's end was asked for; all that has landed was
    written by leaders up to it. `date_column`: what its date folders are called; `keep`: the files
    have the original bytes as a column.
    """

    binding: Binding
    batch: int
    first: int
    previous: str
    committed_ms: int
    schema: int
    partitions: dict[int, list[Landed]]
    files: list[File]
    dead_files: list[File]
    landed: dict[int, list[Span]]
    epochs: dict[int, int]
    totals: dict[int, Totals]
    date_column: str | None = None
    keep: bool = False

    def files_in_place(self) -> "list[File]":
        """Return the rows' files by their paths inside of `data`."""
        own = f"{batch_folder(self.batch)}/"
        return [File(own + file.path, file.bytes, file.rows) for file in self.files]

    def dead_in_place(self) -> "list[File]":
        """Return the dead letters' files by their paths inside of `dead`.

        Compaction leaves them in the folders of the batches that brought them.
        """
        own = f"{batch_folder(self.batch)}/"
        return [
            file
            if file.path.startswith(BATCH_FOLDER)
            else File(own + file.path, file.bytes, file.rows)
            for file in self.dead_files
        ]

    def problems(self) -> list[str]:
        """Return what contradicts itself: offsets of which the counts say nothing."""
        wrong = []
        for partition, spans in self.landed.items():
            held = sum(span.size for span in spans)
            counts = self.totals.get(partition, Totals())
            counted = counts.rows + counts.dead + counts.gaps + counts.lost
            if held != counted:
                wrong.append(
                    f"{self.binding.topic}-{partition}: {held} offsets landed, {counted} counted"
                )
        return wrong


def batch_folder(number: int) -> str:
    """Return what a batch's folder is called."""
    return f"{BATCH_FOLDER}{number}"


def encode(value: Binding | Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def decode_binding(data: bytes, where: str) -> Binding:
    """Parse a table's binding; OttlaError if it is none, or newer than this job."""
    try:
        found = msgspec.json.decode(data, type=Binding)
    except msgspec.DecodeError as error:
        raise OttlaError(f"{where}: {error}; it belongs to no lake of this job") from None
    if found.format not in FORMATS.values():
        raise OttlaError(
            f"{where}: format {found.format}, this job knows {PARQUET} and {DELTA}; update it"
        )
    return found


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Parse a batch's manifest; OttlaError if it is damaged."""
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise OttlaError(f"{where}: {error}; restore it from a copy") from None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
