"""What jobs print on stdout as JSON: a JSON schema for each.

Invariants: one schema for each job, whatever its options; every field is always there unless it is
said to be missing. The rows of `lake --sql` have the columns of the query: they are not ours to
describe.
"""

import json
import sys
from typing import Annotated, Any

from ottla.cli import Argument, UsageError

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FRACTION: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
NUMBERS: Schema = {"type": "array", "items": NUMBER}
TEXTS: Schema = {"type": "array", "items": TEXT}
JSON: Schema = {}


def an_object(missing: tuple[str, ...] = (), /, **fields: Schema) -> Schema:
    """Return an object with these fields; `missing` names those that may be left out."""
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name not in missing],
        "additionalProperties": False,
    }


def many(item: Schema) -> Schema:
    """Return a list."""
    return {"type": "array", "items": item}


def or_null(schema: Schema) -> Schema:
    """Return what may also be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def by_name(value: Schema) -> Schema:
    """Return an object whose names are data."""
    return {"type": "object", "additionalProperties": value}


_PLACE = {"topic": TEXT, "partition": NUMBER}
_COPIED = an_object(
    job=TEXT, **{"from": TEXT}, to=TEXT, records=NUMBER, looped=NUMBER, rounds=NUMBER,
    records_per_s=NUMBER, checked=NUMBER, gaps=NUMBER, unchecked_offsets=NUMBER,
    next=by_name(NUMBER), total=NUMBER, exactly_once=FLAG,
)  # fmt: skip
_REPLAY: Schema = {
    "anyOf": [
        _COPIED,
        an_object(
            group=TEXT, **{"from": by_name(NUMBER)}, to=by_name(NUMBER), without_commit=NUMBERS,
            applied=FLAG,
        ),
    ]
}  # fmt: skip
_SCORE = an_object(
    to_leave=NUMBER, racks=NUMBER, over_capacity=NUMBER, bytes_off=FRACTION, outside=NUMBER,
    leaders_off=NUMBER, topics_off=NUMBER,
    brokers=many(
        an_object(
            broker=NUMBER, rack=or_null(TEXT), bytes=NUMBER, capacity=NUMBER, share=NUMBER,
            off=FRACTION, rate=NUMBER, replicas=NUMBER, leaders=NUMBER,
        )
    ),
)  # fmt: skip
_PLAN = an_object(
    bytes_to_move=NUMBER, least_bytes=NUMBER, bytes_by_goal=by_name(NUMBER),
    replicas_to_move=NUMBER, left_out=NUMBER, elections=NUMBER, folder=or_null(TEXT),
    stages=many(
        an_object(
            file=TEXT, partitions=NUMBER, replicas=NUMBER, bytes=NUMBER,
            busiest_broker_bytes=NUMBER, seconds=or_null(FRACTION),
        )
    ),
    before=_SCORE, after=_SCORE,
)  # fmt: skip
_SAMPLE = an_object(at_ms=NUMBER, brokers=NUMBER, partitions=NUMBER, samples=NUMBER)

RESULTS: dict[str, Schema] = {
    "lake": {
        "anyOf": [
            an_object(
                ("query",),
                topics=by_name(
                    an_object(
                        table=TEXT, batches=NUMBER, rows=NUMBER, dead=NUMBER, gaps=NUMBER,
                        lost=NUMBER, new_rows=NUMBER, rows_per_s=NUMBER,
                    )
                ),
                exactly_once=FLAG, session_s=FRACTION, job_s=FRACTION, query=many(by_name(JSON)),
            ),
            an_object(
                topics=by_name(
                    an_object(
                        ("delta_files_deleted",),
                        batches_merged=NUMBER, files=NUMBERS, delta_files_deleted=NUMBER,
                    )
                )
            ),
        ]
    },
    "replay": _REPLAY,
    "mirror": _REPLAY,
    "replicas": an_object(
        held=FLAG, partitions=NUMBER, replicas=NUMBER, files=NUMBER, bytes=NUMBER, batches=NUMBER,
        records=NUMBER, cluster_asked=FLAG, problems=TEXTS,
        findings=many(
            an_object(
                **_PLACE, kind=TEXT, wrong=FLAG, offset=or_null(NUMBER), broker=or_null(NUMBER),
                file=or_null(TEXT), position=or_null(NUMBER), detail=TEXT,
            )
        ),
        session_s=FRACTION, job_s=FRACTION,
    ),
    "audit": an_object(
        held=FLAG, reported_buckets=or_null(NUMBER), not_judged=NUMBER,
        buckets=many(
            an_object(
                topic=TEXT, bucket_ms=NUMBER, tier=TEXT, records=NUMBER, bytes=or_null(NUMBER),
                unstamped=NUMBER, malformed=NUMBER, mean_ms=or_null(NUMBER),
                p95_ms=or_null(NUMBER), p99_ms=or_null(NUMBER), max_ms=or_null(NUMBER),
                bucket=TEXT,
            )
        ),
        waiting=many(an_object(topic=TEXT, bucket_ms=NUMBER, records=NUMBER)),
        delta=TEXTS,
        findings=many(
            an_object(
                kind=TEXT, topic=TEXT, bucket_ms=NUMBER, amount=NUMBER, text=TEXT, bucket=TEXT
            )
        ),
    ),
    "lag": an_object(
        held=FLAG, unknown_groups=TEXTS, states=by_name(NUMBER),
        findings=many(an_object(group=TEXT, **_PLACE, kind=TEXT, at_ms=NUMBER, text=TEXT)),
        partitions=many(
            an_object(
                group=TEXT, **_PLACE, state=TEXT, committed=or_null(NUMBER), end=or_null(NUMBER),
                lag=or_null(NUMBER), last_ms=NUMBER,
            )
        ),
        no_leader=TEXTS,
    ),
    "timeline": an_object(
        lines=NUMBER, unread=NUMBER, dropped=NUMBER, partitions=NUMBER, states=NUMBER, terms=NUMBER,
        gaps=NUMBER, findings=NUMBER, errors=NUMBER, clocks=TEXTS,
        files=many(
            an_object(
                file=TEXT, brokers=NUMBERS, lines=NUMBER, unread=NUMBER, dropped=or_null(NUMBER),
                first_ms=or_null(NUMBER), last_ms=or_null(NUMBER),
            )
        ),
        found=many(
            an_object(
                topic=or_null(TEXT), partition=or_null(NUMBER), kind=TEXT, level=TEXT,
                time_ms=NUMBER, broker=NUMBER, text=TEXT,
            )
        ),
        longest_gaps=many(
            an_object(
                **_PLACE, life=NUMBER, after=NUMBER, next=or_null(NUMBER), start_from_ms=NUMBER,
                start_to_ms=NUMBER, end_ms=or_null(NUMBER), least_ms=NUMBER, most_ms=NUMBER,
                how=TEXT,
            )
        ),
    ),
    "rebalance": {"anyOf": [_PLAN, _SAMPLE]},
}  # fmt: skip
"""By the job's name; with `--print json` for `timeline`. The others print text, files or lines."""


def schema(name: Annotated[str, Argument(metavar="JOB")]) -> None:
    if name not in RESULTS:
        raise UsageError(f"name one of {', '.join(sorted(RESULTS))}")
    sys.stdout.write(json.dumps(RESULTS[name], indent=2) + "\n")
