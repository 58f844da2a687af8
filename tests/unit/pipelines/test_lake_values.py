"""Values to rows without Spark: what fits, what is a dead letter and why, dates, schemas."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")

from ottla.model.errors import OttlaError  # noqa: E402 - needs pyarrow
from ottla.pipelines.lake.avro_columns import AvroColumns  # noqa: E402
from ottla.pipelines.lake.dates import dates, rule_of  # noqa: E402
from ottla.pipelines.lake.json_columns import JsonColumns  # noqa: E402
from ottla.pipelines.lake.schemas import (  # noqa: E402
    changes,
    ddl,
    given_schema,
    merged,
    refuse_changes,
    seen_in,
    settled,
    type_name,
    widened,
    widens,
)

SCHEMA = (
    "n bigint, i int, b tinyint, at timestamp, day date, price decimal(8,2), f float, "
    "m map<string, bigint>, raw binary, t string, ok boolean, local timestamp_ntz, "
    "o struct<at: timestamp, l: array<date>>, `a-b` double"
)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def parsed(values, schema=SCHEMA, *, strict=True):
    """Return rows without nulls, and (value, reason, detail) of what is none."""
    found = JsonColumns(given_schema(schema), strict=strict).parse(pa.array(values, pa.binary()))
    rows = pa.Table.from_batches(found.batches).to_pylist()
    dead = [value for value, taken in zip(values, found.taken, strict=True) if not taken]
    return [
        {name: v for name, v in row.items() if v is not None} for row in rows
    ], [(value, *why) for value, why in zip(dead, found.reasons, strict=True)]  # fmt: skip


def test_a_schema_is_written_as_it_is_read():
    assert ddl(given_schema(SCHEMA)) == SCHEMA


@pytest.mark.parametrize(
    ("value", "row"),
    [
        ({"n": 1, "i": -5, "b": 127, "ok": True, "a-b": 1},
         {"n": 1, "i": -5, "b": 127, "ok": True, "a-b": 1.0}),
        ({"at": "2026-01-05T12:00:00Z"}, {"at": NOON}),
        ({"at": "2026-01-05T14:00:00+02:00"}, {"at": NOON}),
        ({"at": "2026-01-05 12:00:00"}, {"at": NOON}),
        ({"at": "2026-01-05"}, {"at": NOON.replace(hour=0)}),
        ({"day": "2026-01-05"}, {"day": date(2026, 1, 5)}),
        ({"price": 12.5}, {"price": Decimal("12.50")}),
        ({"price": "0.01"}, {"price": Decimal("0.01")}),
        ({"f": 0.5}, {"f": 0.5}),
        ({"m": {"x": 1}}, {"m": [("x", 1)]}),
        ({"raw": "aGk="}, {"raw": b"hi"}),
        ({"t": "x"}, {"t": "x"}),
        ({"t": 5}, {"t": "5"}),
        ({"t": 1.50}, {"t": "1.5"}),
        ({"t": False}, {"t": "false"}),
        ({"local": "2026-01-05 12:00:00"}, {"local": NOON.replace(tzinfo=None)}),
        ({"o": {"at": "2026-01-05 12:00", "l": ["2026-01-05", None]}},
         {"o": {"at": NOON, "l": [date(2026, 1, 5), None]}}),
        ({"o": None, "m": None}, {}),
        ({}, {}),
    ],
)  # fmt: skip
def test_what_fits_is_a_row(value, row):
    text = json.dumps(value).encode()
    assert parsed([text]) == ([row], [])
    # Beside others the same: in one decoder, or one by one.
    assert parsed([b"{}", text]) == ([{}, row], [])
    rows, dead = parsed([b"no", text])
    assert (rows, len(dead)) == ([row], 1)


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (b"no json", "no JSON object", ""),
        (b"", "no JSON object", ""),
        (b"[]", "no JSON object", ""),
        (b"null", "no JSON object", ""),
        (b'{"n": 1} {"n": 2}', "no JSON object", ""),
        (b'{"n": 1', "no JSON object", ""),
        (b"\x00", "no JSON object", ""),
        (b'{"t": "\xff"}', "invalid UTF-8", ""),
        (
            b'{"n": "five"}',
            "does not fit the schema",
            "Expected `int | null`, got `str` - at `$.n`",
        ),
        (b'{"n": 0.5}', "does not fit the schema", "Expected `int | null`, got `float` - at `$.n`"),
        (b'{"b": 128}', "does not fit the schema", "Expected `int` <= 127 - at `$.b`"),
        (b'{"t": [1]}', "does not fit the schema", "Expected `str | null`, got `array` - at `$.t`"),
        (b'{"at": "no"}', "does not fit the schema", "at: "),
        (b'{"at": 5}', "does not fit the schema", "Expected `str | null`, got `int` - at `$.at`"),
        (b'{"day": "2026-02-30"}', "does not fit the schema", "day: "),
        (b'{"price": 1.234}', "does not fit the schema", "price: Rescaling Decimal value"),
        (b'{"new": 1}', "fields that the schema lacks", "`new`"),
        (b'{"o": {"x": 1}}', "fields that the schema lacks", "`x` - at `$.o`"),
    ],
)
def test_what_does_not_is_a_dead_letter_that_says_why(value, reason, detail):
    rows, ((_, got, why),) = parsed([b"{}", value, b'{"n":7}'])
    assert rows == [{}, {"n": 7}]
    assert (got, why[: len(detail)]) == (reason, detail)


def test_a_value_that_is_null_is_a_row_of_nulls():
    assert parsed([None, b"{}", None]) == ([{}, {}, {}], [])


def test_fields_that_are_ignored_are_still_looked_at():
    rows, dead = parsed([b'{"new":1,"n":2}', b'{"new":"\xff"}'], strict=False)
    assert rows == [{"n": 2}]
    assert [why for _, why, _ in dead] == ["invalid UTF-8"]


@pytest.mark.parametrize(
    "values",
    [
        [b'{"n":1,', b'"s":"x"}', b"{}", b"{}{}"],
        [b'{"n":1', b"}\n{}"],
        [b"{}\n{}", b""],
        [b'{"s":"', b'"}', b"{}\n{}"],
        [b'{"n":1}{', b'"n":2}', b"{}"],
        [b'{"s":"}', b'{"}', b"{}{}", b"{}"],
    ],
)
def test_values_that_borrow_from_their_neighbours_are_no_rows(values):
    """Lines that are one object together, and others that hold two: as many objects as values."""
    rows, dead = parsed(values, "n bigint, s string")
    assert (len(rows), len(dead)) == (values.count(b"{}"), len(values) - values.count(b"{}"))


def test_what_objects_have_becomes_columns():
    found = pa.null()
    for value in (
        {"a": 1, "l": [], "o": {"x": None}, "e": {}},
        {"a": 0.5, "l": [1, None], "o": {"y": True}, "s": "t", "mixed": 1},
        {"mixed": "x", "big": 1 << 70, "l": [{"k": 1}]},
    ):
        found = merged(found, seen_in(value))
    assert ddl(settled(found)) == (
        "a double, l array<string>, o struct<x: string, y: boolean>, e map<string, string>, "
        "s string, mixed string, big double"
    )


def test_a_schema_grows_and_never_changes():
    table = given_schema("n bigint, inner struct<a: int>")
    wider = widened(table, given_schema("n bigint, m string, inner struct<b: int>"))
    assert ddl(wider) == "n bigint, inner struct<a: int, b: int>, m string"
    seen = given_schema("N int, kafka_offset int, fine int")
    assert widened(table, seen, ["kafka_offset"]).names == ["n", "inner", "fine"]
    many = given_schema(", ".join(f"c{n} int" for n in range(5000)))
    assert len(widened(table, many).names) == 1000
    types = {field.name: field.type for field in table}
    assert changes(types, given_schema("n bigint, inner struct<b: int>, new int")) == {}
    for kind, way in (("double", "--widen rewrites the table so"), ("int", "name another lake")):
        found = changes(types, given_schema(f"n {kind}"))
        with pytest.raises(OttlaError, match=f"column n is bigint in the table, {kind}.*{way}"):
            refuse_changes("table", types, found)


@pytest.mark.parametrize(
    ("old", "new", "can"),
    [
        ("int", "bigint", True), ("bigint", "double", True), ("bigint", "string", True),
        ("bigint", "decimal(21,2)", True), ("bigint", "decimal(20,2)", False),
        ("decimal(8,2)", "decimal(10,4)", True), ("decimal(8,2)", "decimal(9,4)", False),
        ("float", "double", True), ("date", "timestamp", True), ("double", "bigint", False),
        ("bigint", "int", False), ("string", "int", False), ("array<int>", "string", False),
    ],
)  # fmt: skip
def test_what_can_be_widened(old, new, can):
    kinds = [given_schema(f"c {kind}").field(0).type for kind in (old, new)]
    assert widens(*kinds) is can
    assert [type_name(kind) for kind in kinds] == [old, new]


@pytest.mark.parametrize(
    ("expression", "columns", "wanted"),
    [
        ("to_date(s)", {"s": ["2026-01-05", "2026-02-30", "2026-01-05T10:00", "x", None]},
         ["2026-01-05", None, "2026-01-05", None, None]),
        ("cast(t AS date)", {"t": pa.array([NOON, None], pa.timestamp("us", "UTC"))},
         ["2026-01-05", None]),
        ("d", {"d": [date(2026, 1, 5), None]}, ["2026-01-05", None]),
        ("make_date(y, m, d)", {"y": [2024, 2023, 0, None], "m": [2, 2, 1, 1], "d": [29, 29, 1, 1]},
         ["2024-02-29", None, None, None]),
    ],
)  # fmt: skip
def test_the_date_of_a_row(expression, columns, wanted):
    rows = pa.table(columns)
    found = dates(rule_of(expression, rows.schema), rows).to_pylist()
    assert [None if day is None else str(day) for day in found] == wanted


AVRO = {
    "type": "record", "name": "flight",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8,
                                   "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "in", "type": {"type": "record", "name": "inner",
                                "fields": [{"name": "b", "type": "bytes"}]}},
    ],
}  # fmt: skip
OLDER = {**AVRO, "fields": [f for f in AVRO["fields"] if f["name"] != "note"]}
ROW = {"n": 7, "at": NOON, "price": Decimal("12.50"), "note": "ü", "in": {"b": b"\x00\xff"}}


def encoded(schema, number=None):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), ROW)
    frame = b"" if number is None else b"\x00" + number.to_bytes(4, "big")
    return frame + out.getvalue()


def test_avro_values_are_rows_or_dead_letters(tmp_path):
    path = tmp_path / "flight.avsc"
    for name, schema in (("flight", AVRO), ("3", AVRO), ("2", OLDER)):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    whole = encoded(AVRO)
    columns = AvroColumns.of(given_schema(str(path)), path, "none")
    found = columns.parse(pa.array([whole, None, whole[:-1], whole + b"\x00", b""], pa.binary()))
    rows = pa.Table.from_batches(found.batches).to_pylist()
    assert (rows[0], rows[1]["n"], len(rows)) == (ROW, None, 2)
    assert found.reasons[1] == (
        "no Avro record of the schema", "ValueError: 1 bytes follow the record"
    )  # fmt: skip
    framed = AvroColumns.of(given_schema(str(path)), path, "confluent")
    values = [encoded(AVRO, 3), encoded(OLDER, 2), encoded(AVRO, 9), whole]
    found = framed.parse(pa.array(values, pa.binary()))
    rows = pa.Table.from_batches(found.batches).to_pylist()
    assert [row["note"] for row in rows] == ["ü", None]
    assert found.reasons[0][1] == "ValueError: there is no file 9.avsc for its schema"
    assert len(found.reasons) == 2
