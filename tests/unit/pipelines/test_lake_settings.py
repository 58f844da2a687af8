"""The lake's settings and command line: what makes no sense is one line before anything starts."""

import pytest

from ottla.pipelines.lake import command as lake
from ottla.pipelines.lake.settings import parse_time

GOOD = [
    "cluster.bootstrap_servers=127.0.0.1:1",
    "lake.path=nowhere",
    'lake.topics=["t"]',
    "value.format=json",
    "value.schema=n long",
]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("lake.topics=[]", "[lake]: topics is empty; name at least one"),
        ('lake.topics=["a/b"]', "'a/b' is no name of a topic"),
        ('lake.topics=["..", "a"]', "'..' is no name of a topic"),
        ('lake.topics=["a", "a"]', "topics names one twice"),
        ("lake.pattern='('", "pattern '(': missing ), unterminated subpattern"),
        ("lake.start=yesterday", "'yesterday' is not a time; write it as 2026-01-31T12:00:00"),
        ("lake.batch_records=0", "batch_records must be at least 1"),
        ("lake.format=parquet", "[lake.format]: Invalid enum value 'parquet'"),
        ("lake.source=kafka", "[lake]: there is no setting `source`"),
        ("value.schema=", "[value]: format json needs a schema; --infer offers one"),
        ("value.schema=nosuch.ddl", "nosuch.ddl: No such file or directory"),
        ("value.format=avro", "format avro needs a schema: name an .avsc file"),
        ("value.format=raw", "format raw has no schema"),
        ("value.schema=n long,", "schema: no schema: the name of a column expected, not 'the end'"),
        ("value.schema=n nonsense", "schema: no schema: 'nonsense' is not a type"),
        ("value.schema=m map<int, int>", "column m: JSON has no map<int32, int32>"),
        ("value.schema=kafka_offset long", "kafka_offset is called as one of the lake's own"),
        ("layout.date_column=_x", "date_column '_x' is not a valid column name"),
        ("layout.date='date_add(day, 1)'", "write a column, to_date(column), or make_date("),
        ("layout.date=to_date(n)", "layout.date 'to_date(n)': n is bigint"),
        ("layout.date=to_date(day)", "layout.date 'to_date(day)': there is no column day"),
        ("lake.topic=t", "[lake]: there is no setting `topic`"),
        ("cluster.options={'security.protocol' = 'TLS'}", "security.protocol=TLS is not one of"),
        ("cluster.bootstrap_servers=nonsense", "bootstrap_servers: 'nonsense' is not an address"),
        ("lake.poll_seconds=1", "cannot reach 127.0.0.1:1"),
    ],
)
def test_one_line_and_nothing_made(tmp_path, monkeypatch, capsys, more, says):
    monkeypatch.chdir(tmp_path)
    arguments = [x for s in [*GOOD, more] for x in ("--set", s)]
    assert lake.main(arguments) == 1
    told = capsys.readouterr()
    assert says in told.err
    assert (told.err.count("\n"), told.out) == (1, "")
    assert list(tmp_path.iterdir()) == []


def test_files_of_what_is_no_table(tmp_path, capsys):
    arguments = [x for s in [*GOOD, f"lake.path={tmp_path}"] for x in ("--set", s)]
    assert lake.main([*arguments, "--files"]) == 1
    assert "no delta table of this job is there" in capsys.readouterr().err


def test_times():
    assert parse_time("1970-01-02") == 86_400_000
    assert parse_time("1970-01-01T01:00:00+01:00") == 0
