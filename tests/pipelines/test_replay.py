"""Replay and mirror against real brokers: each record as it was and once, whoever is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import LATEST
from ottla.pipelines.config import read_config
from ottla.pipelines.replaying.rounds import Rounds
from ottla.pipelines.replaying.settings import Settings
from ottla.pipelines.replaying.state import State
from ottla.pipelines.sink.committing import newest_decision
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import parse_options
from support.clients import admin_client, named
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.replayed import (
    HEADER,
    command,
    descendants,
    differences,
    kill_when,
    origin,
    read_all,
    run_here,
    settings_of,
)
from support.seen import all_know
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(900)]

FEW = {
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_num_partitions": "3",
    "group_initial_rebalance_delay_ms": "0",
}
BASE_MS = int(time.time() * 1000) - 86_400_000
"""Yesterday: retention by time goes by the records' timestamps, in the target, too."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("ottla"), brokers=3, **FEW) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with Kafka39Cluster(tmp_path_factory.mktemp("kafka"), brokers=1, **FEW) as cluster:
        yield cluster


def create(cluster, topic, partitions=2, *configs):
    settings = [word for config in configs for word in ("--config", config)]
    subprocess.run(
        [sys.executable, "-m", "ottla", "topics", "create", topic,
         "--partitions", str(partitions), "--replication-factor", str(len(cluster.ids)), *settings,
         "--bootstrap-server", cluster.bootstrap],
        check=True, timeout=90, capture_output=True,
    )  # fmt: skip
    return topic


def delete(cluster, topic):
    subprocess.run(
        [sys.executable, "-m", "ottla", "topics", "delete", topic, "--yes",
         "--bootstrap-server", cluster.bootstrap],
        check=True, timeout=90, capture_output=True,
    )  # fmt: skip


def send(cluster, topic, first, count, partitions=2, **more):
    """Produce records of all kinds, by partition in turn; n is in the header `n`."""
    from confluent_kafka import Producer

    errors = []
    producer = Producer(named(cluster.bootstrap, {"acks": "all", "linger_ms": 5, **more}))
    transactional = "transactional_id" in more
    if transactional:
        producer.init_transactions(60)
        producer.begin_transaction()
    for n in range(first, first + count):
        headers = [("n", b"%d" % n)]
        if n % 3 == 0:
            headers += [("none", None), ("n", b""), ("bytes", bytes(range(256)))]
        producer.produce(
            topic,
            None if n % 11 == 0 else b"" if n % 13 == 0 else b"%d:" % n + b"v" * (n % 300),
            None if n % 7 == 0 else b"key-%d" % (n % 50),
            partition=n % partitions,
            headers=headers,
            timestamp=BASE_MS + 1000 * (n * 7 % 1000),
            on_delivery=lambda error, _: error and errors.append(error),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not errors
    return producer


def number_of(record):
    return int(next(value for name, value in record.headers if name == "n"))


def options_of(bootstrap):
    return parse_options(
        {"bootstrap": bootstrap, "subscribePattern": ".*",
         "kafka.isolation.level": "read_committed"}
    )  # fmt: skip


class Watch:
    """Where topics end, asked over one connection, for the moments at which somebody is killed."""

    def __init__(self, bootstrap, topic, job):
        self._cluster = Cluster(options_of(bootstrap))
        self._topic, self._job = topic, f"ottla-replay.{job}"

    def close(self):
        self._cluster.close()

    def ends(self, topic, partitions, *, committed):
        asked = dict.fromkeys((TopicPartition(topic, p) for p in partitions), LATEST)
        found = self._cluster.offsets(asked, committed=committed)
        return {tp.partition: one.offset for tp, one in found.items()}

    def open_transaction(self):
        """Return whether records are written that are not committed."""
        ends = self.ends(self._topic, (0, 1), committed=False)
        return ends != self.ends(self._topic, (0, 1), committed=True)

    def committed(self):
        return sum(self.ends(self._topic, (0, 1), committed=True).values())

    def copied(self, end):
        """Return whether both partitions' progress is at an offset."""
        decision = newest_decision(self._cluster, self._job, wait=False)
        state = None if decision is None else msgspec.json.decode(decision.note, type=State)
        return state is not None and all(state.next.get(p, 0) >= end for p in (0, 1))


@pytest.fixture
def watch():
    made = []

    def make(*arguments):
        made.append(Watch(*arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_ottla_to_kafka_each_record_once_as_it_was(cluster, kafka, spark, tmp_path, watch):
    topic = create(cluster, "plain")
    for first, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        send(cluster, topic, 200 * first, 200, compression_type=codec)
    send(cluster, topic, 1000, 100, transactional_id="seed").commit_transaction(60)
    send(cluster, topic, 2000, 100, transactional_id="seed").abort_transaction(60)
    send(cluster, topic, 3000, 100)
    eye = watch(cluster.bootstrap, topic, "none")
    # An end is acknowledged once it is decided; until its markers come, nothing behind is read.
    until(lambda: not eye.open_transaction(), 60, "the markers are written")
    sets = settings_of(
        cluster.bootstrap, kafka.bootstrap, topic, "copy", job="plain", create=True,
        offset_map=str(tmp_path / "map"), batch_records=900,
    )  # fmt: skip
    done = run_here(spark, sets)
    assert (done.code, done.result["records"], done.result["exactly_once"]) == (0, 1200, True), done
    assert done.result["rounds"] == 2, "of 900 offsets at most"
    assert done.result["gaps"] == 104, "100 aborted records, a marker for each end and partition"
    source, target = read_all(cluster.bootstrap, topic), read_all(kafka.bootstrap, "copy")
    assert len(source) == 1200
    assert differences(source, target) == []
    assert_map_is(tmp_path / "map", target)

    again = run_here(spark, sets, "--verify")
    assert (again.code, again.result["records"], again.result["checked"]) == (0, 0, 1200), again
    send(cluster, topic, 5000, 50)
    more = run_here(spark, sets)
    assert (more.code, more.result["records"], more.result["total"]) == (0, 50, 1250), more
    source, target = read_all(cluster.bootstrap, topic), read_all(kafka.bootstrap, "copy")
    assert differences(source, target) == []
    assert_map_is(tmp_path / "map", target)
    (tmp_path / "map" / "check-00000000.parquet").unlink()
    send(cluster, topic, 6000, 4)
    assert run_here(spark, sets).code == 0
    assert_map_is(tmp_path / "map", read_all(kafka.bootstrap, "copy"))


def assert_map_is(folder, target):
    """Compare the offset map with where a consumer saw the records."""
    from pyarrow import parquet

    found = Counter()
    for row in parquet.read_table(folder).to_pylist():
        size = row["source_last"] - row["source_first"]
        assert size == row["target_last"] - row["target_first"] >= 0
        for n in range(size + 1):
            found[
                row["source_partition"], row["source_first"] + n,
                row["target_partition"], row["target_first"] + n,
            ] += 1  # fmt: skip
    assert found == Counter((*origin(r), r.partition, r.offset) for r in target)


def test_kafka_to_ottla_by_key_with_filter_and_transform(cluster, kafka, spark):
    topic = create(kafka, "rows", 2)
    send(kafka, topic, 0, 700)
    create(cluster, "rows-copy", 3)
    sets = settings_of(
        kafka.bootstrap, cluster.bootstrap, topic, "rows-copy", partitions="key", start={"0": 10,
        "1": 0}, filter="key is not null and offset % 5 != 0",
        transform={"value": "concat('<', cast(value as string), '>')",
                   "timestamp": "timestamp + interval 1 day"},
    )  # fmt: skip
    done = run_here(spark, sets)
    assert (done.code, done.result["exactly_once"]) == (0, True), done
    source, target = read_all(kafka.bootstrap, topic), read_all(cluster.bootstrap, "rows-copy")
    day_ms = 86_400_000
    changed = [
        r._replace(
            value=None if r.value is None else b"<" + r.value + b">",
            timestamp=(r.timestamp[0], r.timestamp[1] + day_ms),
        )
        for r in source
    ]
    by_key = {r.key: r.partition for r in target}
    assert set(by_key.values()) == {0, 1, 2}

    def wanted(record):
        late = record.partition == 1 or record.offset >= 10
        return late and record.key is not None and record.offset % 5 != 0

    assert differences(changed, target, wanted=wanted, placed=lambda r: by_key[r.key]) == []
    assert done.result["records"] == len(target) == sum(map(wanted, source))
    verified = run_here(spark, sets, "--verify")
    assert (verified.code, verified.result["checked"]) == (0, len(target)), verified


def test_what_does_not_fit_is_refused_and_nothing_changes(cluster, spark, tmp_path):
    topic, to = create(cluster, "bound"), create(cluster, "bound-copy")
    send(cluster, topic, 0, 20)
    where = (cluster.bootstrap, cluster.bootstrap)

    def refused(*arguments, name="replay", **more):
        done = run_here(spark, settings_of(*where, *arguments, **more), name=name)
        assert (done.code, done.result) == (1, {}), done
        assert done.told.count("\n") == 1, done.told
        return done.told

    assert "are the same topic bound" in refused(topic, topic)
    assert "does not exist" in refused("nothing", to)
    assert "set replay.create = true" in refused(topic, "nothing")
    assert "gives int, not binary" in refused(topic, to, transform={"value": "1"})
    assert "something else each time" in refused(topic, to, filter="rand() < 0.5")
    assert "filter or transform" in refused(topic, to, filter="no_such_column = 1")
    assert "holds offsets 0 to 10, not 11" in refused(topic, to, start={"0": 11, "1": 0})
    narrow = create(cluster, "narrow", 1)
    assert "records would go to partition 1" in refused(topic, narrow)
    stamped = create(cluster, "stamped", 2, "message.timestamp.type=LogAppendTime")
    assert "set message.timestamp.type=CreateTime" in refused(topic, stamped)
    assert read_all(cluster.bootstrap, to) == read_all(cluster.bootstrap, stamped) == []

    first = run_here(spark, settings_of(*where, topic, to, job="first"))
    assert (first.code, first.result["records"]) == (0, 20), first
    assert "belongs to job first" in refused(topic, to, job="second")
    assert "began with replay.filter" in refused(topic, to, job="first", filter="true")
    assert "copies bound of cluster" in refused(to, "bound-copy2", job="first", create=True)
    assert "bound-copy2" not in topics(cluster)
    assert "writes to bound-copy, not stamped" in refused(topic, stamped, job="first")
    delete(cluster, topic)
    # Brokers forget a topic before its name is free.
    until(
        lambda: create(cluster, topic), 60, "the name is free",
        despite=(subprocess.CalledProcessError,),
    )  # fmt: skip
    send(cluster, topic, 100, 20)
    assert "deleted and created again since job first" in refused(topic, to, job="first")
    assert len(read_all(cluster.bootstrap, to)) == 20


def topics(cluster):
    from confluent_kafka.admin import AdminClient

    return AdminClient(named(cluster.bootstrap, {})).list_topics(timeout=20).topics


def test_planted_duplicates_and_losses_are_found(cluster, spark):
    topic, to = create(cluster, "planted"), create(cluster, "planted-copy")
    send(cluster, topic, 0, 200)
    sets = settings_of(cluster.bootstrap, cluster.bootstrap, topic, to, job="planted")
    assert run_here(spark, sets).code == 0
    target = read_all(cluster.bootstrap, to)
    one = next(r for r in target if origin(r) == (1, 42))
    from confluent_kafka import Producer
    from confluent_kafka import TopicPartition as Place

    producer = Producer(named(cluster.bootstrap, {"acks": "all"}))
    producer.produce(to, one.value, one.key, partition=0, headers=list(one.headers),
                     timestamp=one.timestamp[1])  # fmt: skip
    assert producer.flush(60) == 0
    told = "record 1:42 of the source: doubled (target 0:"
    verified = run_here(spark, sets, "--verify")
    assert (verified.code, verified.result["exactly_once"]) == (1, False)
    assert told in verified.told
    send(cluster, topic, 200, 10)
    checked = run_here(spark, sets)
    assert checked.code == 1
    assert told in checked.told
    accepted = run_here(spark, sets, "--accept")
    assert (accepted.code, told in accepted.told) == (1, True)
    assert run_here(spark, sets).code == 0

    # A record that never arrived, as a broken writer would leave it.
    clean = create(cluster, "clean")
    lossy = settings_of(cluster.bootstrap, cluster.bootstrap, topic, clean, job="lossy")
    assert run_here(spark, lossy, "--verify").code == 0
    admin = admin_client(cluster.bootstrap)
    place = Place(clean, 0, 3)
    admin.delete_records([place])[place].result(60)
    lost = run_here(spark, lossy, "--verify")
    assert lost.code == 1
    assert "clean-0: offsets 0 to 2 were removed" in lost.told
    for n in range(3):
        assert f"record 0:{n} of the source: missing" in lost.told
    assert lost.told.count("missing") == 3


def test_a_group_goes_on_in_the_target(cluster, kafka, spark, tmp_path):
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    topic = create(kafka, "grouped")
    send(kafka, topic, 0, 300)
    sets = settings_of(
        kafka.bootstrap, cluster.bootstrap, topic, "grouped-copy", create=True,
        offset_map=str(tmp_path / "map"), start={"0": 5, "1": 0}, filter="offset % 3 != 1",
    )  # fmt: skip
    assert run_here(spark, sets).code == 0
    consumer = Consumer(named(kafka.bootstrap, {"group_id": "readers"}))
    consumer.commit(offsets=[Place(topic, 0, 100), Place(topic, 1, 0)], asynchronous=False)
    consumer.close()
    done = run_here(spark, sets, "--translate-group", "readers", "--apply")
    assert done.code == 0, done
    assert done.result["from"] == {"0": 100, "1": 0}
    settings = {"group_id": "readers", "enable_auto_commit": False}
    consumer = Consumer(named(cluster.bootstrap, settings))
    found = consumer.committed([Place("grouped-copy", p) for p in (0, 1)], timeout=30)
    consumer.close()
    goes_on = {place.partition: place.offset for place in found}
    assert done.result["to"] == {str(p): offset for p, offset in goes_on.items()}
    target = read_all(cluster.bootstrap, "grouped-copy")
    left = {origin(r) for r in target if r.offset >= goes_on[r.partition]}
    source = {(p, o) for p in (0, 1) for o in range((100, 0)[p], 150) if o % 3 != 1}
    assert left == source
    nobody = run_here(spark, sets, "--translate-group", "nobody")
    assert (nobody.code, "has committed nothing" in nobody.told) == (1, True)


def test_mirrors_of_each_other_do_not_go_round(cluster, spark):
    east, west = create(cluster, "east"), create(cluster, "west")
    send(cluster, east, 0, 30)
    send(cluster, west, 100, 20)
    there = settings_of(cluster.bootstrap, cluster.bootstrap, east, west, job="there")
    back = settings_of(cluster.bootstrap, cluster.bootstrap, west, east, job="back")
    for _ in range(2):
        for sets in (there, back):
            done = run_here(spark, sets, "--once", name="mirror")
            assert done.code == 0, done
    for topic in (east, west):
        numbers = Counter(number_of(r) for r in read_all(cluster.bootstrap, topic))
        assert numbers == Counter([*range(30), *range(100, 120)]), topic


def test_partitions_that_come_later_are_copied_from_their_start(cluster, spark, tmp_path):
    from confluent_kafka.admin import NewPartitions

    topic, to = create(cluster, "growing", 1), create(cluster, "growing-copy", 1)
    send(cluster, topic, 0, 20, partitions=1)
    sets = settings_of(cluster.bootstrap, cluster.bootstrap, topic, to, start="latest",
                       offset_map=str(tmp_path / "map"))  # fmt: skip
    admin = admin_client(cluster.bootstrap)

    def grow(name, count):
        admin.create_partitions([NewPartitions(name, count)])[name].result(60)
        addresses = [cluster.address(b) for b in cluster.ids]
        until(lambda: all_know(addresses, name, count), 60, f"all know that {name} has {count}")

    with Rounds(read_config(None, sets, Settings), spark) as rounds:
        rounds.reach()
        rounds.open()
        assert not rounds.copy_next(rounds.refresh())
        grow(topic, 2)
        with pytest.raises(ConfigError, match="records would go to partition 1"):
            until(lambda: rounds.refresh() is None, 30, "the partition is seen")
        grow(to, 2)
        send(cluster, topic, 100, 30)
        assert until(lambda: rounds.copy_next(rounds.refresh()), 30, "there is something to copy")
        assert rounds.check() == []
        assert rounds.nexts == {0: 35, 1: 15}
    grow(topic, 3)
    grow(to, 3)
    send(cluster, topic, 200, 30, partitions=3)
    done = run_here(spark, sets, "--once", "--verify", name="mirror")
    assert (done.code, done.result["total"], done.result["checked"]) == (0, 60, 30 + 60), done
    source, target = read_all(cluster.bootstrap, topic), read_all(cluster.bootstrap, to)
    assert differences(source, target, wanted=lambda r: r.partition or r.offset >= 20) == []
    assert_map_is(tmp_path / "map", target)


def test_what_retention_took_from_the_source_is_not_compared(cluster, spark):
    from confluent_kafka import TopicPartition as Place

    topic = create(cluster, "retained")
    send(cluster, topic, 0, 100)
    sets = settings_of(cluster.bootstrap, cluster.bootstrap, topic, "retained-copy", create=True)
    assert run_here(spark, sets).code == 0
    admin = admin_client(cluster.bootstrap)
    for place in (Place(topic, 0, 20), Place(topic, 1, 50)):
        admin.delete_records([place])[place].result(60)
    send(cluster, topic, 100, 10)
    done = run_here(spark, sets, "--verify")
    assert (done.code, done.result["records"], done.result["checked"]) == (0, 10, 10 + 40), done
    # What the target lost before it was compared is told.
    place = Place("retained-copy", 0, 30)
    admin.delete_records([place])[place].result(60)
    lost = run_here(spark, sets, "--verify")
    assert lost.code == 1
    assert "target retained-copy-0: offsets 0 to 29 were removed" in lost.told
    # What the source lost before it was copied ends the job.
    send(cluster, topic, 200, 10)
    ends = Watch(cluster.bootstrap, topic, "none")
    try:
        place = Place(topic, 0, ends.ends(topic, (0,), committed=True)[0] - 1)
    finally:
        ends.close()
    admin.delete_records([place])[place].result(60)
    gone = run_here(spark, sets)
    assert (gone.code, gone.result) == (1, {}), gone
    assert "retained-0" in gone.told
    assert "were removed from the cluster before they were copied" in gone.told


def test_a_mirror_follows_until_it_is_stopped(cluster, tmp_path):
    topic = create(cluster, "followed")
    sets = settings_of(cluster.bootstrap, cluster.bootstrap, topic, "follower", create=True,
                       poll_seconds=0.2)  # fmt: skip
    with (tmp_path / "told").open("wb") as told:
        process = subprocess.Popen(
            command(sets, name="mirror"), stdout=subprocess.PIPE, stderr=told,
            start_new_session=True,
        )  # fmt: skip
    try:
        for first in (0, 50):
            send(cluster, topic, first, 50)
            until(
                lambda first=first: len(read_all(cluster.bootstrap, "follower")) == first + 50,
                200,
                lambda: (tmp_path / "told").read_text()[-2000:],
                despite=(AssertionError, KeyError),
            )
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, (tmp_path / "told").read_text()
    assert json.loads(out)["records"] == 100
    source, target = read_all(cluster.bootstrap, topic), read_all(cluster.bootstrap, "follower")
    assert differences(source, target) == []


COUNT = 3000


@pytest.mark.alone
def test_whoever_is_killed_each_record_stands_once(cluster, spark, tmp_path, watch):
    topic, to = create(cluster, "killed"), create(cluster, "killed-copy")
    folder = tmp_path / "map"
    sets = settings_of(cluster.bootstrap, cluster.bootstrap, topic, to, job="killed",
                       offset_map=str(folder), batch_records=1_000)  # fmt: skip
    eye = watch(cluster.bootstrap, to, "killed")
    sent = 0

    def load():
        nonlocal sent
        send(cluster, topic, sent, COUNT)
        sent += COUNT
        return eye.committed()

    def nothing_doubled():
        times = Counter(origin(r) for r in read_all(cluster.bootstrap, to))
        assert max(times.values(), default=1) == 1, [p for p, n in times.items() if n > 1][:5]

    load()
    assert kill_when(sets, eye.open_transaction), "records written, not committed"
    nothing_doubled()
    before = load()
    assert kill_when(sets, lambda: eye.committed() > before + 1000), "amid the transactions"
    nothing_doubled()
    load()
    assert kill_when(sets, lambda: eye.copied(sent // 2)), "all copied, not checked"
    nothing_doubled()
    load()
    files = len(list(folder.glob("*.parquet")))
    kill_when(sets, lambda: len(list(folder.glob("*.parquet"))) > files)  # the map's file written
    nothing_doubled()

    # A worker: the job itself goes on from what is committed.
    before = load()
    done = while_running(sets, lambda: eye.committed() > before and eye.open_transaction(),
                         kill_worker)  # fmt: skip
    assert (done.returncode, b"tried again" in done.stderr) == (0, True), done

    settled_once(cluster, spark, topic, to, sets, sent)
    assert_map_is(folder, read_all(cluster.bootstrap, to))


def settled_once(cluster, spark, topic, to, sets, sent):
    """Run without kills, and compare both topics."""
    last = run_here(spark, sets, "--verify")
    assert last.code == 0, last
    assert (last.result["exactly_once"], last.result["unchecked_offsets"]) == (True, 0), last
    source, target = read_all(cluster.bootstrap, topic), read_all(cluster.bootstrap, to)
    assert len(source) == sent
    assert differences(source, target) == []
    assert all(sum(name == HEADER for name, _ in r.headers) == 1 for r in target)


@pytest.mark.alone
def test_a_leader_that_is_killed_costs_nothing(cluster, spark, watch):
    topic, to = create(cluster, "led"), create(cluster, "led-copy")
    send(cluster, topic, 0, COUNT)
    sets = settings_of(cluster.bootstrap, cluster.bootstrap, topic, to, job="led",
                       batch_records=1_000)  # fmt: skip
    eye = watch(cluster.bootstrap, to, "led")
    leader = leader_of(cluster, to)
    try:
        done = while_running(
            sets,
            lambda: eye.committed() > COUNT // 10 and eye.open_transaction(),
            lambda _: cluster.kill(leader),
        )
        assert done.returncode == 0, done
    finally:
        if not cluster.running(leader):
            cluster.start_broker(leader)
    settled_once(cluster, spark, topic, to, sets, COUNT)


def leader_of(cluster, topic):
    found = topics(cluster)[topic].partitions[0].leader
    assert found in cluster.ids
    return found


def kill_worker(pid):
    """Kill -9 one of Spark's Python workers: a child of the daemon that Spark's Java started."""
    workers = until(lambda: descendants(pid, b"pyspark.daemon")[1:], 30, "a worker runs")
    os.kill(workers[-1], signal.SIGKILL)


def while_running(sets, moment, strike):
    """Run the job as a process, strike at a moment, and wait for its end."""
    process = subprocess.Popen(
        command(sets), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    struck = threading.Event()
    deadline = time.monotonic() + 200
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if moment():
                strike(process.pid)
                struck.set()
                break
            time.sleep(0.001)
        out, told = process.communicate(timeout=250)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert struck.is_set(), told
    return subprocess.CompletedProcess(process.args, process.returncode, out, told)
