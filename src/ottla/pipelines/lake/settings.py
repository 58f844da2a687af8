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

TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


class Lake(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[lake]`: which topics, where to, from where on.

    `path`: a folder, or an address that pyarrow knows, such as s3://bucket/lake. `pattern`: a
    regular expression; topics whose whole names match are landed, too, also those that come later.
    `start` holds for new tables alone: "earliest", "latest" or a time (ISO 8601, UTC unless it
    says else). `on_loss`: what to do about offsets that the cluster removed before they landed:
    "fail", or "skip", which keeps account of them. `max_dead`: a batch is not committed, and the
    run fails, if of its records more than this share would be dead letters (and 100 at least).
    `metrics_port`: figures for Prometheus on 127.0.0.1. `retention_hours`: how long files that no
    version names, and old versions, stay when `--compact` cleans.
    """

    path: str
    topics: list[str] = []
    pattern: str | None = None
    format: Literal["delta", "iceberg"] = "delta"
    start: str = "earliest"
    isolation: Literal["read_uncommitted", "read_committed"] = "read_committed"
    batch_records: int = 1_000_000
    on_loss: Literal["fail", "skip"] = "fail"
    max_dead: float = 0.5
    poll_seconds: float = 10.0
    metrics_port: int | None = None
    retention_hours: float = 168.0

    def __post_init__(self) -> None:
        if not self.topics and self.pattern is None:
            raise ValueError("topics is empty; name at least one, or a pattern")
        for topic in self.topics:
            if not TOPIC.fullmatch(topic):
                raise ValueError(f"{topic!r} is no name of a topic")
        if len(set(self.topics)) < len(self.topics):
            raise ValueError("topics names one twice")
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ValueError(f"pattern {self.pattern!r}: {error}") from None
        if self.batch_records < 1:
            raise ValueError("batch_records must be at least 1")
        if not 0 <= self.retention_hours < float("inf"):
            raise ValueError("retention_hours must be 0 or more")
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
    """`[layout]`: the partitions of a table, by date.

    `date` names a date over the columns (`dates`); without it the table has no partitions.
    """

    date: str | None = None
    date_column: str = "event_date"
    compression: Literal["snappy", "zstd", "lz4", "gzip", "none"] = "snappy"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.date_column):
            raise ValueError(f"date_column {self.date_column!r} is not a valid column name")


class Own(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[topic.NAME]`: what holds for one topic instead of `[value]` and `[layout]`."""

    value: Value | None = None
    layout: Layout | None = None


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The whole file. `catalog`: pyiceberg's settings of a catalog, such as `type` and `uri`."""

    cluster: Cluster
    lake: Lake
    value: Value = Value()
    layout: Layout = Layout()
    topic: dict[str, Own] = {}
    catalog: dict[str, str] = {}
    spark: Spark = Spark()

    def of(self, topic: str) -> tuple[Value, Layout]:
        """Return what holds for a topic."""
        own = self.topic.get(topic, Own())
        return own.value or self.value, own.layout or self.layout


def parse_time(text: str) -> int:
    """Return a time in ISO 8601 as milliseconds since 1970; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a time; write it as 2026-01-31T12:00:00") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)
