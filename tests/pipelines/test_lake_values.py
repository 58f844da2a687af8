"""Values to columns without a cluster: Avro that decodes, Avro that does not, names that clash."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from ottla.model.errors import OttlaError
from ottla.pipelines.landing.columns import given_schema, united, widened
from ottla.pipelines.landing.parsing import Parser
from ottla.pipelines.landing.settings import Layout, Value

fastavro = pytest.importorskip("fastavro")
pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(200)]

RECORD = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8,
                                   "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "in", "type": {"type": "record", "name": "inner",
                                "fields": [{"name": "b", "type": "bytes"}]}},
    ],
}  # fmt: skip
OLDER = {**RECORD, "fields": [f for f in RECORD["fields"] if f["name"] not in ("note", "tags")]}
ROW = {
    "n": 7,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "price": Decimal("12.50"),
    "note": "ü",
    "tags": ["x"],
    "in": {"b": b"\x00\xff"},
}


@pytest.fixture(scope="module")
def spark(spark):
    spark.conf.set("spark.sql.ansi.enabled", "false")
    return spark


def encoded(schema, row=ROW):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def split(spark, parser, values):
    """Return rows and dead letters by the values' places."""
    rows = [(v if v is None else bytearray(v), n) for n, v in enumerate(values)]
    records = spark.createDataFrame(rows, "value binary, offset long").selectExpr(
        "value", "cast(null as binary) as key", "'t' as topic", "0 as partition", "offset",
        "now() as timestamp", "0 as timestampType", "array() as headers",
    )  # fmt: skip
    judged = parser.judged(records)
    good = {r.kafka_offset: r for r in parser.rows(judged).collect()}
    dead = {r.kafka_offset: r for r in parser.dead_letters(judged).collect()}
    assert sorted([*good, *dead]) == list(range(len(values)))
    return good, dead


def test_avro_values_are_rows_or_dead_letters(spark, tmp_path):
    path = tmp_path / "flight.avsc"
    path.write_text(json.dumps(RECORD))
    parser = Parser(
        Value(format="avro", schema=str(path)), Layout(date="day"), given_schema(str(path))
    )
    whole = encoded(RECORD)
    good, dead = split(spark, parser, [whole, None, whole[:-1], whole + b"\x00", b"", b"{}"])
    row = good[0]
    assert (row.n, row.day, row.price, row.note, row.tags) == (
        7, ROW["day"], ROW["price"], "ü", ["x"]
    )  # fmt: skip
    assert row["at"].replace(tzinfo=UTC) == ROW["at"]
    assert (bytes(row["in"].b), row.event_date) == (b"\x00\xff", ROW["day"])
    assert good[1].n is None
    assert sorted(dead) == [2, 3, 4, 5]
    assert dead[3].detail == "ValueError: 1 bytes follow the record"


def test_avro_values_with_their_schemas_id(spark, tmp_path):
    path = tmp_path / "flight.avsc"
    for name, schema in (("flight", RECORD), ("3", RECORD), ("2", OLDER)):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    value = Value(format="avro", schema=str(path), framing="confluent")
    parser = Parser(value, Layout(), given_schema(str(path)))

    def framed(number, schema):
        return b"\x00" + number.to_bytes(4, "big") + encoded(schema)

    good, dead = split(
        spark, parser, [framed(3, RECORD), framed(2, OLDER), framed(9, RECORD), encoded(RECORD)]
    )
    assert (good[0].note, good[1].note, good[1].tags, good[1].n) == ("ü", None, [], 7)
    assert dead[2].detail == "ValueError: there is no file 9.avsc for its schema"
    assert sorted(dead) == [2, 3]


def test_a_schema_grows_and_never_changes():
    table = given_schema("n long, inner struct<a: int>")
    wider = united(table, given_schema("n long, m string, inner struct<b: int>"), "table")
    assert wider.simpleString() == "struct<n:bigint,inner:struct<a:int,b:int>,m:string>"
    with pytest.raises(OttlaError, match="column n is bigint in the table, string in the schema"):
        united(table, given_schema("n string"), "table")
    seen = given_schema("N int, kafka_offset int, batch int, fine int")
    assert widened(table, seen).names == ["n", "inner", "fine"]
    many = given_schema(", ".join(f"c{n} int" for n in range(5000)))
    assert len(widened(table, many).names) == 1000 - 1 + 1


@pytest.mark.parametrize("text", ["n nonsense", "nosuch.ddl", "n long,", "nosuch.avsc"])
def test_what_is_no_schema_is_one_line(text):
    with pytest.raises(OttlaError) as caught:
        given_schema(text)
    assert "\n" not in str(caught.value)


def test_columns_that_are_called_as_the_lakes_own_are_refused():
    with pytest.raises(OttlaError, match="column kafka_offset is called as one of the lake's own"):
        Parser(Value(format="json"), Layout(), given_schema("kafka_offset long"))
