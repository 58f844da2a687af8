"""A value of few bytes never takes a task of the lake long: schemas without a bound are refused."""

import io
import json
import time

import fastavro
import pyarrow as pa
import pytest

from ottla.model.errors import ConfigError
from ottla.pipelines.lake.avro_columns import AvroColumns
from ottla.wire.avro import MOST_DECIMAL_BYTES, Schema, read_schema, why_unbounded

EMPTY = {"type": "record", "name": "Empty", "fields": []}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}


def record(kind, name="R"):
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": kind}]}


def parsed(schema):
    named = {}
    return Schema(fastavro.parse_schema(schema, named_schemas=named), named)


def long(number):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record({"type": "array", "items": "null"}), "an array's items take no bytes"),
        (record({"type": "array", "items": EMPTY}), "an array's items take no bytes"),
        (record({"type": "array", "items": record(record("null", "A"), "B")}), "take no bytes"),
        (
            record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
            "an array's items take no bytes",
        ),
        (record({"type": "map", "values": {"type": "array", "items": "null"}}), "take no bytes"),
        (record(["null", {"type": "array", "items": "null"}]), "take no bytes"),
        (record(["null", "R"]), "record R is inside itself"),
        (record({"type": "array", "items": "R"}), "record R is inside itself"),
        (record({"type": "map", "values": record(["null", "R"], "Q")}), "record R is inside"),
        (record({"type": "array", "items": ["null", "string"]}), None),
        (record({"type": "array", "items": {"type": "array", "items": "double"}}), None),
        (record({"type": "map", "values": "null"}), None),
        (record(EMPTY), None),
        (record(DECIMAL), None),
    ],
)
def test_which_schemas_have_no_bound(schema, why):
    found = why_unbounded(parsed(schema))
    assert found == why if why is None else why in found


def test_types_that_double_are_looked_at_once():
    kind = record("null", "R0")
    for depth in range(1, 60):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{depth - 1}"}]
        kind = {"type": "record", "name": f"R{depth}", "fields": fields}
    began = time.process_time()
    assert why_unbounded(parsed(kind)) is None
    assert time.process_time() - began < 1


def columns(folder, own, framing="none", others=()):
    (folder / "own.avsc").write_text(json.dumps(own))
    for number, schema in others:
        (folder / f"{number}.avsc").write_text(json.dumps(schema))
    kind = pa.schema([("f", pa.string())])
    return AvroColumns.of(kind, folder / "own.avsc", framing)


def test_a_tables_schema_without_a_bound_is_one_line(tmp_path):
    with pytest.raises(ConfigError) as caught:
        columns(tmp_path, record({"type": "array", "items": EMPTY}))
    assert str(caught.value) == (
        f"{tmp_path}/own.avsc: an array's items take no bytes: its values have no bound"
    )


def test_a_value_of_a_schema_without_a_bound_is_a_dead_letter(tmp_path):
    own = record("string")
    reading = columns(
        tmp_path,
        own,
        "confluent",
        [
            (1, own),
            (2, {**own, "fields": [*own["fields"], {"name": "n", "type": {"type": "array",
                                                                        "items": "null"}}]}),
            (3, {**own, "fields": [*own["fields"], {"name": "n", "type": ["null", "R"]}]}),
        ],
    )  # fmt: skip
    hostile = b"\2x" + long(1 << 40) + b"\0"
    deep = b"\2x\2" * 100_000 + b"\2x\0"
    values = [b"\0\0\0\0\1\2x", b"\0\0\0\0\2" + hostile, b"\0\0\0\0\3" + deep]
    began = time.process_time()
    rows, errors = reading.read(pa.array(values, pa.binary()))
    assert time.process_time() - began < 1
    assert rows == [{"f": "x"}, None, None]
    assert errors == [
        None,
        "ValueError: 2.avsc: an array's items take no bytes",
        "ValueError: 3.avsc: record R is inside itself",
    ]


def test_a_decimal_that_would_take_minutes_is_a_dead_letter(tmp_path):
    (tmp_path / "own.avsc").write_text(json.dumps(record(DECIMAL)))
    kind = pa.schema([("f", pa.decimal128(38, 2))])
    reading = AvroColumns.of(kind, tmp_path / "own.avsc", "none")
    large = long(1 << 20) + b"\x7f" * (1 << 20)
    just = long(MOST_DECIMAL_BYTES) + b"\0" * (MOST_DECIMAL_BYTES - 1) + b"\7"
    began = time.process_time()
    rows, errors = reading.read(pa.array([large, just], pa.binary()))
    assert time.process_time() - began < 1
    assert [row and str(row["f"]) for row in rows] == [None, "0.07"]
    assert errors == [f"ValueError: a decimal of more than {MOST_DECIMAL_BYTES} bytes", None]


def test_a_file_that_is_no_schema_is_one_line(tmp_path):
    file = tmp_path / "some.avsc"
    file.write_text("{")
    with pytest.raises(ConfigError, match=r"some.avsc: not an Avro schema: JSONDecodeError"):
        read_schema(file)
