"""A column of values in a registry's wire format, as a column of what they say.

Invariants: a worker asks for a schema once; what does not fit the type asked for is an error of its
record, as what does not fit its own schema.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ConfigError
from ottla.pipelines.schemas.decoder import RegistryDecoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

MODES = ("FAILFAST", "PERMISSIVE")


def from_registry(
    column: "Column | str",
    registry: str | Mapping[str, str],
    schema: "str | DataType",
    *,
    mode: str = "FAILFAST",
) -> "Column":
    """Return what the values of a binary column say, by the schemas that they name.

    `registry`: its address, or settings by Confluent's names (`schema.registry.url`,
    `basic.auth.user.info`, `schema.registry.timeout.ms`). `schema`: the type of the new column, as
    for Spark's `from_json`; fields that a value does not have are null, others are left out.
    `mode`: FAILFAST ends the query at the first bad record, PERMISSIVE gives null for it.
    """
    import pyarrow as pa  # Spark reads it from the hints of `decoded`
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import _parse_datatype_string

    if mode.upper() not in MODES:
        raise ConfigError(f"mode={mode}: write {' or '.join(MODES)}")
    settings = {"schema.registry.url": registry} if isinstance(registry, str) else registry
    kind = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    decoder, fails = RegistryDecoder(settings), mode.upper() == "FAILFAST"
    wanted = to_arrow_type(kind, timezone="UTC")

    def decoded(values: pa.Array) -> pa.Array:
        found = decoder.decode(values.to_pylist())
        arrow, errors = as_arrow(found.rows, wanted)
        problem = next((e for e in map(_first, found.errors, errors) if e), None)
        if problem is not None and fails:
            raise ValueError(problem)
        return arrow

    make: Callable[..., Any] = arrow_udf(decoded, kind)
    return make(column)


def _first(one: str | None, other: str | None) -> str | None:
    return one or other


def as_arrow(rows: list[Any], wanted: "pa.DataType") -> tuple["pa.Array", list[str | None]]:
    """Return rows as an Arrow array, null with an error where one does not fit the type."""
    import pyarrow as pa

    try:
        return pa.array(rows, wanted), [None] * len(rows)
    except (pa.ArrowException, TypeError, ValueError):
        pass  # one of them: each by itself
    errors: list[str | None] = []
    kept: list[Any] = []
    for row in rows:
        error = None
        try:
            pa.array([row], wanted)
        except (pa.ArrowException, TypeError, ValueError) as caught:
            error = f"does not fit the column's type: {' '.join(str(caught).split())[:300]}"
        errors.append(error)
        kept.append(row if error is None else None)
    return pa.array(kept, wanted), errors
