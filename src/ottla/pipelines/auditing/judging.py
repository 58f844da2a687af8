"""Judging: what an audit tells of a bucket, what is wrong, and what cannot be judged.

Pure. Loss by producers is judged only in buckets of which the log (or the lake, where it has all
that the log removed) still has everything.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

LOST = "lost"
DOUBLED = "doubled"
OTHER_BYTES = "other bytes"
NOT_IN_LAKE = "not in the lake"
DOUBLED_IN_LAKE = "doubled in the lake"
GONE = "gone from the log"

KINDS = {
    LOST: "a producer sent it, and neither log nor lake has it",
    DOUBLED: "one record of a producer stands in the log more than once",
    OTHER_BYTES: "all records are there, but not of the size that was sent",
    NOT_IN_LAKE: "the lake says that it has this offset, and no row of it",
    DOUBLED_IN_LAKE: "the lake has more than one row of an offset",
    GONE: "the lake has a row of an offset, and the log no record there any more",
}


class Bucket(NamedTuple):
    """What a tier holds of ten minutes of a topic. Delays are from the event, in milliseconds.

    In the log until the record's timestamp, in the lake until its batch was committed; null without
    stamps. `bytes` of keys and values; null in the lake.
    """

    topic: str
    bucket_ms: int
    tier: str
    records: int
    bytes: int | None
    unstamped: int
    malformed: int
    mean_ms: int | None
    p95_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class Finding(NamedTuple):
    """Something wrong in a bucket; `amount` of records, of bytes for `other bytes`."""

    kind: str
    topic: str
    bucket_ms: int
    amount: int
    text: str


def in_time(bucket_ms: int, since_ms: int | None, until_ms: int | None) -> bool:
    """Return whether a bucket is asked for: it begins within [since, until)."""
    return (since_ms is None or bucket_ms >= since_ms) and (
        until_ms is None or bucket_ms < until_ms
    )


def kept(
    findings: Iterable[Finding],
    since_ms: int | None,
    until_ms: int | None,
    judged_from: Mapping[str, int | None],
) -> tuple[list[Finding], int]:
    """Return the findings that count, in order, and how many losses cannot be judged.

    `judged_from`: see `sums.judged_from`; the bucket of that time itself may be in part.
    """
    wrong: list[Finding] = []
    unjudged = 0
    for one in findings:
        if not in_time(one.bucket_ms, since_ms, until_ms):
            continue
        if one.kind in _NEEDS_ALL and one.topic in judged_from:
            begin = judged_from[one.topic]
            if begin is None or one.bucket_ms <= begin:
                unjudged += 1
                continue
        wrong.append(one)
    return sorted(wrong, key=lambda f: (f.topic, f.bucket_ms, f.kind, f.text)), unjudged


_NEEDS_ALL: Collection[str] = {LOST, OTHER_BYTES}
