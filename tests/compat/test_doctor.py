"""`ottla doctor` finds what is planted in a real cluster, of Ottla and of Kafka 3.9, and mends it.

Each finding is planted by other means than our tools' own where there are any: librdkafka, kazoo,
signals, the wire. After a fix the cluster is asked by librdkafka whether it holds.
"""

import asyncio
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient

from ottla.admin.diagnosis.brokers import MOST_SKEW_MS
from ottla.admin.session import world
from ottla.client.client import Client
from ottla.wire.messages.control import UpdateMetadataRequest
from support.clients import admin_client, fresh, named
from support.cluster import OttlaCluster
from support.command_line import call, ok
from support.hanging import hang
from support.kafka39 import Kafka39Cluster
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(400)]


@contextlib.contextmanager
def three_brokers(request, tmp_path_factory, **more):
    """Start three brokers of the kind that the fixture's parameter names."""
    kind = OttlaCluster
    if request.param == "kafka":
        request.getfixturevalue("kafka_tools")
        kind = Kafka39Cluster
    settings = {
        "replica_fetch_max_bytes": "20000",
        "auto_leader_rebalance_enable": "false",
        "delete_topic_enable": "true", "broker_rack": "r{broker}",
        "transaction_state_log_num_partitions": "3", "group_initial_rebalance_delay_ms": "0",
        "offsets_topic_num_partitions": "3", "transaction_partition_verification_enable": "false",
        **more,
    }  # fmt: skip
    folder = tmp_path_factory.mktemp(request.param)
    with kind(folder, brokers=3, session_timeout_ms=6000, **settings) as found:
        yield found


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    with three_brokers(request, tmp_path_factory) as found:
        yield found


@pytest.fixture(params=["ottla", "kafka"])
def strict_about_lag(request, tmp_path_factory):
    """Start brokers that drop a replica which a busy machine, too, may keep from fetching."""
    with three_brokers(request, tmp_path_factory, replica_lag_time_max_ms="1500") as found:
        yield found


def doctor(cluster, *arguments, watch="0s", whole=True):
    """Return the findings by name; `whole`: all of the cluster could be asked."""
    done = call(cluster, "doctor", "--for", watch, "--output", "json", *arguments)
    assert done.returncode in (0, 1), (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    assert found["not_asked"] == [] or not whole
    wrong = any(f["severity"] != "risk" for f in found["findings"])
    assert done.returncode == wrong
    return {f["finding"]: f for f in found["findings"]}


def finds(cluster, *names):
    """Return the findings once all of these are among them: brokers hear of news in turn."""

    def found():
        now = doctor(cluster)
        return now if set(names) <= now.keys() else None

    return until(found, 60, f"{names} are found", despite=(AssertionError,))


def is_rid_of(cluster, *names):
    """Wait until the doctor finds none of these, and has asked for all."""
    until(
        lambda: not set(names) & doctor(cluster).keys(),
        60,
        f"{names} are not found any more",
        despite=(AssertionError,),
    )


def mended(cluster, name):
    done = call(cluster, "doctor", "--for", "0s", "--fix", name, "--yes")
    assert done.returncode == 0, (done.stdout, done.stderr)


def create(cluster, assignment, **config):
    topic = fresh()
    settings = [w for k, v in config.items() for w in ("--config", f"{k.replace('_', '.')}={v}")]
    ok(cluster, "topics", "create", topic, "--assignment", assignment, *settings)
    return topic


def partition(cluster, topic, number=0):
    topics = admin_client(cluster.bootstrap).list_topics(timeout=20).topics
    return topics[topic].partitions[number] if topic in topics else None


def fill(cluster, topic, count, **settings):
    producer = Producer(named(cluster.bootstrap, settings))
    for n in range(count):
        producer.produce(topic, b"%0200d" % n, partition=0)
    assert producer.flush(60) == 0


@pytest.fixture(autouse=True)
def _whole(request):
    """Leave no broker dead to the next test; who has brokers of their own runs once, not twice."""
    shared = "cluster" in request.fixturenames
    cluster = request.getfixturevalue("cluster") if shared else None
    yield
    for broker in cluster.ids if cluster else ():
        if not cluster.running(broker):
            back(cluster, broker)


def back(cluster, broker):
    cluster.start_broker(broker)

    def whole():
        topics = admin_client(cluster.bootstrap).list_topics(timeout=20).topics
        return all(
            len(p.isrs) == len(p.replicas) for t in topics.values() for p in t.partitions.values()
        )

    until(whole, 90, "all replicas are in sync")


def test_a_dead_broker_and_what_waits_for_it(cluster):
    alone = create(cluster, "2")
    strict = create(cluster, "0:1:2", min_insync_replicas=3)
    lost = create(cluster, "0:2")
    deleted = create(cluster, "1:2")
    moved = create(cluster, "0:1")
    fill(cluster, moved, 5000, batch_size=10_000)
    is_rid_of(cluster, "no-leader", "under-min-isr", "under-replicated")
    ok(cluster, "configs", "alter", "--broker", "2", "--set",
       "follower.replication.throttled.rate=1")  # fmt: skip
    ok(cluster, "configs", "alter", "--topic", moved, "--set",
       "follower.replication.throttled.replicas=0:2")  # fmt: skip
    ok(cluster, "reassign", "execute", "--partition", f"{moved}-0=0,2")
    cluster.kill(2)
    until(lambda: partition(cluster, alone).leader < 0, 30, "it has no leader")
    until(lambda: 2 not in partition(cluster, lost).isrs, 30, "it left the ISR")
    ok(cluster, "topics", "delete", deleted, "--yes")
    found = finds(
        cluster, "no-leader", "under-min-isr", "under-replicated", "reassignment-stuck",
        "deletion-stuck",
    )  # fmt: skip
    assert f"{alone}-0" in found["no-leader"]["subjects"]
    assert found["no-leader"]["fix"].startswith("start broker 2")
    assert f"{strict}-0" in found["under-min-isr"]["subjects"]
    assert f"{lost}-0" in found["under-replicated"]["subjects"]
    assert "broker 2 is not alive" in found["under-replicated"]["evidence"]
    assert found["reassignment-stuck"]["subjects"] == [f"{moved}-0"]
    assert found["deletion-stuck"]["subjects"] == [deleted]
    mended(cluster, "reassignment-stuck")
    until(lambda: sorted(partition(cluster, moved).replicas) == [0, 1], 30, "it went back")
    back(cluster, 2)
    until(lambda: partition(cluster, deleted) is None, 60, "the topic is gone")
    is_rid_of(
        cluster, "no-leader", "under-min-isr", "under-replicated", "reassignment-stuck",
        "deletion-stuck",
    )  # fmt: skip
    found = finds(cluster, "forgotten-throttles")
    assert "broker 2" in found["forgotten-throttles"]["subjects"]
    mended(cluster, "forgotten-throttles")
    is_rid_of(cluster, "forgotten-throttles")


def test_leaders_elsewhere_and_settings_at_risk(cluster):
    strict = create(cluster, "0:1:2", min_insync_replicas=3)
    few = create(cluster, "0:1")
    unclean = create(cluster, "0:1:2", unclean_leader_election_enable="true")
    ok(cluster, "elect", "preferred", "--all")
    is_rid_of(cluster, "leaders-elsewhere")
    cluster.terminate(0)
    back(cluster, 0)
    found = finds(
        cluster, "leaders-elsewhere", "min-isr-is-all", "few-replicas", "unclean-allowed",
        "few-zookeepers",
    )  # fmt: skip
    assert f"{unclean}-0" in found["leaders-elsewhere"]["subjects"]
    assert strict in found["min-isr-is-all"]["subjects"]
    assert few in found["few-replicas"]["subjects"]
    assert found["unclean-allowed"]["subjects"] == [unclean]
    assert found["few-zookeepers"]["subjects"] == [f"broker {b}" for b in cluster.ids]
    for name in ("leaders-elsewhere", "unclean-allowed", "min-isr-is-all"):
        mended(cluster, name)
    until(lambda: partition(cluster, unclean).leader == 0, 30, "the preferred replica leads")
    is_rid_of(cluster, "leaders-elsewhere", "unclean-allowed", "min-isr-is-all")
    config = json.loads(ok(cluster, "configs", "describe", "--topic", strict, "--output", "json"))
    assert "2" in json.dumps(config)


def test_racks(cluster):
    topic = create(cluster, "0:1:2")
    is_rid_of(cluster, "racks-violated")
    cluster.settings["broker.rack"] = "r1"
    cluster.terminate(0)
    back(cluster, 0)
    cluster.settings["broker.rack"] = "r{broker}"
    shared = create(cluster, "0:1")
    found = finds(cluster, "racks-violated")
    assert f"{shared}-0" in found["racks-violated"]["subjects"]
    assert f"{topic}-0" not in found["racks-violated"]["subjects"], "there are but two racks"
    cluster.terminate(0)
    back(cluster, 0)
    is_rid_of(cluster, "racks-violated")


@pytest.mark.alone
def test_an_isr_that_flaps(strict_about_lag):
    cluster = strict_about_lag
    topic = create(cluster, "0:2")
    over = threading.Event()
    producing = threading.Thread(target=trickle, args=(cluster, topic, over))
    producing.start()
    stopping = threading.Thread(target=stop_and_go, args=(cluster.pid(2), over))
    try:
        stopping.start()
        # A broker that is stopped now and then does not answer each question.
        found = doctor(cluster, watch="12s", whole=False)
    finally:
        over.set()
        stopping.join()
        producing.join()
    assert f"{topic}-0" in found["isr-flapping"]["subjects"]
    until(lambda: sorted(partition(cluster, topic).isrs) == [0, 2], 30, "in sync again")
    until(lambda: "isr-flapping" not in doctor(cluster, watch="3s"), 60, "it flaps no more")


def trickle(cluster, topic, over):
    producer = Producer(named(cluster.bootstrap, {"acks": "1"}))
    while not over.wait(0.05):
        producer.produce(topic, b"x")
        producer.poll(0)
    producer.flush(30)


def stop_and_go(pid, over):
    """Stop a process shorter than its session lasts, longer than a replica may lag."""
    while not over.is_set():
        os.kill(pid, signal.SIGSTOP)
        time.sleep(3.5)
        os.kill(pid, signal.SIGCONT)
        time.sleep(2.0)


def test_metadata_that_is_stale(cluster):
    """A broker that is sent a newer leader epoch than the others makes these stale."""
    topic = create(cluster, "0:1:2")
    is_rid_of(cluster, "stale-metadata")
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(10)
    try:
        epoch = int(zookeeper.get("/controller_epoch")[0])
        controller = json.loads(zookeeper.get("/controller")[0])["brokerid"]
    finally:
        zookeeper.stop()
        zookeeper.close()

    async def send():
        client = Client(world(), cluster.bootstrap)
        try:
            await client.metadata([topic])
            r = UpdateMetadataRequest
            state = r.UpdateMetadataPartitionState(
                partition_index=0,
                controller_epoch=epoch,
                leader=0,
                leader_epoch=77,
                isr=[0, 1, 2],
                zk_version=0,
                replicas=[0, 1, 2],
            )
            brokers = [
                r.UpdateMetadataBroker(
                    id=b,
                    endpoints=[
                        r.UpdateMetadataEndpoint(
                            port=cluster.ports[b],
                            host="127.0.0.1",
                            listener="PLAINTEXT",
                            security_protocol=0,
                        )
                    ],
                    rack=f"r{b}",
                )
                for b in cluster.ids
            ]
            meta = (await client.metadata([topic])).topics[0]
            response = await client.call(
                r(
                    controller_id=controller, controller_epoch=epoch, broker_epoch=-1,
                    topic_states=[
                        r.UpdateMetadataTopicState(
                            topic_name=topic, topic_id=meta.topic_id, partition_states=[state]
                        )
                    ],
                    live_brokers=brokers,
                ),
                2, version=7,
            )  # fmt: skip
            assert response.error_code == 0
        finally:
            await client.close()

    asyncio.run(send())
    found = doctor(cluster)
    assert found["stale-metadata"]["subjects"] == ["broker 0", "broker 1"]
    assert "has leader epoch 0" in found["stale-metadata"]["evidence"]
    ok(cluster, "topics", "delete", topic, "--yes")
    is_rid_of(cluster, "stale-metadata")


def test_a_clock_that_is_off(cluster):
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(10)
    try:
        assert "clock-skew" not in doctor(cluster)
        path = "/brokers/ids/1"
        facts = json.loads(zookeeper.get(path)[0])

        def write(ahead_s):
            facts["timestamp"] = str(int((time.time() + ahead_s) * 1000))
            zookeeper.set(path, json.dumps(facts).encode())

        write(60)
        found = doctor(cluster)
        assert found["clock-skew"]["subjects"] == ["broker 1"]
        # A busy machine may write it down a while after the clock was looked at.
        (ahead,) = re.findall(r"([\d.]+) s ahead of", found["clock-skew"]["evidence"])
        assert 50 < float(ahead) <= 60
        # A broker whose listeners change registers them long after its znode was made.
        made_s = zookeeper.get(path)[1].ctime / 1000
        until(lambda: time.time() - made_s > 2 * MOST_SKEW_MS / 1000, 20, "it is long ago")
        write(0)
        assert "clock-skew" not in doctor(cluster)
    finally:
        zookeeper.stop()
        zookeeper.close()


def test_descriptors(cluster):
    assert "descriptors" not in doctor(cluster)
    before = resource.prlimit(cluster.pid(1), resource.RLIMIT_NOFILE)
    count = len(list(Path(f"/proc/{cluster.pid(1)}/fd").iterdir()))
    resource.prlimit(cluster.pid(1), resource.RLIMIT_NOFILE, (int(count * 1.1), before[1]))
    try:
        assert doctor(cluster)["descriptors"]["subjects"] == ["broker 1"]
    finally:
        resource.prlimit(cluster.pid(1), resource.RLIMIT_NOFILE, before)


@pytest.mark.alone
def test_groups(cluster):
    topic = create(cluster, "0:1:2")
    fill(cluster, topic, 100)
    gone, behind, stuck = fresh("gone"), fresh("behind"), fresh("stuck")
    for name, offset in ((gone, 10), (behind, 5)):
        consumer = Consumer(named(cluster.bootstrap, {"group_id": name}))
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()
    found = doctor(cluster)
    assert {gone, behind} <= set(found["group-without-members"]["subjects"])
    assert "group-behind-log-start" not in found
    ok(cluster, "topics", "delete-records", f"{topic}:0", "--before", "8", "--yes")
    assert doctor(cluster)["group-behind-log-start"]["subjects"] == [behind]

    settings = {"group_id": stuck, "auto_offset_reset": "earliest", "enable_auto_commit": "false"}
    consumer = Consumer(named(cluster.bootstrap, settings))
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.5) is not None, 60, "a record is read")
    consumer.commit(offsets=[TopicPartition(topic, 0, 20)], asynchronous=False)
    assert doctor(cluster, watch="16s")["group-stuck"]["subjects"] == [stuck]
    other = Consumer(named(cluster.bootstrap, settings))
    other.subscribe([topic])  # the first does not poll, so it does not rejoin
    polling = threading.Thread(target=other.poll, args=(20,))
    polling.start()
    try:
        until(lambda: "group-rebalancing" in doctor(cluster, watch="1s"), 15, "it rebalances")
    finally:
        consumer.close()
        polling.join()
        other.close()


def test_a_transaction_that_hangs(cluster):
    topic = create(cluster, "0:1:2")
    transactional_id = fresh("id")
    settings = {"transactional_id": transactional_id, "linger_ms": 0}
    producer = Producer(named(cluster.bootstrap, settings))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(20) == 0
    assert "hanging-transaction" not in doctor(cluster, "--older-than", "0s")
    rows = json.loads(ok(cluster, "txn", "producers", topic, 0, "--output", "json"))
    (open_one,) = [r for r in rows if r["transaction_start_offset"] is not None]
    producer.abort_transaction(20)

    def aborted():
        known = json.loads(ok(cluster, "txn", "producers", topic, 0, "--output", "json"))
        state = ok(cluster, "txn", "describe", transactional_id)
        return "CompleteAbort" in state and known[0]["transaction_start_offset"] is None

    until(aborted, 30, "the marker is written")
    known = (open_one["producer_id"], open_one["producer_epoch"], open_one["last_sequence"] + 1)
    hang(cluster.bootstrap, topic, transactional_id, *known)
    found = doctor(cluster, "--older-than", "0s")
    assert found["hanging-transaction"]["subjects"] == [f"{topic}-0"]
    mended_now = call(
        cluster, "doctor", "--for", "0s", "--older-than", "0s", "--fix", "hanging-transaction",
        "--yes",
    )  # fmt: skip
    assert mended_now.returncode == 0, mended_now.stderr
    assert "hanging-transaction" not in doctor(cluster, "--older-than", "0s")


# On Kafka it takes minutes: `pytest -m alone`.
@pytest.fixture(params=["ottla", pytest.param("kafka", marks=pytest.mark.alone)])
def two_brokers(request, tmp_path):
    """Start two brokers in racks; a session lasts longer than a look at them takes."""
    kind = OttlaCluster
    if request.param == "kafka":
        request.getfixturevalue("kafka_tools")
        kind = Kafka39Cluster
    settings = {"broker_rack": "r{broker}", "ottla_crash_detection": "off"}
    with kind(tmp_path, brokers=2, session_timeout_ms=25_000, **settings) as found:
        yield found


def test_brokers_that_are_set_up_differently_and_a_controller_that_is_gone(two_brokers):
    cluster = two_brokers
    create(cluster, "0:1", min_insync_replicas=1)
    planted = {"some-without-rack", "zookeepers-differ", "silent-broker", "no-controller"}
    is_rid_of(cluster, *planted)
    settings = dict(cluster.settings)
    port = cluster.zookeeper.rpartition(":")[2]
    del cluster.settings["broker.rack"]
    cluster.settings["zookeeper.connect"] = f"localhost:{port}"
    cluster.terminate(1)
    back(cluster, 1)
    found = finds(cluster, "some-without-rack", "zookeepers-differ")
    assert found["some-without-rack"]["subjects"] == ["broker 1"]
    assert found["zookeepers-differ"]["subjects"] == ["broker 0", "broker 1"]
    assert not {"silent-broker", "no-controller"} & found.keys()
    cluster.settings = settings
    cluster.terminate(1)
    back(cluster, 1)
    is_rid_of(cluster, *planted)
    controller = controller_of(cluster)
    cluster.kill(controller)
    found = doctor(cluster, whole=False)
    assert found["silent-broker"]["subjects"] == [f"broker {controller}"]
    assert f"broker {controller} is named" in found["no-controller"]["evidence"]
    until(lambda: controller_of(cluster) == 1 - controller, 90, "the other one takes over")
    is_rid_of(cluster, *planted)


def controller_of(cluster):
    """Return the controller by its znode, -1 while there is none."""
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(10)
    try:
        if zookeeper.exists("/controller") is None:
            return -1
        return json.loads(zookeeper.get("/controller")[0])["brokerid"]
    finally:
        zookeeper.stop()
        zookeeper.close()


@pytest.fixture(params=["ottla", "kafka"])
def small_disk(request, tmp_path):
    """Start one broker with a second log dir on a disk of 64 MB."""
    kind = OttlaCluster
    if request.param == "kafka":
        request.getfixturevalue("kafka_tools")
        kind = Kafka39Cluster
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no tmpfs can be mounted")
    try:
        settings = {"log_dirs": f"{tmp_path / 'large'},{disk}", "log_segment_bytes": "10485760"}
        with kind(tmp_path / "cluster", brokers=1, **settings) as found:
            found.disk = disk
            yield found
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_disk_that_fills_and_fails(small_disk):
    cluster = small_disk
    topic = fresh()
    ok(cluster, "topics", "create", topic, "--partitions", 2)
    found = doctor(cluster)
    assert not {"disk-filling", "log-dir-failed"} & found.keys()
    (on_disk,) = [int(p.name.rpartition("-")[2]) for p in cluster.disk.glob(f"{topic}-*")]
    filler = cluster.disk / "filler"
    filler.write_bytes(bytes(58 * 2**20))
    found = doctor(cluster)
    assert found["disk-filling"]["subjects"] == [f"broker 0: {cluster.disk}"]
    assert "log-dir-failed" not in found
    with filler.open("ab") as file:
        found = os.statvfs(cluster.disk)
        file.write(bytes(found.f_bavail * found.f_frsize - 2**20))
    found = doctor(cluster)
    assert found["disk-full"]["subjects"] == [f"broker 0: {cluster.disk}"]
    assert "disk-filling" not in found
    with filler.open("ab") as file:
        while True:
            try:
                os.write(file.fileno(), bytes(4096))
            except OSError:
                break
    producer = Producer(named(cluster.bootstrap, {"message_timeout_ms": "5000"}))
    for _ in range(200):
        producer.produce(topic, os.urandom(10_000), partition=on_disk)
    producer.flush(20)
    found = finds(cluster, "log-dir-failed", "no-leader")
    assert found["log-dir-failed"]["subjects"] == [f"broker 0: {cluster.disk}"]
    assert f"{topic}-{on_disk}" in found["no-leader"]["subjects"]


def test_a_zookeeper_that_is_down(tmp_path):
    with OttlaCluster(tmp_path, brokers=1) as cluster:
        is_rid_of(cluster, "zookeeper-down")
        cluster._zookeeper.stop()
        found = doctor(cluster, whole=False)
        assert cluster.zookeeper in found["zookeeper-down"]["evidence"]


def test_a_stray(cluster):
    """As a JVM broker or a person leaves it, without a note; see also test_strays.py."""
    folder = cluster.data(0) / "gone-0.0123456789abcdef0123456789abcdef-stray"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(bytes(1234))
    try:
        found = doctor(cluster)
        assert found["strays"]["subjects"] == [f"broker 0: {folder}"]
        assert "1,234 bytes" in found["strays"]["evidence"]
        assert "never removed" in found["strays"]["evidence"]
    finally:
        shutil.rmtree(folder)
    assert "strays" not in doctor(cluster)


def test_a_zookeeper_that_was_restored_from_an_older_state(tmp_path):
    """F51. Brokers keep what it does not know; the next start of a broker is quiet (R22)."""
    topic = fresh()
    with OttlaCluster(tmp_path, 1) as cluster:
        port = int(cluster.zookeeper.rpartition(":")[2])
        znodes, backup = tmp_path / "zookeeper", tmp_path / "backup"
        cluster._zookeeper.stop()
        shutil.copytree(znodes, backup)
        cluster._zookeeper = cluster.start_zookeeper(port)
        ok(cluster, "topics", "create", topic)
        assert "zookeeper-went-back" not in doctor(cluster)
        cluster.terminate(0)
        cluster._zookeeper.stop()
        shutil.rmtree(znodes)
        shutil.copytree(backup, znodes)
        cluster._zookeeper = cluster.start_zookeeper(port)
        cluster.start_broker(0)
        assert "zookeeper-went-back" in doctor(cluster)
        assert "zookeeper went back to an older state" in cluster.log(0).read_text()
        assert (cluster.data(0) / f"{topic}-0").is_dir()
        cluster.terminate(0)
        cluster.start_broker(0)
        assert "zookeeper-went-back" not in doctor(cluster)
        assert (cluster.data(0) / f"{topic}-0").is_dir()
