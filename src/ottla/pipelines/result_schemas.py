"""What jobs print on stdout as JSON: a JSON schema for each.

Invariants: one schema for each job, whatever its options; every field is always there unless it is
said to be missing. The rows of `lake --sql` have the columns of the query: they are not ours to
describe.
"""

import json
import sys
from typing import Annotated, Any

from ottla.cli import Argument, UsageError
from ottla.cli.schemas import described

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
NUMBERS: Schema = {"type": "array", "items": NUMBER}
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


def by_name(value: Schema) -> Schema:
    """Return an object whose names are data."""
    return {"type": "object", "additionalProperties": value}


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
_LAKE = "ottla.pipelines.lake.results"
RESULTS: dict[str, Schema] = {
    "lake": described(f"{_LAKE}:LakeResult | {_LAKE}:Maintenance"),
    "replay": _REPLAY,
    "mirror": _REPLAY,
}  # fmt: skip
"""By the job's name. `init` prints text."""


def schema(name: Annotated[str, Argument(metavar="JOB")]) -> None:
    if name not in RESULTS:
        raise UsageError(f"name one of {', '.join(sorted(RESULTS))}")
    sys.stdout.write(json.dumps(RESULTS[name], indent=2) + "\n")
