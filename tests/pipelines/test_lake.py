"""The lake job against real brokers: every row once for readers that know nothing of it, or no."""

import json
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.clients import admin_client, end_offsets
from support.cluster import OttlaCluster, free_ports
from support.landed import (
    Produced,
    by_duckdb,
    by_pyarrow,
    by_spark,
    differences,
    kill_when,
    numbered,
    run_here,
    settings_of,
)
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(450)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with OttlaCluster(
        tmp_path_factory.mktemp("cluster"), brokers=3, zookeeper_server="java"
    ) as cluster:
        yield cluster


def ottla(*arguments):
    subprocess.run([sys.executable, "-m", "ottla", *arguments], check=True, timeout=60)


@pytest.fixture
def topic(cluster, request):
    """Make a topic that is called as the test."""
    name = request.node.name.replace("[", ".").replace("]", "").replace("/", ".")

    def make(partitions=2, name=name):
        where = ["--replication-factor", "3", "--bootstrap-server", cluster.bootstrap]
        ottla("topics", "create", name, "--partitions", str(partitions), *where)
        return Produced(cluster.bootstrap, name)

    return make


@pytest.mark.parametrize("source", ["kafka", "ottla"])
def test_each_record_once_for_every_reader(cluster, spark, topic, tmp_path, source):
    produced = topic(3)
    produced.send([*numbered(0, 700), (b"gone", None), (None, b'{"n":700}', [("h", b"1")])])
    more = {"lake__source": source, "value__keep": True}
    sets = settings_of(
        cluster.bootstrap, tmp_path, [produced.topic], lake__batch_records=300, **more
    )
    first = run_here(spark, sets)
    assert (first.code, first.result["exactly_once"]) == (0, True), first.told
    told = first.result["topics"][produced.topic]
    assert (told["rows"], told["dead"], told["batches"]) == (702, 0, 3)
    data = tmp_path / produced.topic / "data"
    assert differences(by_pyarrow(data), produced) == []
    assert differences(by_spark(spark, data), produced) == []
    assert differences(by_duckdb(data), produced) == []
    dates = {p.name for p in (data / "batch=0").iterdir()}
    assert dates >= {f"event_date=2026-01-0{d}" for d in (1, 5)}

    again = run_here(spark, sets)
    assert (again.code, again.result["topics"][produced.topic]["new_rows"]) == (0, 0)

    produced.send(numbered(1000, 90))
    alive = [b for b in cluster.ids if b != 0]
    cluster.kill(0)
    try:
        bootstrap = ",".join(cluster.address(b) for b in alive)
        sets = settings_of(bootstrap, tmp_path, [produced.topic], **more)
        second = run_here(spark, sets, "--verify")
    finally:
        cluster.start_broker(0)
    assert second.code == 0, second.told
    assert second.result["topics"][produced.topic]["new_rows"] == 90
    assert "792 records compared by other readers, 0 problems" in second.told
    assert differences(by_pyarrow(data), produced) == []


def garbage():
    """Yield values that are no rows, and how the reason of the dead letter begins."""
    no_fit = "does not fit the schema"
    yield from [
        (b"no json", no_fit),
        (b'{"n": 1', no_fit),
        (b'{"n": 1} {"n": 2}', no_fit),
        (b'{"n": 1}], "x": [{}', "no JSON object"),
        (b'{"n": 1},{"n": 2}', "no JSON object"),
        (b"", "no JSON object"),
        (b"null", "no JSON object"),
        (b"[]", no_fit),
        (b'{"n": "five"}', f"{no_fit}: n"),
        (b'{"n": 1.5, "day": []}', no_fit),
        (b'{"n": 99999999999999999999}', f"{no_fit}: n"),
        (b'{"n": 1, "note": "\xff\xfe"}', "invalid UTF-8"),
        (b"\x00\x01\x02", no_fit),
        (b"x" * 1_000_000, no_fit),
    ]


def test_what_is_no_row_is_a_dead_letter_and_new_fields_are_columns(
    cluster, spark, topic, tmp_path
):
    produced = topic(2)
    reasons = dict(garbage())
    records = numbered(0, 9 * len(reasons))
    records += [(None, None)] * 9
    records += [(b"bad", value, [("trace", b"7"), ("none", None)]) for value in reasons]
    new = {"n": 5, "added": {"a": 1}, "tags": ["x"]}
    produced.send([*records, (b"new", json.dumps(new).encode())])
    letters = topic(1, f"{produced.topic}.dead").topic
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic], dead_letters__topic=letters)
    done = run_here(spark, sets)
    assert done.code == 0, done.told
    folder = tmp_path / produced.topic
    rows, dead = by_spark(spark, folder / "data"), by_pyarrow(folder / "dead")
    assert differences(rows, produced, dead) == []
    assert differences(by_pyarrow(folder / "data"), produced, dead) == []
    assert differences(by_duckdb(folder / "data"), produced, by_duckdb(folder / "dead")) == []
    assert {bytes(d["kafka_value"]) for d in dead} == set(reasons)
    for letter in dead:
        told = ": ".join(filter(None, (letter["reason"], letter["detail"])))
        assert told.startswith(reasons[bytes(letter["kafka_value"])]), letter
    (row,) = [r for r in rows if r["kafka_key"] == b"new"]
    assert (row["added"]["a"], row["tags"]) == (1, ["x"])
    assert_like_connect(consumed(cluster.bootstrap, letters, len(dead)), produced, reasons)

    # A column keeps its type; a value that clashes is a dead letter.
    produced.send(
        [(b"clash", b'{"n": 6, "added": "text"}'), (b"fits", b'{"n": 7, "added": {"b": 2}}')]
    )
    again = run_here(spark, sets)
    assert again.code == 0, again.told
    rows, dead = by_spark(spark, folder / "data"), by_pyarrow(folder / "dead")
    assert differences(rows, produced, dead) == []
    assert [d["detail"] for d in dead if d["kafka_key"] == b"clash"] == ["added"]
    merged = spark.read.option("mergeSchema", "true").parquet(str(folder / "data")).collect()
    (fits,) = [r for r in merged if r["kafka_key"] == b"fits"]
    assert fits["added"]["b"] == 2
    wrong = run_here(spark, [*sets, 'value.schema="n string"'])
    assert wrong.code == 1
    assert "column n is bigint in the table, string in the schema" in wrong.told


def consumed(bootstrap, topic, count):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            found += [m for m in consumer.consume(100, 1) if m.error() is None]
        return found
    finally:
        consumer.close()


def assert_like_connect(messages, produced, reasons):
    """Hold dead letters in a topic against the records they were."""
    assert len(messages) == len(reasons)
    for message in messages:
        headers = message.headers()
        errors = {k: v for k, v in headers if k.startswith("__connect.errors.")}
        place = tuple(int(errors[f"__connect.errors.{k}"]) for k in ("partition", "offset"))
        key, value, own = produced.acked[place]
        assert (message.key(), message.value() or b"") == (key, value)
        assert headers[: len(own)] == own
        assert errors["__connect.errors.topic"].decode() == produced.topic
        assert errors["__connect.errors.exception.message"].decode().startswith(reasons[value])


def test_offsets_without_records_are_gaps_only_if_the_cluster_says_so(
    cluster, spark, topic, tmp_path
):
    from confluent_kafka import Producer

    produced = topic(1)
    produced.send(numbered(0, 10))
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "log_level": 0}
    )
    producer.init_transactions(30)
    for commits in (True, False, True):
        producer.begin_transaction()
        for _, value in numbered(100, 5):
            producer.produce(produced.topic, value)
        assert producer.flush(30) == 0  # an abort forgets what was not sent
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    admin = admin_client(cluster.bootstrap)
    # The last end is acknowledged once it is decided; its marker comes a moment later.
    until(
        lambda: end_offsets(admin, produced.topic, 1, "read_committed") == 28, 60,
        "the last marker is written",
    )  # fmt: skip
    totals = {}
    for isolation in ("read_committed", "read_uncommitted"):
        path = tmp_path / isolation
        sets = settings_of(cluster.bootstrap, path, [produced.topic], lake__isolation=isolation)
        done = run_here(spark, sets)
        assert done.code == 0, done.told
        totals[isolation] = done.result["topics"][produced.topic]
        rows = by_pyarrow(path / produced.topic / "data")
        assert len(rows) == totals[isolation]["rows"]
    assert {k: (v["rows"], v["gaps"]) for k, v in totals.items()} == {
        "read_committed": (20, 8),
        "read_uncommitted": (25, 3),
    }


def left_out_by_spark(df):
    return df.where("offset != 17")


def doubled_by_spark(df):
    return df.union(df.where("offset = 17"))


def left_out_by_tasks(ranges):
    one = replace(ranges[0], end=50)
    return [replace(one, end=17), replace(one, start=18)]


def doubled_by_tasks(ranges):
    one = replace(ranges[0], end=50)
    return [one, replace(one, start=17, end=18)]


LEFT_OUT = "-0: 1 record did not come, the first at 17"
DOUBLED = "-0: offset 17 stands 2 times"


@pytest.mark.parametrize(
    ("source", "planted", "plants"),
    [
        ("kafka", "landing.records", {left_out_by_spark: LEFT_OUT, doubled_by_spark: DOUBLED}),
        ("ottla", "columns_job.ranges", {left_out_by_tasks: LEFT_OUT, doubled_by_tasks: DOUBLED}),
    ],
)
def test_a_source_that_leaves_a_record_out_is_found_out(
    cluster, spark, topic, tmp_path, monkeypatch, source, planted, plants
):
    from ottla.pipelines.landing import columns_job, landing

    produced = topic(1).send(numbered(0, 50))
    module, name = planted.split(".")
    module = {"landing": landing, "columns_job": columns_job}[module]
    real = getattr(module, name)
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic], lake__source=source)
    for plant, says in plants.items():
        with monkeypatch.context() as patched:
            patched.setattr(module, name, lambda *a, plant=plant: plant(real(*a)))
            done = run_here(spark, sets)
        assert done.code == 1
        assert says in done.told
        assert by_files(tmp_path / produced.topic) == []
    done = run_here(spark, sets)
    assert done.code == 0, done.told
    assert differences(by_pyarrow(tmp_path / produced.topic / "data"), produced) == []


def test_small_batches_are_compacted_and_landing_goes_on(cluster, spark, topic, tmp_path):
    produced = topic(2).send([*numbered(0, 300), (b"bad", b"no json")])
    sets = settings_of(
        cluster.bootstrap, tmp_path, [produced.topic], lake__batch_records=60, layout__gather=True
    )
    assert run_here(spark, sets).code == 0
    table = tmp_path / produced.topic
    for batch in (table / "data").iterdir():
        for date in batch.glob("event_date=*"):
            assert len(list(date.iterdir())) == 1
    compacted = run_here(None, sets, "--compact")
    assert compacted.code == 0, compacted.told
    assert compacted.result["topics"][produced.topic]["files"][1] == 5
    assert len(list((table / "data").iterdir())) == 1
    produced.send(numbered(300, 50))
    done = run_here(spark, sets, "--verify")
    assert done.code == 0, done.told
    told = done.result["topics"][produced.topic]
    assert (told["rows"], told["dead"], told["batches"]) == (350, 1, 2)
    rows, dead = by_pyarrow(table / "data"), by_pyarrow(table / "dead")
    assert differences(rows, produced, dead) == []
    assert differences(by_duckdb(table / "data"), produced, dead) == []
    assert differences(by_spark(spark, table / "data"), produced, dead) == []


def by_files(table):
    return sorted(p.name for p in table.rglob("*.parquet"))


def test_a_topic_made_anew_and_records_gone_before_they_landed_are_refused(
    cluster, spark, topic, tmp_path
):
    produced = topic(1).send(numbered(0, 40))
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic])
    assert run_here(spark, sets).code == 0
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path / produced.topic, copied / produced.topic)
    done = run_here(spark, settings_of(cluster.bootstrap, copied, [produced.topic]))
    assert (done.code, done.told.count("\n")) == (1, 1)
    assert "is a copy of" in done.told

    produced.send(numbered(40, 10))
    delete_records(cluster.bootstrap, produced.topic, 45)
    done = run_here(spark, sets)
    assert (done.code, done.told.count("\n")) == (1, 1)
    assert "-0: offsets 40..44 were removed from the cluster before they landed" in done.told
    done = run_here(spark, [*sets, 'lake.on_loss="skip"'])
    assert done.code == 0, done.told
    told = done.result["topics"][produced.topic]
    assert (told["rows"], told["lost"]) == (45, 5)

    ottla("topics", "delete", produced.topic, "--yes", "--bootstrap-server", cluster.bootstrap)
    before = by_files(tmp_path)
    # Brokers forget a topic before its name is free.
    anew = until(lambda: topic(1), 60, "the name is free", despite=(subprocess.CalledProcessError,))
    anew.send(numbered(0, 60))
    done = run_here(spark, sets)
    assert (done.code, done.told.count("\n")) == (1, 1)
    assert "was deleted and made anew" in done.told
    assert by_files(tmp_path) == before


def delete_records(bootstrap, topic, offset):
    from confluent_kafka import TopicPartition

    admin = admin_client(bootstrap)
    futures = admin.delete_records([TopicPartition(topic, 0, offset)])
    assert [f.result(30).low_watermark for f in futures.values()] == [offset]


def test_a_leader_dies_amid_a_batch(cluster, spark, topic, tmp_path):
    produced = topic(3).send(numbered(0, 6000), **{"batch.size": 2000})
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic], lake__batch_records=1500)
    sets.append("cluster.options={'max.partition.fetch.bytes' = '2000'}")  # many fetches
    staging = tmp_path / produced.topic / "_staging"
    killed = []

    def kill():
        # Whichever it is: this thread may wait for a core while a whole batch is read.
        until(lambda: list(staging.glob("[1-3]-*/attempts/*")), 120, "a later batch is being read")
        killed.append(len(list((staging.parent / "data").iterdir())))
        cluster.kill(1)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        done = run_here(spark, sets)
    finally:
        killer.join(130)
        if killed:
            cluster.start_broker(1)
    assert killed
    assert 1 <= killed[0] < 4, "all batches were there"
    assert done.code == 0, done.told
    assert done.result["topics"][produced.topic]["rows"] == 6000
    assert differences(by_pyarrow(staging.parent / "data"), produced) == []


@pytest.mark.alone
def test_following_until_told_to_end(cluster, topic, tmp_path):
    produced = topic(2).send(numbered(0, 100))
    (port,) = free_ports(1)
    more = {"lake__poll_seconds": 0.2, "lake__metrics_port": port}
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic], **more)
    arguments = [x for s in sets for x in ("--set", s)]
    job = subprocess.Popen(
        [sys.executable, "-m", "ottla", "pipeline", "lake", "--follow", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def rows():
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        line = f'ottla_lake_rows_total{{topic="{produced.topic}"}} '
        return next((int(x.removeprefix(line)) for x in lines if x.startswith(line)), 0)

    try:
        until(lambda: rows() == 100, 200, "100 rows", despite=(OSError,))
        produced.send(numbered(100, 50))
        until(lambda: rows() == 150, 60, "150 rows")
        job.terminate()
        out, told = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait(10)
    assert job.returncode == 0, told
    assert "Traceback" not in told
    assert json.loads(out)["topics"][produced.topic]["rows"] == 150
    assert differences(by_pyarrow(tmp_path / produced.topic / "data"), produced) == []


def test_a_driver_dies_amid_a_batch(cluster, spark, topic, tmp_path):
    """The other points, and random ones: tests/proofs/lake_proof.py."""
    produced = topic(2).send([*numbered(0, 400), (b"bad", b"no json")])
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic], lake__batch_records=100)
    table = tmp_path / produced.topic
    # Any but the first: this process may wait for a core while a whole batch is written.
    killed = kill_when(sets, lambda: list(table.glob("_staging/[1-9]-*/attempts/*")))
    assert killed, "it was done before anybody could kill it"
    done = run_here(spark, sets)
    assert done.code == 0, done.told
    rows, dead = by_pyarrow(table / "data"), by_pyarrow(table / "dead")
    assert differences(rows, produced, dead) == []
    assert differences(by_spark(spark, table / "data"), produced, dead) == []
