"""The settings of replay and mirror: what their TOML file may say.

Invariants: a value that makes no sense is refused in one line, before anything is asked of a
cluster.
"""

import json
import re
from datetime import UTC, datetime
from typing import Literal

import msgspec

from ottla.model.ids import topic_name_problem
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.config import Cluster, Spark

Place = str | dict[str, int]
"""Where a range starts or ends: "earliest", "latest", a time, or offsets by partition."""

SPECIAL = {"earliest": EARLIEST, "latest": LATEST}
COLUMNS = ("key", "value", "headers", "timestamp")
LONGEST_JOB = 200


class Replay(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[replay]`: what is copied, where to, and how.

    `job` names the work: run again under the same name, it goes on where it was. `start` holds
    when a job begins, `end` for each run of replay (mirror has none). `filter` is a Spark SQL
    condition over the columns of format("ottla"), `transform` has expressions for some of key,
    value, headers and timestamp. `partitions`: "same", "key" (Kafka's hash; a record without a
    key: partition modulo the target's count), or the target's partition for each of the source's.
    """

    topic: str
    to: str | None = None
    job: str | None = None
    start: Place = "earliest"
    end: Place = "latest"
    filter: str | None = None
    transform: dict[str, str] = {}
    partitions: str | dict[str, int] = "same"
    create: bool = False
    shared: bool = False
    check: bool = True
    offset_map: str | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    batch_records: int = 1_000_000
    poll_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name in (self.topic, self.target):
            if problem := topic_name_problem(name):
                raise ValueError(f"{name!r} is no name of a topic: {problem}")
        if not re.fullmatch(r"[a-zA-Z0-9._-]+", self.name) or len(self.name) > LONGEST_JOB:
            raise ValueError(
                f"job {self.name!r}: up to {LONGEST_JOB} letters, digits, dots, - and _ "
                "(it becomes part of a topic's name)"
            )
        for side, place in (("start", self.start), ("end", self.end)):
            if isinstance(place, dict):
                _offsets(side, place)
            elif place not in SPECIAL:
                parse_time(place)
        if self.end == "earliest":
            raise ValueError("end cannot be earliest")
        unknown = sorted(set(self.transform) - set(COLUMNS))
        if unknown:
            raise ValueError(f"transform: {unknown[0]!r} is none of {', '.join(COLUMNS)}")
        if isinstance(self.partitions, dict):
            _offsets("partitions", self.partitions)
        elif self.partitions not in ("same", "key"):
            raise ValueError('partitions: write "same", "key" or a table such as {"0" = 3}')
        if self.batch_records < 1:
            raise ValueError("batch_records must be at least 1")
        if self.poll_seconds <= 0:
            raise ValueError("poll_seconds must be above 0")

    @property
    def target(self) -> str:
        return self.to or self.topic

    @property
    def name(self) -> str:
        return self.job or f"{self.topic}-to-{self.target}"[:LONGEST_JOB]

    @property
    def copies(self) -> dict[str, str]:
        """Return the settings that decide what is copied; a job keeps them."""
        return {
            "start": json.dumps(self.start, sort_keys=True),
            "filter": self.filter or "",
            "transform": json.dumps(self.transform, sort_keys=True),
            "partitions": json.dumps(self.partitions, sort_keys=True),
        }


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The whole file. Without `[target]` the target is a topic of the same cluster."""

    source: Cluster
    target: Cluster | None = None
    replay: Replay
    spark: Spark = Spark()


def parse_time(text: str) -> int:
    """Return a time in ISO 8601 as milliseconds since 1970; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write it as 2026-01-31T12:00:00") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _offsets(name: str, found: dict[str, int]) -> None:
    for partition, offset in found.items():
        if not partition.isdecimal() or offset < 0:
            raise ValueError(f"{name}: {partition} = {offset} is no partition and number")
