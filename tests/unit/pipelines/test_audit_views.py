"""The audit's views of docs/PIPELINES.md, by DuckDB, over a table as the lake has it."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

PAGE = (Path(__file__).parents[3] / "docs/PIPELINES.md").read_text(encoding="utf-8")
(SQL,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BUCKET = 600_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def stamp(number, event_ms, producer="web-7.1f"):
    return [
        {"key": "other", "value": b"x"},
        {"key": "ottla.audit", "value": f"{producer};{event_ms};{number}".encode()},
    ]


@pytest.fixture
def audit(tmp_path):
    """Land headers, report counts; return the rows of the view `audit`."""

    def audit(headers, reports):
        folder = tmp_path / "lake/orders/data/batch=0"
        folder.mkdir(parents=True)
        table = pa.table(
            {"kafka_topic": ["orders"] * len(headers), "kafka_headers": pa.array(headers, HEADERS)}
        )
        pq.write_table(table, folder / "part-0.parquet")
        (tmp_path / "audit-reports").mkdir()
        lines = (
            {"topic": "orders", "producer": producer, "bucket_ms": bucket_ms, "count": count}
            for producer, bucket_ms, count in reports
        )
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / "audit-reports" / "web.jsonl").write_text(text)
        db = duckdb.connect()
        db.execute(SQL.replace("'/data/", f"'{tmp_path}/"))
        found = db.sql("SELECT producer, epoch_ms(since), sent, landed, doubled, lost FROM audit")
        return found.fetchall()

    return audit


def test_lost_doubled_and_without_a_stamp(audit):
    begin = 10 * BUCKET
    headers = [stamp(n, begin + n) for n in range(60) if n != 17]
    headers += [stamp(3, begin + 3), stamp(0, begin + BUCKET), None, [], stamp("x", begin)]
    reports = [("web-7.1f", begin, 40), ("web-7.1f", begin, 60), ("web-7.1f", begin + BUCKET, 3)]
    assert audit(headers, [*reports, ("gone", begin, 5)]) == [
        ("gone", begin, 5, 0, 0, 5),
        ("web-7.1f", begin, 60, 60, 1, 1),
        ("web-7.1f", begin + BUCKET, 3, 1, 0, 2),
    ]


def test_numbers_tell_where_there_are_no_reports(audit):
    headers = [stamp(n, n, "a") for n in (0, 1, 4)]
    assert audit(headers, [("b", 0, 0)])[0] == ("a", 0, 5, 3, 0, 2)
