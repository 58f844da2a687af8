"""Files of reassignments and elections: topics, partitions, and the way back."""

import json
from pathlib import Path

import pytest

from ottla.admin.operations import way_back
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.placement.plans import PlanError, parse_partitions, parse_topics


def test_topics_as_kafka_writes_them():
    data = json.dumps({"topics": [{"topic": "b"}, {"topic": "a"}], "version": 1}).encode()
    assert parse_topics(data, "topics.json") == ["b", "a"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"topics":[{"topic":"a"},{"topic":"a"}],"version":1}', "a is listed twice"),
        (b'{"topics":[],"version":1}', "length >= 1"),
        (b'{"version":1}', "`topics`"),
        (b'{"topics":[{"topic":"a"}],"version":2}', "version 2"),
        (b'{"topics":[{"topic":"a/b"}]}', "a/b"),
        (b'{"topics":["a"]}', "topics[0]"),
        ("{“topics”:[{“topic”:”topic1”}],”version”:1}".encode(), "malformed"),
        (b"", "truncated"),
        (b"[" * 100_000, "topics.json"),
        (b"\xff\xfe", "topics.json"),
        (b" " * (8 * 1024 * 1024 + 1), "larger than 8 MiB"),
    ],
)
def test_a_bad_file_is_one_line(data, says):
    with pytest.raises(PlanError) as caught:
        parse_topics(data, "topics.json")
    message = str(caught.value)
    assert message.startswith("topics.json: ")
    assert says in message
    assert "\n" not in message


def test_the_way_back_is_kept_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(way_back, "MOST_FILES", 5)
    moments = iter([f"{n:04}Z" for n in range(8)] + ["0007Z"])
    monkeypatch.setattr(way_back.time, "strftime", lambda *_: next(moments))
    written = [way_back.write(f"plan {n}") for n in range(8)]
    kept = sorted(way_back.folder().iterdir())
    assert kept == written[3:]
    assert [p.read_text() for p in kept] == [f"plan {n}\n" for n in range(3, 8)]
    assert way_back.write("same moment") != written[-1]


def test_what_cannot_be_written_is_said_before_anything_is_sent(tmp_path, monkeypatch):
    chosen = tmp_path / "back.json"
    assert way_back.write("plan", str(chosen)) == chosen
    with pytest.raises(OttlaError, match=r"exists already.*nothing was sent"):
        way_back.write("another", str(chosen))
    assert chosen.read_text() == "plan\n"
    with pytest.raises(OttlaError, match=r"No such file.*--rollback-file; nothing was sent"):
        way_back.write("plan", str(tmp_path / "nosuch" / "back.json"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(OttlaError, match="nothing was sent"):
        way_back.write("plan")
    assert way_back.folder() == Path(tmp_path / "file" / "ottla" / "reassign")


def test_partitions_of_an_election_as_kafka_writes_them():
    data = b'{"partitions":[{"topic":"b","partition":1},{"topic":"a","partition":0}],"version":1}'
    assert parse_partitions(data, "f") == [TopicPartition("b", 1), TopicPartition("a", 0)]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"partitions":[{"topic":"a","partition":1},{"topic":"a","partition":1}]}', "a-1 is lis"),
        (b'{"partitions":[]}', "length >= 1"),
        (b"{}", "`partitions`"),
        (b'{"partitions":[{"topic":"a"}]}', "`partition`"),
        (b'{"partitions":[{"topic":"a","partition":-1}]}', ">= 0"),
        (b'{"partitions":[{"topic":"a","partition":"0"}]}', "partitions[0].partition"),
        (b'{"partitions":[{"topic":"","partition":0}]}', "empty string"),
        (b"", "truncated"),
        (b"\xff", "the format is"),
        (b'{"x":' + b"[" * 100_000, "nested too deeply"),
        (b" " * (8 * 1024 * 1024 + 1), "larger than 8 MiB"),
    ],
)
def test_a_bad_file_of_partitions_is_one_line(data, says):
    with pytest.raises(PlanError) as caught:
        parse_partitions(data, "elect.json")
    message = str(caught.value)
    assert message.startswith("elect.json: ")
    assert says in message
    assert "\n" not in message
