"""format("ottla") as a sink, against real brokers: rows once in the topic, whatever fails."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.client.transactions import list_transactions
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.partitioning import partition_of
from ottla.model.protocol import LATEST
from ottla.pipelines import job
from ottla.pipelines.sink import committing
from ottla.pipelines.sink.committing import Committer, Decision, Plan, Prepared, transactional_id
from ottla.pipelines.sink.data_source import TopicFormat
from ottla.pipelines.sink.encoding import RowEncoder
from ottla.pipelines.sink.options import parse_sink_options
from ottla.pipelines.source.cluster import Cluster
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.kafka41 import Kafka44Cluster
from support.replayed import read_all
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(600)]

FEW = {
    "transaction_state_log_num_partitions": "3",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
}


@pytest.fixture(scope="module", params=["ottla", "kafka-3.9", "kafka-4.4"])
def cluster(request, tmp_path_factory):
    kinds = {"ottla": OttlaCluster, "kafka-3.9": Kafka39Cluster, "kafka-4.4": Kafka44Cluster}
    folder = tmp_path_factory.mktemp(request.param)
    with kinds[request.param](folder, brokers=1, **FEW) as cluster:
        yield cluster


BOTH = pytest.mark.parametrize("cluster", ["ottla", "kafka-3.9"], indirect=True)
"""Of what asks nothing more of brokers: Kafka 4.4 is for the transactions."""


@pytest.fixture(scope="module", autouse=True)
def registered(spark):
    spark.dataSource.register(TopicFormat)


def create(cluster, topic, partitions=3, *configs):
    settings = [word for config in configs for word in ("--config", config)]
    subprocess.run(
        [sys.executable, "-m", "ottla", "topics", "create", topic, *settings,
         "--partitions", str(partitions), "--replication-factor", "1",
         "--bootstrap-server", cluster.bootstrap],
        check=True, timeout=90, capture_output=True,
    )  # fmt: skip
    return topic


def save(rows, cluster, **options):
    options.setdefault("kafka.bootstrap.servers", cluster.bootstrap)
    rows.write.format("ottla").mode("append").options(**options).save()


def test_a_batch_of_all_columns(cluster, spark):
    topic = create(cluster, "columns")
    rows = spark.sql("""
        select if(id % 7 = 0, null, concat('key-', id)) as key, if(id % 5 = 0, null,
            cast(concat('value-', id) as binary)) as value,
          if(id % 3 = 0, null, array(struct('n' as key, cast(string(id) as binary) as value),
            struct('none' as key, cast(null as binary) as value))) as headers,
          if(id % 2 = 0, null, int(id % 3)) as partition, 'somewhere else' as topic, id as other,
          timestamp_millis(1700000000000 + id * 1001) as timestamp
        from range(5000)""")
    save(rows, cluster, topic=topic, **{"kafka.compression.type": "lz4"})
    found = read_all(cluster.bootstrap, topic)
    assert len(found) == 5000
    numbers = {record.timestamp[1]: record for record in found}
    for id_ in range(5000):
        record = numbers[1700000000000 + id_ * 1001]
        assert record.key == (None if id_ % 7 == 0 else b"key-%d" % id_)
        assert record.value == (None if id_ % 5 == 0 else b"value-%d" % id_)
        headers = () if id_ % 3 == 0 else (("n", b"%d" % id_), ("none", None))
        assert record.headers == headers
        if id_ % 2:
            assert record.partition == id_ % 3
        elif record.key is not None:
            assert record.partition == partition_of(record.key, 3)


@BOTH
def test_rows_name_their_topics_and_fill_partitions_in_turn(cluster, spark):
    one, two = create(cluster, "by-row-1", 2), create(cluster, "by-row-2", 4)
    rows = spark.sql(f"""select string(id) as value, if(id < 700, '{one}', '{two}') as topic
        from range(0, 1000, 1, 1)""")
    save(rows, cluster, **{"kafka.batch.size": "1000"})
    for topic, wanted in ((one, range(700)), (two, range(700, 1000))):
        found = read_all(cluster.bootstrap, topic)
        assert sorted(int(r.value) for r in found) == list(wanted)
        assert len({r.partition for r in found}) == (2 if topic == one else 4)


@BOTH
def test_what_does_not_fit_is_refused_before_anything_is_sent(cluster, spark):
    topic = create(cluster, "refusing")
    good = spark.sql("select 'v' as value")

    def refused(rows=good, **options):
        with pytest.raises(Exception) as found:
            save(rows, cluster, **{"topic": topic, **options})
        line = job.in_one_line(found.value)
        assert "\n" not in line
        return line

    assert "the rows have no column value" in refused(spark.sql("select 'v' as key"))
    assert "column value is int, not binary or string: cast it" in refused(
        spark.sql("select 1 as value")
    )
    assert "column partition is bigint, not int" in refused(
        spark.sql("select 'v' as value, 1L as partition")
    )
    assert "column headers is" in refused(
        spark.sql("select 'v' as value, map('a', 'b') as headers")
    )
    assert "create it with: ottla topics create nothing" in refused(topic="nothing")
    assert "'a b' is not the name of a topic" in refused(topic="a b")
    assert "has no option kafka.max.block.ms: leave it out" in refused(
        **{"kafka.max.block.ms": "1"}
    )
    assert "give transactional.id.prefix" in refused(**{"kafka.transactional.id": "x"})
    assert "goes with ottla.delivery=at-least-once" in refused(**{"kafka.acks": "1"})
    assert "'zip' is none of none, gzip" in refused(**{"kafka.compression.type": "zip"})
    assert "a row names partition 7: topic refusing has partitions 0 to 2" in refused(
        spark.sql("select 'v' as value, 7 as partition")
    )
    assert "a row has a header that is null" in refused(
        spark.sql("select 'v' as value, array(struct(string(null) as key,"
                  " cast('v' as binary) as value)) as headers")
    )  # fmt: skip
    assert "lower it to their transaction.max.timeout.ms" in refused(
        **{"kafka.transaction.timeout.ms": "900001"}
    )
    with pytest.raises(Exception, match='use mode\\("append"\\)'):
        good.write.format("ottla").mode("overwrite").option("topic", topic).option(
            "kafka.bootstrap.servers", cluster.bootstrap
        ).save()
    assert read_all(cluster.bootstrap, topic) == []


def test_a_numbered_batch_is_written_once(cluster, spark):
    topic = create(cluster, "numbered")
    rows = spark.range(1000).selectExpr("string(id) as value")
    options = {"topic": topic, "transactional.id.prefix": "numbered-job"}
    for tasks in (3, 3, 5):
        save(rows.repartition(tasks), cluster, **options, **{"ottla.batch": "1"})
    assert len(read_all(cluster.bootstrap, topic)) == 1000
    save(rows, cluster, **options, **{"ottla.batch": "2"})
    assert len(read_all(cluster.bootstrap, topic)) == 2000
    save(rows, cluster, topic=topic)
    assert len(read_all(cluster.bootstrap, topic)) == 3000


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_at_least_once(cluster, spark, acks):
    topic = create(cluster, f"plain-{acks}")
    save(spark.range(2000).selectExpr("string(id) as value"), cluster, topic=topic,
         **{"ottla.delivery": "at-least-once", "kafka.acks": acks})  # fmt: skip
    assert sorted(int(r.value) for r in read_all(cluster.bootstrap, topic)) == list(range(2000))


def test_a_failing_task_leaves_nothing(cluster, spark):
    topic = create(cluster, "failing")
    rows = spark.sql(
        "select if(id = 900, raise_error('broken'), string(id)) as value from range(1000)"
    )
    with pytest.raises(Exception, match="broken"):
        save(rows, cluster, topic=topic)
    assert read_all(cluster.bootstrap, topic) == []
    with Cluster(
        parse_sink_options({"bootstrap": cluster.bootstrap}, streaming=False).cluster
    ) as asking:
        asked = {TopicPartition(topic, p): LATEST for p in range(3)}
        assert asking.offsets(asked) == asking.offsets(asked, committed=True), (
            "nothing is left open"
        )


def planned(cluster, topic, prefix, **more):
    """Return what plans a write as Spark's driver does, and the options."""
    given = {"bootstrap": cluster.bootstrap, "topic": topic, "transactional.id.prefix": prefix}
    options = parse_sink_options({**given, **more}, streaming=True)
    return options, Committer(Cluster(options.cluster), options, Plan(prefix))


def prepare(committer, options, task, attempt=0, rows=10):
    """Do what a task does; return its message."""
    import pyarrow as pa

    cluster = committer._cluster
    encoder = RowEncoder(options.topic, lambda _: 3, 100, task)
    name = transactional_id(committer.plan.prefix, task, attempt)
    producer = committing.producer_of(cluster, options, name)
    cluster.run(producer.open())
    values = pa.array([f"{task}-{attempt}-{n}" for n in range(rows)])
    encoder_batches = [*encoder.take(pa.record_batch({"value": values})), *encoder.rest()]
    for tp, records in encoder_batches:
        cluster.run(producer.send(tp, records))
    return Prepared(task, attempt, *producer.identity, encoder.rows, encoder.bytes)


def values_of(cluster, topic):
    return Counter(r.value.decode() for r in read_all(cluster.bootstrap, topic))


def written(task, attempt=0, rows=10):
    return Counter(f"{task}-{attempt}-{n}" for n in range(rows))


def test_what_was_decided_is_completed_and_nothing_else(cluster):
    topic = create(cluster, "decided")
    options, first = planned(cluster, topic, "decided-sink")
    first.open()
    tasks = [prepare(first, options, n) for n in range(3)]
    # The driver dies with its decision written, one of three transactions committed.
    first._driver.resume(first.plan.driver)
    first._write(Decision(query="q", batch=0, finished=False, tasks=tasks))
    first._cluster.run(first._resumed(tasks[1]).end(committed=True))
    _, second = planned(cluster, topic, "decided-sink")
    plan = second.open()
    assert values_of(cluster, topic) == written(0) + written(1) + written(2)
    assert plan.skips("q", 0, 0)
    assert plan.skips("q", 0, 7), "a micro-batch run again may have more tasks"
    assert not plan.skips("q", 1, 0)
    assert not plan.skips("another query", 0, 0)
    # It dies before it decides: nothing of that is committed, and it blocks no reader.
    for number in range(2):
        prepare(second, options, number)
    _, third = planned(cluster, topic, "decided-sink")
    third.open()
    assert values_of(cluster, topic) == written(0) + written(1) + written(2)
    third.commit("q", 1, [prepare(third, options, 0, rows=5)])
    assert values_of(cluster, topic)["0-0-0"] == 2


def test_a_driver_that_was_replaced_decides_nothing(cluster):
    topic = create(cluster, "replaced")
    options, old = planned(cluster, topic, "replaced-sink")
    old.open()
    message = prepare(old, options, 0)
    _, new = planned(cluster, topic, "replaced-sink")
    new.open()
    with pytest.raises(OttlaError, match="Another run of this query took over"):
        old.commit("q", 0, [message])
    old.abort()
    # A task of the old one is still alive: its transaction is open, its driver cannot decide.
    late = prepare(old, options, 5)
    with pytest.raises(OttlaError, match="was taken over"):
        old.commit("q", 0, [late])
    new.commit("q", 0, [prepare(new, options, 0)])
    old.abort()
    new.open()
    new.commit("q", 1, [prepare(new, options, 0, rows=1)])
    assert values_of(cluster, topic) == written(0) + written(0, rows=1)


def test_of_two_attempts_at_once_one_is_committed(cluster):
    topic = create(cluster, "attempts")
    options, committer = planned(cluster, topic, "attempts-sink")
    committer.open()
    slow, fast = prepare(committer, options, 0, 0), prepare(committer, options, 0, 1)
    assert slow.identity != fast.identity
    committer.commit("q", 0, [fast])
    committer.open()
    assert values_of(cluster, topic) == written(0, 1)


def test_what_brokers_aborted_after_the_decision_is_written_again(cluster):
    topic = create(cluster, "expired")
    options, first = planned(cluster, topic, "expired-sink")
    first.open()
    tasks = [prepare(first, options, n) for n in range(2)]
    first._driver.resume(first.plan.driver)
    first._write(Decision(query="q", batch=0, finished=False, tasks=tasks))
    first._cluster.run(first._resumed(tasks[0]).end(committed=True))
    name = transactional_id("expired-sink", 1, 0)
    fencing = committing.producer_of(first._cluster, options, name)
    first._cluster.run(fencing.open())  # as the coordinator does at the timeout
    _, second = planned(cluster, topic, "expired-sink")
    plan = second.open()
    assert (plan.skips("q", 0, 0), plan.skips("q", 0, 1)) == (True, False)
    with pytest.raises(ConfigError, match="with as many tasks and the same rows as before"):
        second.commit("q", 0, [prepare(second, options, 1, rows=9)])
    with pytest.raises(ConfigError, match="tasks 1, and these have other rows now"):
        second.commit("q", 0, [])
    second.open()
    second.commit("q", 0, [prepare(second, options, 1)])
    assert values_of(cluster, topic) == written(0) + written(1)
    assert not second.open().lost


def test_a_transaction_that_took_too_long_is_told(cluster):
    topic = create(cluster, "slow")
    options, committer = planned(
        cluster, topic, "slow-sink", **{"kafka.transaction.timeout.ms": "1000"}
    )
    committer.open()
    message = prepare(committer, options, 0)
    client, name = committer._cluster.client, transactional_id("slow-sink", 0, 0)
    until(
        lambda: name not in {
            one.transactional_id
            for one in committer._cluster.run(list_transactions(client, ["Ongoing"], []))
        },
        60, "the coordinator aborts it",
    )  # fmt: skip
    with pytest.raises(OttlaError, match="=1000: raise it"):
        committer.commit("q", 0, [message])
    assert read_all(cluster.bootstrap, topic) == []


@BOTH
def test_a_stream_goes_on_where_it_was(cluster, spark, tmp_path):
    source, topic = create(cluster, "stream-in", 2), create(cluster, "stream-out")
    save(spark.range(500).selectExpr("string(id) as key", "string(id) as value"), cluster,
         topic=source)  # fmt: skip

    def run(tasks=None):
        rows = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 300)
            .option("kafka.isolation.level", "read_committed")
            .load()
            .selectExpr("key", "concat('copy of ', string(value)) as value")
        )
        query = (
            (rows if tasks is None else rows.repartition(tasks))
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(200)
        return query

    run()
    wanted = Counter(f"copy of {n}" for n in range(500))
    assert values_of(cluster, topic) == wanted
    # Spark forgets that its last micro-batch was done, and runs it again, in other tasks.
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    run(3)
    assert values_of(cluster, topic) == wanted
    save(spark.range(500, 600).selectExpr("string(id) as key", "string(id) as value"), cluster,
         topic=source)  # fmt: skip
    run()
    assert values_of(cluster, topic) == Counter(f"copy of {n}" for n in range(600))


@pytest.mark.alone
def test_a_driver_that_is_killed_doubles_and_loses_nothing(tmp_path):
    from proofs.sink_proof import SETTINGS, proof

    with OttlaCluster(tmp_path / "cluster", brokers=3, **SETTINGS) as brokers:
        facts, counted = proof(brokers, tmp_path, 20_000, drivers=1, brokers=())
    assert len(facts) == 1
    assert counted == {"records": 20_000, "lost": 0, "doubled": 0, "foreign": 0}
