"""format("ottla") as a sink, against real brokers: rows once in the topic, whatever fails."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.model.ids import TopicPartition
from ottla.model.partitioning import partition_of
from ottla.model.protocol import LATEST
from ottla.pipelines import job
from ottla.pipelines.sink.data_source import TopicFormat
from ottla.pipelines.sink.options import parse_sink_options
from ottla.pipelines.source.cluster import Cluster
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.replayed import read_all

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(600)]

FEW = {
    "transaction_state_log_num_partitions": "3",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
}


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    kind = OttlaCluster if request.param == "ottla" else Kafka39Cluster
    with kind(tmp_path_factory.mktemp(request.param), brokers=1, **FEW) as cluster:
        yield cluster


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


def test_rows_name_their_topics_and_fill_partitions_in_turn(cluster, spark):
    one, two = create(cluster, "by-row-1", 2), create(cluster, "by-row-2", 4)
    rows = spark.sql(f"""select string(id) as value, if(id < 700, '{one}', '{two}') as topic
        from range(0, 1000, 1, 1)""")
    save(rows, cluster, **{"kafka.batch.size": "1000"})
    for topic, wanted in ((one, range(700)), (two, range(700, 1000))):
        found = read_all(cluster.bootstrap, topic)
        assert sorted(int(r.value) for r in found) == list(wanted)
        assert len({r.partition for r in found}) == (2 if topic == one else 4)


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
