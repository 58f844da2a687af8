"""Rows made in Python's workers are the rows that Spark makes; what is in doubt is set aside."""

import json
import random
from datetime import UTC, datetime

import pytest

pa = pytest.importorskip("pyarrow")

from ottla.pipelines.landing.columnar import Rows, plan_of  # noqa: E402 - needs pyarrow
from ottla.pipelines.landing.columns import given_schema  # noqa: E402
from ottla.pipelines.landing.parsing import Parser  # noqa: E402
from ottla.pipelines.landing.settings import Layout, Value  # noqa: E402
from ottla.pipelines.record_arrow import TYPES  # noqa: E402

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(300)]

SCHEMA = """
n long, i int, h smallint, b byte, d double, s string, ok boolean, year int, month int, day int,
`o-p` struct<x: int, deep: struct<y: string>>, l array<long>, m array<struct<z: double>>
"""
SCALARS = [
    b"0", b"-0", b"1", b"-1", b"127", b"128", b"-128", b"-129", b"32768", b"2147483647",
    b"2147483648", b"9223372036854775807", b"9223372036854775808", b"1.0", b"1.5", b"1e2", b"1E400",
    b"-1e400", b"4.9e-325", b"0.1", b"123456789012345678901234567890", b"01", b"+1", b".5", b"1.",
    b"1e", b"NaN", b"Infinity", b"-Infinity", b"INF", b"null", b"true", b"false", b"True", b"nul",
    b'""', b'"x"', b'"1"', b'"true"', b'"NaN"', b'"\\u0000"', b'"\\ud83d\\ude00"', b'"\\ud800"',
    b'"\\ud800\\u0041"', b'"\\x41"', b'"\\/"', b'"a\tb"', b'"a\nb"', b'"\x00"', b'"\x7f"',
    b'"\xc3\xbc"', b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xef\xbb\xbf"', b"'x'", b"[]",
    b"[1]", b"[1,null]", b'["1"]', b"[[1]]", b"{}", b'{"x":1}', b'{"x":1,"w":2}', b'{"x":null}',
    b'{"deep":{"y":"a"}}', b'{"deep":{"y":1}}', b'{"deep":{"q":1}}', b'[{"z":1}]', b'[{"z":"1"}]',
    b'[{"q":1}]', b"[null]", b"[{}]", b"",
]  # fmt: skip
WHOLE = [
    None, b"", b" ", b"\n", b"null", b"true", b"1", b"[]", b"{}", b" {} ", b"\t{}\r\n", b"\x0c{}",
    b"\xef\xbb\xbf{}", b"{}{}", b"{}\n{}", b"{},{}", b'{"n":1', b'{"n":1}}', b'{"n":1}]',
    b'{"n":1},"x":[{}', b'{"n":1}], "x": [{}', b'{"n":1,}', b'{"n":1 "i":2}', b"{n:1}", b"{'n':1}",
    b'{"n":1}/*c*/', b'{"n":1}//c', b'{"n":1}\x00', b'\x00{"n":1}', b'{"\\u006e":1}', b'{"N":1}',
    b'{"n":1,"n":2}', b'{"n":1,"n":null}', b'{"n":"x","n":2}', b'{"n":2,"n":"x"}',
    b'{"o-p":{"x":1},"o-p":{}}', b'{"q":{"q":1}}', b'{"q":"\xff"}', b'{"q":"\\ud800"}',
    b'{"q":01}', b'{"q":[1,}', b'{"\xff":1}', b'{"q":\'x\'}', b'{"q":nul}', b'{"q":"a\tb"}',
    b"[" * 300, b'{"q":' + b"[" * 300 + b"]" * 300 + b"}", b'{"n":\n1}', b'{\n"n":1,\n"s":"x"\n}',
    b'{"year":2024,"month":2,"day":29}', b'{"year":2023,"month":2,"day":29}',
    b'{"year":2023,"month":13,"day":1}', b'{"year":0,"month":1,"day":1}',
    b'{"year":-5,"month":1,"day":1}', b'{"year":10000,"month":1,"day":1}',
    b'{"year":2024,"month":null,"day":29}',
]  # fmt: skip
TEXTS = [
    "2026-01-05", "2026-1-5", "2026-02-30", "2026-13-01", "2026-01-05T10:00", "2026-01-05 x",
    "2026-01-05x", " 2026-01-05", "2026-01-05\n", "0000-01-01", "9999-12-31", "12026-01-05", "2026",
    "2026-01", "", "today", "epoch", "2026-01-05T\n", "-2026-01-05", "1582-10-10", "1900-02-29",
    "\u0662026-01-05", "2026\u201301-05",
]  # fmt: skip


def corpus():
    """Return odd values, and such with odd fields in every column."""
    names = ["n", "i", "h", "b", "d", "s", "ok", "o-p", "l", "m", "q"]
    found = [*WHOLE]
    found += [b'{"%s":%s}' % (name.encode(), value) for name in names for value in SCALARS]
    found += [json.dumps({"s": text}).encode() for text in TEXTS]
    rng = random.Random(5)
    for _ in range(1500):
        fields = [
            b'"%s":%s' % (rng.choice(names).encode(), rng.choice(SCALARS))
            for _ in range(rng.randrange(4))
        ]
        value = b"{" + b",".join(fields) + b"}"
        if rng.random() < 0.3:
            value = value.replace(b":", rng.choice([b" : ", b":\n", b":\t"]))
        if rng.random() < 0.2 and value:
            at = rng.randrange(len(value))
            value = value[:at] + bytes([rng.randrange(256)]) + value[at + rng.randrange(2) :]
        found.append(value)
    return found


@pytest.fixture(scope="module")
def spark(spark):
    spark.conf.set("spark.sql.ansi.enabled", "false")
    return spark


def records_of(values):
    count = len(values)
    columns = {
        "key": [b"k"] * count, "value": values, "topic": ["t"] * count, "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [datetime(2026, 1, 1 + n % 28, tzinfo=UTC) for n in range(count)],
        "timestampType": [0] * count, "headers": [None] * count,
    }  # fmt: skip
    arrays = [pa.array(columns[name], kind) for name, kind in TYPES.items()]
    return pa.RecordBatch.from_arrays(arrays, list(TYPES))


def by_spark(spark, parser, records, tmp_path):
    """Return the rows that Spark's parser makes, by offset, and the offsets of dead letters."""
    from pyarrow import parquet

    from ottla.pipelines.landing.columns_job import RECORDS

    parquet.write_table(pa.Table.from_batches([records]), tmp_path / "records.parquet")
    frame = spark.read.schema(RECORDS).parquet(str(tmp_path / "records.parquet"))
    judged = parser.judged(frame)
    rows = plain(parser.rows(judged).toArrow())
    dead = parser.dead_letters(judged).select("kafka_offset").collect()
    return {row["kafka_offset"]: row for row in rows}, {row.kafka_offset for row in dead}


def plain(rows):
    """Return rows; dates as days, since Python has none after the year 9999."""
    for at, field in enumerate(rows.schema):
        if field.type == pa.date32():
            rows = rows.set_column(at, field.name, rows.column(at).cast(pa.int32()))
    return rows.to_pylist()


@pytest.mark.parametrize(
    ("drift", "date", "least"),
    [
        ("widen", None, 350),
        ("ignore", None, 400),
        ("dead", "make_date(year, month, day)", 350),
        ("widen", "to_date(s)", 250),
        ("ignore", "CAST(kafka_timestamp AS date)", 400),
    ],
)
def test_the_rows_are_sparks_rows(spark, tmp_path, drift, date, least):
    parser = Parser(
        Value(format="json", drift=drift, keep=True), Layout(date=date), given_schema(SCHEMA)
    )
    plan = plan_of(parser, "UTC")
    assert plan is not None
    values = corpus()
    records = records_of(values)
    rows, rest = Rows(plan).split(records)
    taken = {row["kafka_offset"]: row for row in plain(rows)}
    aside = set() if rest is None else set(rest.column("offset").to_pylist())
    assert len(taken) == rows.num_rows
    assert taken.keys() | aside == set(range(len(values)))
    assert not taken.keys() & aside
    of_spark, dead = by_spark(spark, parser, records, tmp_path)
    for offset, row in taken.items():
        assert offset not in dead, values[offset]
        assert row == of_spark[offset], values[offset]
        assert list(row) == list(of_spark[offset])
    assert len(taken) >= least  # else hardly anything was compared
    # One at a time, so that no neighbour makes a difference.
    for n in range(0, len(values), 7):
        alone, _ = Rows(plan).split(records.slice(n, 1))
        assert alone.num_rows == (n in taken), values[n]


def test_values_that_borrow_from_their_neighbours_are_set_aside():
    """Lines that are one object together, and others that hold two: as many objects as values."""
    parser = Parser(Value(format="json"), Layout(), given_schema("n long, s string"))
    plan = plan_of(parser, "UTC")
    for values in (
        [b'{"n":1,', b'"s":"x"}', b"{}", b"{}{}"],
        [b'{"n":1', b"}\n{}"],
        [b"{}\n{}", b""],
        [b"", b"{}\n{}"],
        [b'{"s":"', b'"}', b"{}\n{}"],
        [b'{"n":1}{', b'"n":2}', b"{}"],
        [b'{"s":"}', b'{"}', b"{}{}", b"{}"],
        [b"{}{}", b"{}"],
    ):
        rows, rest = Rows(plan).split(records_of(values))
        good = [n for n, value in enumerate(values) if value == b"{}"]
        assert rows.column("kafka_offset").to_pylist() == good
        assert rest.num_rows == len(values) - len(good)


@pytest.mark.parametrize(
    ("schema", "layout"),
    [
        ("at timestamp", {}),
        ("day date", {}),
        ("price decimal(8,2)", {}),
        ("tags map<string, long>", {}),
        ("f float", {}),
        ("raw binary", {}),
        ("n long", {"date": "date_add(to_date(s), 1)"}),
        ("n long", {"date": "to_date(n)"}),
        ("y long, m int, d int", {"date": "make_date(y, m, d)"}),
        ('`a"b` long', {}),
    ],
)
def test_what_only_spark_reads(schema, layout):
    parser = Parser(Value(format="json"), Layout(**layout), given_schema(schema))
    assert plan_of(parser, "UTC") is None


def test_dates_of_another_time_zone_are_sparks():
    parser = Parser(Value(), Layout(date="to_date(kafka_timestamp)"), None)
    assert plan_of(parser, "Europe/Helsinki") is None
    assert plan_of(parser, "UTC") is not None
