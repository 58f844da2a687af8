"""The lake's settings and command line: what makes no sense is one line before anything starts."""

import pytest

from ottla.pipelines import lake
from ottla.pipelines.landing.settings import parse_time

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
        ("lake.path=s3://bucket/lake", "needs a file system with an atomic rename"),
        ("lake.start=yesterday", "'yesterday' is no time; write 2026-01-31T12:00:00"),
        ("lake.batch_records=0", "batch_records must be at least 1"),
        ("lake.source=pulsar", "[lake.source]: Invalid enum value 'pulsar'"),
        ("value.schema=", "[value]: format json needs a schema; --infer offers one"),
        ("value.schema=nosuch.ddl", "nosuch.ddl: No such file or directory"),
        ("value.format=avro", "format avro needs a schema: name an .avsc file"),
        ("value.format=raw", "format raw has no schema"),
        ("layout.date_column=_x", "date_column '_x' is no name for a folder's column"),
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
    assert "has no table.json: it is no table of this job" in capsys.readouterr().err


def test_times():
    assert parse_time("1970-01-02") == 86_400_000
    assert parse_time("1970-01-01T01:00:00+01:00") == 0
