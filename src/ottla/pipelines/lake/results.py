"""What the lake job prints on stdout: one JSON object, of these fields."""

from typing import Any

import msgspec


class TopicResult(msgspec.Struct, kw_only=True):
    """What there is of one topic when a run ends.

    `rows`, `dead`, `gaps` and `lost` count the offsets that landed by what became of them, of all
    runs; `new_rows` are this run's rows and dead letters. `deleted`: rows and dead letters that
    others deleted. `lag`: offsets that the leaders confirmed and that have not landed, null if the
    cluster could not be asked. `complete`: nothing is missing up to the end that the leaders
    confirmed (when the run began; with --follow, when it ended), and the tables have as many rows
    as have landed. `version`: the table's, an Iceberg snapshot's id.
    """

    table: str
    dead_table: str
    version: int
    batches: int
    rows: int
    dead: int
    gaps: int
    lost: int
    deleted: int
    new_rows: int
    rows_per_s: int
    lag: int | None
    complete: bool


class LakeResult(msgspec.Struct, kw_only=True):
    """The result of a run.

    `exactly_once`: true if all topics are complete; false if something is wrong; null if source and
    table were not compared up to the leaders' end. `query`: the rows of --sql.
    """

    topics: dict[str, TopicResult]
    exactly_once: bool | None
    session_s: float
    job_s: float
    query: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class Maintained(msgspec.Struct, kw_only=True):
    """What --compact did: the number of files before and after, and how many were deleted."""

    files: list[int]
    deleted: int


class Maintenance(msgspec.Struct, kw_only=True):
    """The result of --compact."""

    topics: dict[str, Maintained]
