"""Avro schemas: how their files are read, and which of them may be decoded.

Invariants: what is read are .avsc files, by fastavro; a bad file is one line; a schema whose values
can take more time to decode than their size allows is not used (`why_unbounded`,
`MOST_DECIMAL_BYTES`).
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ottla.model.errors import ConfigError, StartupError

MOST_DECIMAL_BYTES = 256
"""Larger decimals take time that grows with the square of their size: 1 MiB takes minutes."""


class Schema(NamedTuple):
    """A schema as fastavro parsed it, and the types in it that have names."""

    parsed: Any
    named: Mapping[str, Any]


def read_schema(path: Path, needed_for: str = "format avro", extra: str = "spark") -> Schema:
    """Return an .avsc file, parsed; ConfigError if it is invalid, StartupError without fastavro."""
    try:
        import fastavro
    except ImportError:
        raise StartupError(
            f"{needed_for} needs fastavro, not installed here: pip install 'ottla[{extra}]'"
        ) from None
    named: dict[str, Any] = {}
    try:
        text = path.read_text(encoding="utf-8")
        return Schema(fastavro.parse_schema(json.loads(text), named_schemas=named), named)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except Exception as error:  # noqa: BLE001 - fastavro raises what it likes
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(f"{path}: not an Avro schema: {why}") from None


def why_unbounded(schema: Schema) -> str | None:
    """Return why a value of few bytes can take any time or depth to decode; None if it cannot.

    An array announces how many items follow: items of no bytes need not follow. A record inside
    itself nests as deep as its value says, and fastavro's recursion ends the process.
    """
    sizes: dict[str, int] = {}
    try:
        _least_size(schema.parsed, schema.named, sizes, ())
    except _UnboundedError as error:
        return str(error)
    return None


@cache
def bound_decimals() -> None:
    """Let fastavro refuse decimals that are too large, in all of this process."""
    from fastavro.read import LOGICAL_READERS  # only where values are decoded

    read = LOGICAL_READERS["bytes-decimal"]

    def bounded(data: bytes, *schemas: Any) -> Any:
        if len(data) > MOST_DECIMAL_BYTES:
            raise ValueError(f"a decimal of more than {MOST_DECIMAL_BYTES} bytes")
        return read(data, *schemas)

    LOGICAL_READERS["bytes-decimal"] = bounded


class _UnboundedError(Exception):
    """A schema whose values have no bound. The message is a clause that says why."""


def _least_size(
    schema: Any, named: Mapping[str, Any], sizes: dict[str, int], inside: tuple[str, ...]
) -> int:
    """Return how many bytes a value takes at least; `sizes` keeps those of named types."""
    if isinstance(schema, list):
        return 1 + min(_least_size(part, named, sizes, inside) for part in schema)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "null":
            return 0
        case "float":
            return 4
        case "double":
            return 8
        case "boolean" | "int" | "long" | "bytes" | "string" | "enum":
            return 1
        case "fixed":
            return int(schema["size"])
        case "array":
            if not _least_size(schema["items"], named, sizes, inside):
                raise _UnboundedError("an array's items take no bytes")
            return 1
        case "map":
            _least_size(schema["values"], named, sizes, inside)
            return 1
        case "record" | "error":
            name = schema["name"]
            if name in inside:
                raise _UnboundedError(f"record {name} is inside itself")
            if name not in sizes:
                fields = [field["type"] for field in schema["fields"]]
                within = (*inside, name)
                sizes[name] = sum(_least_size(f, named, sizes, within) for f in fields)
            return sizes[name]
    inner = named[kind] if isinstance(kind, str) else kind
    return _least_size(inner, named, sizes, inside)
