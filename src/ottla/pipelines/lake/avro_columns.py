"""Avro values to columns, by fastavro, one Arrow batch at a time.

Invariants: a value is read with the schema it was written with, into the columns of the table's
schema (Avro's schema resolution); what does not decode, or goes on after the record, is a dead
letter with fastavro's reason, and so is what could take longer than its size allows. With framing
"confluent" a value begins with a zero byte and the id of its schema (4 bytes), whose file is
ID.avsc beside the table's schema.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.model.errors import ConfigError
from ottla.pipelines.lake.json_columns import Parsed
from ottla.wire.avro import bound_decimals, read_schema, why_unbounded

HEADER = 5
MISREAD = "no Avro record of the schema"


@dataclass(frozen=True)
class AvroColumns:
    """Decodes values into columns of these types; can be pickled.

    `schemas`: those that values may be written with, by id; None is the table's own. `refused`: why
    values of a schema are not read, by its id.
    """

    kind: pa.StructType
    schemas: Mapping[int | None, Any]
    framing: str
    refused: Mapping[int | None, str]

    @classmethod
    def of(cls, schema: pa.Schema, path: Path, framing: str) -> "AvroColumns":
        own = read_schema(path)
        if reason := why_unbounded(own):
            raise ConfigError(f"{path}: {reason}: its values have no bound")
        schemas: dict[int | None, Any] = {None: own.parsed}
        refused: dict[int | None, str] = {}
        if framing == "confluent":
            for file in sorted(path.parent.glob("*.avsc")):
                if file.stem.isdigit():
                    found = read_schema(file)
                    schemas[int(file.stem)] = found.parsed
                    if reason := why_unbounded(found):
                        refused[int(file.stem)] = f"{file.name}: {reason}"
        return cls(pa.struct(list(schema)), schemas, framing, refused)

    def read(self, values: pa.Array) -> tuple[list[dict[str, Any] | None], list[str | None]]:
        """Return the rows, and why there is none; neither for a value that is null."""
        read = self._reader()
        names = [field.name for field in self.kind]
        rows: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            row, error = None, None
            try:
                row = None if value is None else _only(read(value), names)
            except Exception as failure:  # noqa: BLE001 - fastavro raises what it likes
                error = f"{type(failure).__name__}: {failure}"[:200]
            rows.append(row)
            errors.append(error)
        return rows, errors

    def parse(self, values: pa.Array) -> Parsed:
        """Return the columns of the values that decode, and why each other does not."""
        rows, errors = self.read(values)
        taken = np.array([error is None for error in errors], bool)
        found = pa.array([row or {} for row, ok in zip(rows, taken, strict=True) if ok], self.kind)
        reasons = [(MISREAD, error) for error in errors if error is not None]
        return Parsed([pa.RecordBatch.from_struct_array(found)], taken, reasons)

    def _reader(self) -> Callable[[bytes], dict[str, Any]]:
        """Return what decodes one value into the table's schema."""
        from fastavro import schemaless_reader  # in a worker

        bound_decimals()
        wanted = self.schemas[None]

        def read(value: bytes) -> dict[str, Any]:
            source, written = io.BytesIO(value), wanted
            if self.framing == "confluent":
                header = source.read(HEADER)
                if len(header) < HEADER or header[0]:
                    raise ValueError("the value does not begin with a zero byte and a schema's id")
                number = int.from_bytes(header[1:], "big")
                if number not in self.schemas:
                    raise ValueError(f"there is no file {number}.avsc for its schema")
                if number in self.refused:
                    raise ValueError(self.refused[number])
                written = self.schemas[number]
            found = schemaless_reader(source, written, wanted)
            if source.tell() != len(value):
                raise ValueError(f"{len(value) - source.tell()} bytes follow the record")
            return dict(found)

        return read


def _only(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: row.get(name) for name in names}
