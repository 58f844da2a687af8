"""Parts that JSON schemas of our output are made of: types, objects, lists, what may be null.

Invariants: plain dicts of the JSON schema language; an object has no fields but those that are
named.
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FRACTION: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
NUMBERS: Schema = {"type": "array", "items": NUMBER}
TEXTS: Schema = {"type": "array", "items": TEXT}
JSON: Schema = {}
"""Any value: what is not ours to describe."""


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
