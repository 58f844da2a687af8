"""The lake job against real brokers: every row once for readers that know nothing of it, or no."""

import json
import subprocess
import sys
import threading
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
    by_library,
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


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_each_record_once_for_every_reader(cluster, spark, topic, tmp_path, table_format):
    produced = topic(3).send([*numbered(0, 700), (b"gone", None), (None, None)])
    more = {"lake__batch_records": 300, "lake__format": table_format}
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic], **more)
    done = run_here(spark, sets)
    assert done.code == 0, done.told
    data = tmp_path / produced.topic / "data"
    rows = by_library(data)
    for found in (rows, by_duckdb(data), by_spark(spark, data)):
        assert differences(found, produced) == []
    assert {str(row["event_date"]) for row in rows} >= {"2026-01-01", "2026-01-05"}
    assert {row["kafka_leader_epoch"] for row in rows} >= {0}
    told = done.result["topics"][produced.topic]
    assert (told["rows"], told["lag"], told["complete"]) == (702, 0, True)
    assert done.result["exactly_once"] is True

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
    assert differences(by_library(data), produced) == []


GARBAGE = {
    b"no json": "no JSON object",
    b'{"n": 1} {"n": 2}': "no JSON object",
    b"": "no JSON object",
    b'{"n": "five"}': "does not fit the schema: Expected `int | null`, got `str` - at `$.n`",
    b'{"n": 1, "note": "\xff\xfe"}': "invalid UTF-8",
    b"x" * 1_000_000: "no JSON object",
}
"""Values that are no rows, and how the reason of the dead letter begins."""


def test_what_is_no_row_is_a_dead_letter_and_new_fields_are_columns(
    cluster, spark, topic, tmp_path
):
    produced = topic(2)
    records = [*numbered(0, 60), *[(None, None)] * 9]
    records += [(b"bad", value, [("trace", b"7"), ("none", None)]) for value in GARBAGE]
    new = {"n": 5, "added": {"a": 1}, "tags": ["x"]}
    produced.send([*records, (b"new", json.dumps(new).encode())])
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic])
    done = run_here(spark, sets)
    assert (done.code, done.result["exactly_once"]) == (0, True), done.told
    folder = tmp_path / produced.topic
    rows, dead = by_spark(spark, folder / "data"), by_library(folder / "dead")
    assert differences(rows, produced, dead) == []
    assert differences(by_duckdb(folder / "data"), produced, by_duckdb(folder / "dead")) == []
    assert {bytes(d["kafka_value"]) for d in dead} == set(GARBAGE)
    for letter in dead:
        told = ": ".join(filter(None, (letter["reason"], letter["detail"])))
        assert told.startswith(GARBAGE[bytes(letter["kafka_value"])]), letter
    (row,) = [r for r in rows if r["kafka_key"] == b"new"]
    assert (row["added"]["a"], row["tags"]) == (1, ["x"])

    # A column keeps its type; a value that clashes is a dead letter.
    produced.send(
        [(b"clash", b'{"n": 6, "added": "text"}'), (b"fits", b'{"n": 7, "added": {"b": 2}}')]
    )
    again = run_here(spark, sets)
    assert again.code == 0, again.told
    rows, dead = by_library(folder / "data"), by_library(folder / "dead")
    assert differences(rows, produced, dead) == []
    assert ["added" in d["detail"] for d in dead if d["kafka_key"] == b"clash"] == [True]
    (fits,) = [r for r in rows if r["kafka_key"] == b"fits"]
    assert fits["added"]["b"] == 2


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_whole_number_that_becomes_a_decimal(cluster, spark, topic, tmp_path, table_format):
    produced = topic(1)
    schema = "n bigint, amount bigint"
    more = {"value__schema": schema, "layout__date": None, "lake__format": table_format}
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic], **more)

    def amounts(first, count, half):
        return [(None, json.dumps({"n": n, "amount": n + half}).encode())
                for n in range(first, first + count)]  # fmt: skip

    produced.send(amounts(0, 200, 0))
    assert run_here(spark, sets).code == 0
    produced.send(amounts(200, 150, 0.5))
    done = run_here(spark, sets)
    assert (done.code, done.told.count("\n")) == (1, 1)
    assert "150 of 150 records would be dead letters (does not fit the schema: 150)" in done.told
    kept = run_here(spark, [*sets, "lake.max_dead=1.0"])
    told = kept.result["topics"][produced.topic]
    assert (kept.code, told["rows"], told["dead"]) == (0, 200, 150), kept.told

    double = [*sets, 'value.schema="n bigint, amount double"']
    refused = run_here(spark, double)
    assert "column amount is bigint in the table, double in the schema; --widen" in refused.told
    widened = run_here(spark, double, "--widen")
    assert widened.code == 0, widened.told
    landed = run_here(None, double, "--land-dead")
    assert landed.code == 0, landed.told
    told = landed.result["topics"][produced.topic]
    assert (landed.code, told["rows"], told["dead"]) == (0, 350, 0), landed.told
    assert landed.result["exactly_once"] is True
    data = tmp_path / produced.topic / "data"
    rows = by_library(data)
    assert differences(rows, produced, by_library(data.parent / "dead")) == []
    assert sum(row["amount"] for row in rows) == sum(range(350)) + 75
    again = run_here(None, double, "--land-dead")
    assert (again.code, again.result["exactly_once"]) == (0, True)
    produced.send(amounts(350, 10, 0.5))
    last = run_here(spark, double, "--verify")
    assert (last.code, last.result["topics"][produced.topic]["rows"]) == (0, 360), last.told


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
        rows = by_library(path / produced.topic / "data")
        assert len(rows) == totals[isolation]["rows"]
    assert {k: (v["rows"], v["gaps"]) for k, v in totals.items()} == {
        "read_committed": (20, 8),
        "read_uncommitted": (25, 3),
    }


def left_out(ranges):
    one = replace(ranges[0], end=50)
    return [replace(one, end=17), replace(one, start=18)]


def doubled(ranges):
    one = replace(ranges[0], end=50)
    return [one, replace(one, start=17, end=18)]


def test_a_source_that_leaves_a_record_out_is_found_out(
    cluster, spark, topic, tmp_path, monkeypatch
):
    from ottla.pipelines.lake import landing

    produced = topic(1).send(numbered(0, 50))
    real = landing.ranges
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic])
    for plant, says in {
        left_out: "-0: 1 record did not come, the first at 17",
        doubled: "-0: offset 17 stands twice",
    }.items():
        with monkeypatch.context() as patched:
            patched.setattr(landing, "ranges", lambda *a, plant=plant: plant(real(*a)))
            done = run_here(spark, sets)
        assert done.code == 1
        assert says in done.told
        assert by_files(tmp_path / produced.topic) == []
    done = run_here(spark, sets)
    assert done.code == 0, done.told
    assert differences(by_library(tmp_path / produced.topic / "data"), produced) == []


def by_files(table):
    return sorted(p.name for p in table.rglob("*.parquet") if "_delta_log" not in str(p))


def test_a_topic_made_anew_and_records_gone_before_they_landed_are_refused(
    cluster, spark, topic, tmp_path
):
    produced = topic(1).send(numbered(0, 40))
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic])
    assert run_here(spark, sets).code == 0
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
    assert "was deleted and created again" in done.told
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
    log = tmp_path / produced.topic / "data" / "_delta_log"
    killed = []

    def kill():
        until((log / f"{2:020d}.json").exists, 120, "a batch has landed")
        cluster.kill(1)
        killed.append(len(list(log.glob("*.json"))))

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        done = run_here(spark, sets)
    finally:
        killer.join(130)
        if killed:
            cluster.start_broker(1)
    assert killed
    assert killed[0] < 6, "all batches were there"
    assert done.code == 0, done.told
    assert done.result["topics"][produced.topic]["rows"] == 6000
    assert differences(by_library(log.parent), produced) == []


@pytest.mark.alone
def test_following_until_told_to_end(cluster, topic, tmp_path):
    """Also what comes meanwhile: partitions, and topics that match the pattern."""
    produced = topic(1).send(numbered(0, 100))
    (port,) = free_ports(1)
    more = {"lake__poll_seconds": 0.2, "lake__metrics_port": port,
            "lake__pattern": f"{produced.topic}.*"}  # fmt: skip
    sets = settings_of(cluster.bootstrap, tmp_path, [], **more)
    arguments = [x for s in sets for x in ("--set", s)]
    job = subprocess.Popen(
        [sys.executable, "-m", "ottla", "pipeline", "lake", "--follow", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def rows(name=produced.topic):
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        line = f'ottla_lake_rows_total{{topic="{name}"}} '
        return next((int(x.removeprefix(line)) for x in lines if x.startswith(line)), 0)

    try:
        until(lambda: rows() == 100, 200, "100 rows", despite=(OSError,))
        ottla("topics", "alter", produced.topic, "--partitions", "4",
              "--bootstrap-server", cluster.bootstrap)  # fmt: skip
        produced.send([(key, value, [], n % 4) for n, (key, value) in enumerate(numbered(100, 80))])
        other = topic(1, f"{produced.topic}.other").send(numbered(0, 30))
        until(lambda: rows() == 180, 60, "180 rows")
        until(lambda: rows(other.topic) == 30, 60, "30 rows of the other topic")
        job.terminate()
        out, told = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait(10)
    assert job.returncode == 0, told
    assert "Traceback" not in told
    result = json.loads(out)
    assert result["exactly_once"] is True
    found = result["topics"][produced.topic]
    assert (found["rows"], found["lag"], found["complete"]) == (180, 0, True)
    assert differences(by_library(tmp_path / produced.topic / "data"), produced) == []
    assert differences(by_library(tmp_path / other.topic / "data"), other) == []


def test_several_topics_have_a_schema_each(cluster, spark, topic, tmp_path):
    one = topic(1).send(numbered(0, 20))
    other = topic(1, f"{one.topic}.raw").send([(b"k", b"\xff")] * 20)
    sets = settings_of(cluster.bootstrap, tmp_path, [one.topic, other.topic])
    sets.append(f"topic={{'{other.topic}' = {{value = {{format = 'raw'}}, layout = {{}}}}}}")
    done = run_here(spark, sets)
    assert (done.code, done.result["exactly_once"]) == (0, True), done.told
    rows = by_library(tmp_path / other.topic / "data")
    assert [bytes(row["kafka_value"]) for row in rows] == [b"\xff"] * 20
    assert differences(by_library(tmp_path / one.topic / "data"), one) == []


def test_a_driver_dies_between_dead_letters_and_rows(cluster, spark, topic, tmp_path, monkeypatch):
    """Then dead letters are ahead: they stay so, whatever the schema says after that."""
    from ottla.pipelines.lake.delta import Delta

    produced = topic(1).send([*numbered(0, 20), (b"bad", b'{"n": 1, "new": 2}')])
    more = {"value__drift": "dead"}
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic], **more)
    real, calls = Delta.append, []

    def dies(self, files, state):
        calls.append(self.uri)
        if len(calls) == 3:  # of the state at the beginning, of dead letters, of rows
            raise KeyboardInterrupt
        real(self, files, state)

    with monkeypatch.context() as patched:
        patched.setattr(Delta, "append", dies)
        assert run_here(spark, sets).code == 130
    folder = tmp_path / produced.topic
    assert (len(by_library(folder / "data")), len(by_library(folder / "dead"))) == (0, 1)
    produced.send([(b"bad", b'{"n": 3, "new": 4}'), *numbered(30, 5)])
    done = run_here(spark, [*sets, "value.drift=widen"])
    assert (done.code, done.result["exactly_once"]) == (0, True), done.told
    told = done.result["topics"][produced.topic]
    assert (told["rows"], told["dead"]) == (26, 1)
    rows, dead = by_library(folder / "data"), by_library(folder / "dead")
    assert differences(rows, produced, dead) == []


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_driver_dies_amid_a_batch(cluster, spark, topic, tmp_path, table_format):
    """The other points, and random ones: tests/proofs/lake_proof.py."""
    produced = topic(2).send([*numbered(0, 400), (b"bad", b"no json")])
    more = {"lake__batch_records": 100, "lake__format": table_format}
    sets = settings_of(cluster.bootstrap, tmp_path, [produced.topic], **more)
    table = tmp_path / produced.topic
    killed = kill_when(sets, lambda: list((table / "data").rglob("event_date=*/*.parquet")))
    assert killed, "it was done before anybody could kill it"
    done = run_here(spark, sets)
    assert done.code == 0, done.told
    rows, dead = by_library(table / "data"), by_library(table / "dead")
    assert differences(rows, produced, dead) == []
    assert differences(by_spark(spark, table / "data"), produced, dead) == []
