"""The sink's plain parts: rows to record batches, options, what a plan skips."""

import json
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from ottla.model import partitioning
from ottla.model.errors import ConfigError
from ottla.pipelines.sink import encoding, writer
from ottla.pipelines.sink.committing import Decision, Plan, Prepared
from ottla.pipelines.sink.encoding import RowEncoder, murmur2, refuse_schema, varints
from ottla.pipelines.sink.options import parse_sink_options
from ottla.wire.record_check import varint
from ottla.wire.records import frame_batch, iter_records

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def read(batches):
    """Return (partition, key, value, headers, timestamp) of each record."""
    found = []
    for tp, one in batches:
        data = frame_batch(
            one.payload, count=one.count, last_offset_delta=one.count - 1,
            base_timestamp=one.base_timestamp, max_timestamp=one.max_timestamp,
        )  # fmt: skip
        records = list(iter_records(memoryview(data), 0))
        assert [r.offset for r in records] == list(range(one.count))
        assert max(r.timestamp for r in records) == one.max_timestamp
        found += [(tp.partition, r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
    return found


def test_records_arrive_as_the_rows_were():
    chance = random.Random(7)

    def some(most):
        return None if chance.random() < 0.1 else chance.randbytes(chance.randrange(most))

    keys, values = [some(40) for _ in range(3000)], [some(300) for _ in range(3000)]
    headers = [
        None if chance.random() < 0.5
        else [{"key": f"h{n}é", "value": None if n % 2 else b"x" * n} for n in range(n % 4)]
        for n in range(3000)
    ]  # fmt: skip
    times = [chance.randrange(2_000_000_000_000) for _ in range(3000)]
    batch = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "timestamp": pa.array([1000 * at for at in times], pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    encoder = RowEncoder("t", lambda _: 5, 20_000, 2)
    out = [*encoder.take(batch.slice(0, 10)), *encoder.take(batch.slice(10)), *encoder.rest()]
    found = read(out)
    wanted = Counter(
        (k, v, tuple((x["key"], x["value"]) for x in h or ()), at)
        for k, v, h, at in zip(keys, values, headers, times, strict=True)
    )
    assert Counter(one[1:] for one in found) == wanted
    assert all(p == partitioning.partition_of(k, 5) for p, k, *_ in found if k is not None)
    assert len({p for p, k, *_ in found if k is None}) > 1, "in turn"
    assert encoder.rows == 3000
    assert max(len(one.payload) for _, one in out) < 21_000


def test_varints_are_those_of_records():
    numbers = [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 1 << 31, -(1 << 40), (1 << 63) - 1]
    assert varints(np.array(numbers)).to_pylist()[:-1] == [varint(n) for n in numbers[:-1]]
    assert varints(np.array([], np.int64)).to_pylist() == []


def test_the_hash_is_kafkas():
    keys = [random.randbytes(n % 13) for n in range(200)]
    found = murmur2(pa.array([b"before", *keys], pa.binary())[1:])
    assert [int(n) for n in found] == [partitioning.murmur2(key) for key in keys]


def test_a_record_larger_than_a_batch_is_alone():
    encoder = RowEncoder("t", lambda _: 1, 100, 0)
    rows = pa.record_batch({"value": pa.array([b"a", b"b" * 500, b"c"])})
    out = [*encoder.take(rows), *encoder.rest()]
    assert [one.count for _, one in out] == [1, 1, 1]


def test_rows_that_cannot_be_records():
    encoder = RowEncoder(None, lambda _: 2, 100, 0)
    with pytest.raises(ConfigError, match="null topic"):
        list(
            encoder.take(
                pa.record_batch({"value": pa.array([b"v"]), "topic": pa.array([None], pa.string())})
            )
        )
    rows = pa.record_batch(
        {
            "value": pa.array([b"v"]),
            "topic": pa.array(["t"]),
            "partition": pa.array([2], pa.int32()),
        }
    )
    with pytest.raises(ConfigError, match="partition 2: topic t has partitions 0 to 1"):
        list(encoder.take(rows))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("key string", "the rows have no column value; they have: key"),
        ("value string", "no topic is named"),
        ("value int, topic string", "column value is int, not binary or string"),
        ("value string, topic string, timestamp date", "column timestamp is date, not timestamp"),
    ],
)
def test_schemas(schema, said):
    kinds = {"string": t.StringType(), "int": t.IntegerType(), "date": t.DateType()}
    fields = [pair.split() for pair in schema.split(", ")]
    with pytest.raises(ConfigError, match=said):
        refuse_schema(t.StructType([t.StructField(n, kinds[k]) for n, k in fields]), None)
    assert encoding.HEADERS == "array<struct<key:string,value:binary>>"


WHERE = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "t"}, "a sink writes to option topic"),
        ({"kafka.retries": "3"}, "has no option kafka.retries: leave it out"),
        ({"kafka.acks": "0"}, "goes with ottla.delivery=at-least-once"),
        ({"ottla.delivery": "twice"}, "is none of exactly-once, at-least-once"),
        ({"kafka.batch.size": "big"}, "is not a whole number of 1 or more"),
        ({"ottla.batch": "1"}, "needs transactional.id.prefix"),
        ({"transactional.id.prefix": "a/b"}, "is not up to 200 letters"),
        ({"kafka.security.protocol": "SASL"}, "security.protocol"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, said):
    with pytest.raises(ConfigError) as caught:
        parse_sink_options({**WHERE, **options}, streaming=False)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_stream_is_known_by_its_checkpoint(tmp_path):
    (tmp_path / "metadata").write_text(json.dumps({"id": "7c0e"}))
    for location in (tmp_path, f"file:{tmp_path}", f"file://{tmp_path}"):
        given = {**WHERE, "checkpointLocation": str(location)}
        assert parse_sink_options(given, streaming=True).prefix == "ottla-sink.7c0e"
    for location in ("s3a://bucket/x", ""):
        with pytest.raises(ConfigError, match=r"give option transactional\.id\.prefix"):
            parse_sink_options({**WHERE, "checkpointLocation": location}, streaming=True)
    named = {**WHERE, "checkpointLocation": "s3a://x", "TRANSACTIONAL.ID.PREFIX": "mine"}
    assert parse_sink_options(named, streaming=True).prefix == "mine"


def test_what_a_plan_skips():
    last = Decision(query="q", batch=3, finished=True, tasks=[])
    plan = Plan("p", (1, 1), last)
    assert [plan.skips("q", n, 0) for n in (2, 3, 4)] == [True, True, False]
    assert not plan.skips("other", 3, 0), "a new checkpoint counts from 0 again"
    lost = Plan("p", (1, 1), last, {1: Prepared(1, 0, 9, 9, 5, 50)})
    assert [lost.skips("q", 3, task) for task in (0, 1)] == [True, False]
    assert [lost.repeats("q", n) for n in (2, 3, 4)] == [False, True, False]
    assert not Plan("p").skips("q", 0, 0)


def test_a_failed_write_aborts_again_what_tasks_still_wrote(monkeypatch):
    done = []

    class Committer:
        def __init__(self, *_):
            pass

        def abort(self):
            done.append("abort")

    monkeypatch.setattr(writer, "Committer", Committer)
    monkeypatch.setattr(writer.time, "sleep", done.append)
    schema = t.StructType([t.StructField("value", t.StringType())])
    writing = writer.batch_writer({**WHERE, "topic": "t"}, schema, overwrite=False)
    plan = writing.plan = Plan("p")
    writing.abort([None, writer.Written(plan, "", None)])
    assert done == ["abort"], "the task that failed has ended"
    writing.abort([None, None])
    assert done == ["abort", "abort", writer.STOPPING_S, "abort"]
