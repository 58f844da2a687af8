"""The lake's settings: what its TOML file may say.

Invariants: a value that makes no sense is refused in one line, before Spark starts.
"""

import re
from datetime import UTC, datetime
from typing import Literal

import msgspec

from ottla.model.errors import ConfigError
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.config import Cluster, Spark

META_COLUMNS = (
    "kafka_key",
    "kafka_headers",
    "kafka_timestamp",
    "kafka_timestamp_type",
    "kafka_topic",
    "kafka_partition",
    "kafka_offset",
)
"""The columns that say where a row comes from; data columns may not be called so."""
BATCH = "batch"
"""The folder column that says which batch a row came with."""


class Lake(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[lake]`: which topics, where to, from where on.

    `start` holds for new tables alone: "earliest", "latest" or a time (ISO 8601, UTC unless it
    says else). `isolation` is Kafka's `isolation.level`. `on_loss`: what to do about offsets that
    the cluster removed before they landed: "fail", or "skip", which keeps account of them.
    `metrics_port`: figures for Prometheus on 127.0.0.1. `format` "delta": the table is a Delta
    table, too; files that compaction replaced stay `delta_retention_hours` for readers of older
    versions.
    """

    path: str
    topics: list[str]
    source: Literal["kafka", "ottla"] = "ottla"
    start: str = "earliest"
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    batch_records: int = 1_000_000
    on_loss: Literal["fail", "skip"] = "fail"
    poll_seconds: float = 10.0
    metrics_port: int | None = None
    format: Literal["parquet", "delta"] = "parquet"
    delta_retention_hours: float = 168.0

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("topics is empty; name at least one")
        for topic in self.topics:
            if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) or topic in (".", ".."):
                raise ValueError(f"{topic!r} is no name of a topic")
        if len(set(self.topics)) < len(self.topics):
            raise ValueError("topics names one twice")
        if self.batch_records < 1:
            raise ValueError("batch_records must be at least 1")
        if not 0 <= self.delta_retention_hours < float("inf"):
            raise ValueError("delta_retention_hours must be 0 or more")
        if "://" in self.path:
            raise ValueError(
                f"path {self.path}: the lake needs a file system with an atomic rename of folders; "
                "give a local or shared folder"
            )
        self.start_timestamp()

    def start_timestamp(self) -> int:
        """Return `start` as ListOffsets takes it: EARLIEST, LATEST or milliseconds since 1970."""
        special = {"earliest": EARLIEST, "latest": LATEST}
        return special[self.start] if self.start in special else parse_time(self.start)


class Value(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[value]`: what the records' values are.

    `schema` is a file (`.ddl`, `.json` as Spark writes schemas, `.avsc`) or the DDL itself, such
    as "n long, carrier string". `drift`: JSON fields that the schema lacks are added to it
    ("widen"), make a dead letter of the record ("dead") or are dropped ("ignore"). `framing`
    "confluent": Avro values begin with a schema's id; its file is ID.avsc beside `schema`. `keep`:
    the original bytes are a column, too.
    """

    format: Literal["json", "avro", "raw"] = "raw"
    schema: str | None = None
    drift: Literal["widen", "dead", "ignore"] = "widen"
    framing: Literal["none", "confluent"] = "none"
    keep: bool = False

    def __post_init__(self) -> None:
        if self.format == "avro" and not (self.schema or "").endswith(".avsc"):
            raise ValueError("format avro needs a schema: name an .avsc file")
        if self.format == "raw" and self.schema is not None:
            raise ValueError("format raw has no schema")


class Layout(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[layout]`: the date folders.

    `date` is a Spark SQL expression over the columns that gives a date, such as
    "make_date(year, month, day)" or "to_date(time)"; without it there are no date folders.
    `gather` sends the rows of a date to one task: one file for each date and batch, for a shuffle.
    """

    date: str | None = None
    date_column: str = "event_date"
    gather: bool = False
    compression: Literal["snappy", "zstd", "lz4", "gzip", "none"] = "snappy"
    sync: bool = True

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.date_column) or self.date_column == BATCH:
            raise ValueError(f"date_column {self.date_column!r} is no name for a folder's column")


class DeadLetters(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[dead_letters]`: a topic that gets them, too; they always go to the table `dead`."""

    topic: str | None = None


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The whole file."""

    cluster: Cluster
    lake: Lake
    value: Value = Value()
    layout: Layout = Layout()
    dead_letters: DeadLetters = DeadLetters()
    spark: Spark = Spark()


def parse_time(text: str) -> int:
    """Return a time in ISO 8601 as milliseconds since 1970; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no time; write 2026-01-31T12:00:00") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)
