"""A cluster as an object: brokers as processes and as threads, seen by Kafka's own clients."""

import asyncio
import gc
import inspect
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import ottla
from ottla.model.errors import ConfigError, OttlaError
from ottla.testing.sync_cluster import SyncCluster
from support.waiting import until

BOTH = pytest.mark.parametrize(
    "in_process",
    [
        pytest.param(False, marks=pytest.mark.processes, id="processes"),
        pytest.param(True, id="threads"),
    ],
)


class Writer:
    """Confluent's producer with acks=all; keeps what was acknowledged, by offset."""

    def __init__(self, bootstrap, topic):
        self.topic = topic
        self.acknowledged = {}
        self.failed = []
        self.sent = 0
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": 60_000,
                "socket.timeout.ms": 3_000,
                "reconnect.backoff.max.ms": 200,
                "linger.ms": 0,
            }
        )

    def write(self, count):
        for _ in range(count):
            value = b"%d" % self.sent
            self.sent += 1
            self.producer.produce(self.topic, value, on_delivery=self._delivered)
            self.producer.poll(0)

    def _delivered(self, error, message):
        if error is None:
            self.acknowledged[message.offset()] = message.value()
        else:
            self.failed.append(error)

    def flush(self, timeout_s=70):
        assert self.producer.flush(timeout_s) == 0, "not all was delivered or failed in time"


def read_all(bootstrap, topic, partition=0):
    """Return what another client reads of a partition up to its end, by offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip
    try:
        tp = TopicPartition(topic, partition, 0)

        def log_end():
            # A leader that has just been elected does not know its high watermark yet.
            return consumer.get_watermark_offsets(tp, timeout=20)[1] or None

        end = until(log_end, 20, "the end of the log is known", despite=(KafkaException,))
        consumer.assign([tp])
        found = {}
        deadline = time.monotonic() + 20
        while (max(found, default=-1) + 1) < end and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=1):
                assert message.error() is None, message.error()
                found[message.offset()] = message.value()
        return found
    finally:
        consumer.close()


def assert_kept(writer, found):
    lost = {o: v for o, v in writer.acknowledged.items() if found.get(o) != v}
    assert not lost, f"acknowledged and lost or changed: {list(lost.items())[:5]}"
    values = list(found.values())
    assert len(values) == len(set(values)), "a record is there twice"


@BOTH
def test_what_was_acknowledged_survives_the_kill_of_its_leader(in_process):
    with SyncCluster(3, in_process=in_process) as cluster:
        cluster.create_topic("orders", partitions=1)
        writer = Writer(cluster.bootstrap, "orders")
        writer.write(500)
        writer.flush()
        leader = cluster.leader_of("orders-0")
        writer.write(500)
        cluster.kill(leader)
        writer.write(500)
        writer.flush()
        assert len(writer.acknowledged) == 1500
        assert not cluster.running(leader)
        other = cluster.leader_of("orders-0")
        assert other != leader
        why = cluster.why("orders-0")
        assert f"leader {other}" in why.splitlines()[0]
        assert_kept(writer, read_all(cluster.bootstrap, "orders"))
        cluster.start(leader)
        cluster.wait_until_in_sync()
        assert cluster.isr_of("orders-0") == [1, 2, 3]
        assert_kept(writer, read_all(cluster.address(leader), "orders"))
        assert [what for _, what in cluster.events][1:] == [
            f"killed broker {leader}",
            f"started broker {leader}",
        ]


@BOTH
def test_a_paused_broker_loses_its_leadership_and_comes_back(in_process):
    with SyncCluster(3, in_process=in_process, session_timeout_ms=1500) as cluster:
        cluster.create_topic("orders")
        leader = cluster.leader_of("orders-0")
        cluster.pause(leader)
        assert cluster.paused(leader)
        assert cluster.running(leader)
        until(lambda: cluster.leader_of("orders-0") != leader, 60, "another one leads")
        writer = Writer(cluster.bootstrap, "orders")
        writer.write(50)
        writer.flush()
        cluster.resume(leader)
        cluster.wait_until_in_sync()
        assert_kept(writer, read_all(cluster.address(leader), "orders"))


@BOTH
@pytest.mark.parametrize("how", ["drop", "cut"])
def test_a_partitioned_leader_is_replaced_and_nothing_is_lost(in_process, how):
    with SyncCluster(3, in_process=in_process, session_timeout_ms=1500) as cluster:
        cluster.create_topic("orders")
        writer = Writer(cluster.bootstrap, "orders")
        writer.write(200)
        writer.flush()
        leader = cluster.leader_of("orders-0")
        cluster.partition(leader, how=how)
        others = [b for b in cluster.broker_ids if b != leader]
        writer.write(200)

        def replaced():
            return cluster.leader_of("orders-0") in others

        until(replaced, 60, "one of the others leads")
        writer.flush()
        assert not writer.failed
        cluster.heal()
        cluster.wait_until_in_sync()
        assert_kept(writer, read_all(cluster.address(leader), "orders"))
        assert len(writer.acknowledged) == 400


@BOTH
def test_a_follower_apart_from_the_others_leaves_the_isr_and_returns(in_process):
    settings = {"replica.lag.time.max.ms": 4000}  # at less, one that waits for a core leaves, too
    with SyncCluster(3, in_process=in_process, settings=settings) as cluster:
        cluster.create_topic("orders", min_insync_replicas=1)
        assert cluster.partitions() == ["orders-0"]
        others = {cluster.leader_of("orders-0"), cluster.controller}
        follower = min(set(cluster.broker_ids) - others)
        rest = [b for b in cluster.broker_ids if b != follower]
        writer = Writer(cluster.bootstrap, "orders")
        writer.write(10)
        writer.flush()
        cluster.partition(follower, from_=rest)
        writer.write(50)
        until(lambda: cluster.isr_of("orders-0") == rest, 60, "it has left the ISR")
        writer.flush()
        assert not writer.failed
        assert "ISR shrinks" in cluster.why("orders-0")
        cluster.heal()
        cluster.wait_until_in_sync()
        cluster.kill(rest[0])
        cluster.kill(rest[1])
        assert cluster.leader_of("orders-0") == follower
        assert_kept(writer, read_all(cluster.address(follower), "orders"))
        assert len(writer.acknowledged) == 60


@BOTH
def test_clients_alone_are_separated_in_both_directions(in_process):
    with SyncCluster(1, in_process=in_process) as cluster:
        cluster.create_topic("orders")
        writer = Writer(cluster.bootstrap, "orders")
        writer.write(1)
        writer.flush()
        cluster.partition(1, from_="clients")
        writer.write(1)
        assert writer.producer.flush(1.0) == 1, "it was delivered through a partition"
        assert cluster.leader_of("orders-0") == 1, "the cluster itself is untouched"
        fresh = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "new"})
        with pytest.raises(KafkaException):
            fresh.list_topics(timeout=1)
        cluster.heal()
        writer.flush()
        assert len(writer.acknowledged) == 2
        assert fresh.list_topics(timeout=60).topics["orders"]
        fresh.close()


@BOTH
def test_a_slow_broker_answers_that_much_later(in_process):
    with SyncCluster(1, in_process=in_process) as cluster:
        cluster.create_topic("orders")
        writer = Writer(cluster.bootstrap, "orders")
        writer.write(1)
        writer.flush()

        def took_s():
            began = time.monotonic()
            writer.write(1)
            writer.flush()
            return time.monotonic() - began

        def is_quick():
            return took_s() < 0.25

        # On busy cores one or the other record takes longer by itself.
        until(is_quick, 30, "as usual")
        cluster.slow(1, delay_s=0.3, from_="clients")
        slowed = [took_s() for _ in range(5)]
        cluster.heal()
        until(is_quick, 30, "healed")
        assert 0.29 <= min(slowed) < 3.0


@BOTH
def test_a_full_disk_ends_the_broker_and_loses_nothing(in_process):
    with SyncCluster(3, in_process=in_process) as cluster:
        cluster.create_topic("orders")
        writer = Writer(cluster.bootstrap, "orders")
        writer.write(300)
        writer.flush()
        leader = cluster.leader_of("orders-0")
        cluster.disk_full(leader)
        writer.write(300)
        writer.flush()
        assert len(writer.acknowledged) == 600
        until(lambda: not cluster.running(leader), 60, "a broker without a log dir ends")
        assert "No space left on device" in cluster.logs(leader, 400)
        assert cluster.leader_of("orders-0") != leader
        cluster.heal()
        cluster.start(leader)
        cluster.wait_until_in_sync()
        assert_kept(writer, read_all(cluster.address(leader), "orders"))


@BOTH
def test_brokers_stop_well_restart_and_are_added(in_process):
    with SyncCluster(2, in_process=in_process) as cluster:
        cluster.create_topic("orders", partitions=4)
        cluster.stop(1)
        assert not cluster.running(1)
        assert cluster.controller == 2
        assert [cluster.leader_of(f"orders-{n}") for n in range(4)] == [2, 2, 2, 2]
        assert "shut down" in cluster.logs(1, 5)
        cluster.start(1)
        cluster.restart(2)
        assert cluster.add_broker() == 3
        cluster.delete_topic("orders")
        assert cluster.partitions() == []
        with pytest.raises(OttlaError, match="was not deleted"):
            cluster.delete_topic("orders")
        cluster.create_topic("wide", replicas=3)
        cluster.wait_until_in_sync()
        assert cluster.isr_of("wide-0") == [1, 2, 3]


@BOTH
def test_the_asynchronous_one_lets_its_loop_run(in_process):
    async def main():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        counting = asyncio.create_task(count())
        async with ottla.Cluster(brokers=3, in_process=in_process) as cluster:
            await cluster.create_topic("orders")
            leader = await cluster.leader_of("orders-0")
            await cluster.kill(leader)
            assert await cluster.leader_of("orders-0") != leader
            assert await cluster.controller() in cluster.broker_ids
            assert "orders-0" in await cluster.why("orders-0")
        counting.cancel()
        return turns

    assert asyncio.run(main()) > 5


ASYNC_ONLY = {"sync", "using"}
SYNC_ONLY = {"open", "close", "age_s", "note", "in_process", "session_timeout_ms"}
"""What `async with` does; what it was made with; what the plugin and chaos use."""
ATTRIBUTES_OF_ONE = {"events", "faults"}
PROPERTY_OF_ONE = "controller"
"""It waits, so the asynchronous one has it as a method."""


def public(found):
    return {name for name in dir(found) if not name.startswith("_")}


def signature(kind, name):
    found = inspect.getattr_static(kind, name)
    return inspect.signature(found.fget if isinstance(found, property) else found)


def is_property(kind, name):
    return isinstance(inspect.getattr_static(kind, name), property)


def test_the_asynchronous_one_has_all_that_the_other_has():
    names = public(ottla.Cluster(1)) - ASYNC_ONLY
    assert names == public(SyncCluster(1)) - SYNC_ONLY
    for name in ("__init__", *sorted(names - ATTRIBUTES_OF_ONE)):
        assert signature(ottla.Cluster, name) == signature(SyncCluster, name), name
        same = is_property(ottla.Cluster, name) == is_property(SyncCluster, name)
        assert same or name == PROPERTY_OF_ONE, name


class Noted(ottla.Cluster):
    """A cluster that knows which of its public names were used."""

    def __init__(self, *args, **kwargs):
        self._used = set()
        super().__init__(*args, **kwargs)

    def __getattribute__(self, name):
        if not name.startswith("_"):
            self._used.add(name)
        return super().__getattribute__(name)


def topics_of(address, timeout_s=60):
    """Return the topics that a client which has just come is told of, and after how long."""
    client = AdminClient({"bootstrap.servers": address})
    began = time.monotonic()
    found = client.list_topics(timeout=timeout_s).topics
    return set(found), time.monotonic() - began


async def check_what_is_asked(cluster):
    assert cluster.broker_ids == [1, 2]
    assert cluster.bootstrap == f"{cluster.address(1)},{cluster.address(2)}"
    assert cluster.zookeeper.startswith("127.0.0.1:")
    assert cluster.pid(1) != cluster.pid(2)
    assert cluster.dir.is_dir()
    await cluster.create_topic("orders", 2, replicas=2, min_insync_replicas=1)
    await cluster.wait_until_in_sync()
    assert await cluster.partitions() == ["orders-0", "orders-1"]
    assert await cluster.isr_of("orders-1") == sorted(await cluster.replicas_of("orders-1"))
    assert await cluster.leader_of("orders-1") in (1, 2)
    assert await cluster.controller() in (1, 2)
    assert "orders-1" in await cluster.why("orders-1")
    await cluster.prepare_producer_ids()
    assert await ottla.Cluster.using(cluster.sync).partitions() == ["orders-0", "orders-1"]


async def check_what_happens_to_brokers(cluster):
    await cluster.pause(2)
    assert cluster.paused(2)
    assert cluster.running(2)
    await cluster.resume(2)
    assert not cluster.paused(2)
    await cluster.wait_until_in_sync()
    await cluster.stop(1)
    assert not cluster.running(1)
    assert "shut down" in cluster.logs(1, 5)
    assert await cluster.leader_of("orders-0") == 2
    await cluster.start(1)
    assert cluster.running(1)
    await cluster.wait_until_in_sync()
    await cluster.restart(2)
    assert [what for _, what in cluster.events][-2:] == ["stopped broker 2", "started broker 2"]
    await cluster.wait_until_in_sync()
    await cluster.kill(2)
    assert not cluster.running(2)
    assert await cluster.leader_of("orders-0") == 1
    assert cluster.faults == {"pause": 1, "stop": 2, "kill": 1}
    await cluster.start(2)
    assert await cluster.add_broker() == 3
    assert cluster.broker_ids == [1, 2, 3]
    await cluster.create_topic("wide", replicas=3)
    await cluster.wait_until_in_sync()
    assert await cluster.isr_of("wide-0") == [1, 2, 3]


async def check_faults(cluster):
    await cluster.slow(3, 0.5, "clients")
    found, took_s = await asyncio.to_thread(topics_of, cluster.address(3))
    assert "wide" in found
    assert took_s >= 0.49
    await cluster.partition(3, "clients", how="cut")
    assert cluster.events[-1][1] == "partitioned broker 3 from clients (cut)"
    with pytest.raises(KafkaException):
        await asyncio.to_thread(topics_of, cluster.address(3), 1)
    await cluster.heal()
    found, _ = await asyncio.to_thread(topics_of, cluster.address(3))
    assert "wide" in found
    writer = Writer(cluster.bootstrap, "orders")
    await cluster.disk_full(2)
    writer.write(100)  # to both partitions, of which broker 2 has replicas
    await asyncio.to_thread(
        until, lambda: not cluster.running(2), 60, "a broker without a log dir ends"
    )
    assert "No space left on device" in cluster.logs(2, 400)
    await asyncio.to_thread(writer.flush)
    assert not writer.failed
    await cluster.heal()
    await cluster.start(2)
    await cluster.wait_until_in_sync()
    assert await cluster.isr_of("orders-0") == [1, 2]
    await cluster.delete_topic("orders")
    assert await cluster.partitions() == ["wide-0"]


@pytest.mark.timeout(240)
def test_each_method_of_the_asynchronous_one_has_its_effect():
    async def main():
        async with Noted(brokers=2, in_process=True) as cluster:
            folder = cluster.dir
            await check_what_is_asked(cluster)
            await check_what_happens_to_brokers(cluster)
            await check_faults(cluster)
            await cluster.stop_schema_registry()
        assert not folder.exists()
        return cluster._used

    # The registry has tests of its own: tests/compat/test_schema_registry.py.
    assert public(ottla.Cluster) - {"using", "schema_registry_url"} <= asyncio.run(main())


def test_mistakes_are_one_clear_line():
    with pytest.raises(ConfigError, match=r"did you mean log\.retention\.ms"):
        SyncCluster(1, settings={"log.retention.mss": 1})
    with pytest.raises(ConfigError, match="chooses this one"):
        SyncCluster(1, settings={"log.dirs": "/tmp"})
    with pytest.raises(ConfigError, match="1 to 50"):
        SyncCluster(0)
    with pytest.raises(OttlaError, match="does not run"):
        SyncCluster(1).kill(1)
    with SyncCluster(1, in_process=True) as cluster:
        with pytest.raises(OttlaError, match="no broker 7; there are 1"):
            cluster.kill(7)
        with pytest.raises(OttlaError, match=r"is no TOPIC-PARTITION"):
            cluster.leader_of("orders")
        with pytest.raises(OttlaError, match="was not created"):
            cluster.create_topic("orders", replicas=3, timeout_s=2)
        with pytest.raises(OttlaError, match="was not created"):
            cluster.create_topic("orders", retention_mss=1)
        for _ in range(2):  # asking creates nothing
            with pytest.raises(OttlaError, match="know no partition orders-0; there are no topics"):
                cluster.isr_of("orders-0")
        assert cluster.partitions() == []
        cluster.create_topic("orders", 3)
        cluster.create_topic("payments")
        there = "does not exist; there are orders, payments$"
        for wrong in ("oders-0", "orders-of-today-2", "or ders-0"):
            topic = wrong.rpartition("-")[0]
            for ask in (cluster.leader_of, cluster.why):
                began = time.monotonic()
                with pytest.raises(OttlaError, match=f"topic {topic} {there}"):
                    ask(wrong)
                assert time.monotonic() - began < 2
        began = time.monotonic()
        with pytest.raises(OttlaError, match="within 2 s: topic orders has a partition 3"):
            cluster.leader_of("orders-3")
        assert time.monotonic() - began < 5
        cluster.kill(1)
        with pytest.raises(OttlaError, match="does not run; start it first"):
            cluster.partition(1)


@BOTH
def test_nothing_is_left_after_the_end(in_process):
    with SyncCluster(2, in_process=in_process) as cluster:
        folder = cluster.dir
        assert folder.is_dir()
        pids = [cluster.pid(1), cluster.pid(2)]
    assert not folder.exists()
    if not in_process:
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@BOTH
def test_a_named_folder_stays_with_its_data(in_process, tmp_path):
    folder = tmp_path / "data"
    with SyncCluster(1, in_process=in_process, dir=folder) as cluster:
        cluster.create_topic("orders")
        writer = Writer(cluster.bootstrap, "orders")
        writer.write(10)
        writer.flush()
    data = folder / "broker-1/data"
    assert (data / "orders-0/00000000000000000000.log").stat().st_size > 0
    assert (data / ".kafka_cleanshutdown").exists(), "the broker did not end well"
    with pytest.raises(OttlaError, match="of a cluster that is over"):
        SyncCluster(1, in_process=in_process, dir=folder).open()
    assert data.is_dir()


ENDED_S = 30
"""A few hundredths alone; on busy cores, those that end wait for their turn as all others do."""
OWNER = """
    import sys, time
    from ottla import SyncCluster
    cluster = SyncCluster(3)
    cluster.open()
    cluster.pause(2)
    host = cluster._host
    pids = [cluster.pid(b) for b in (1, 2, 3)]
    print(cluster.dir, host._server.pid, host._children[0].process.pid, *pids)
    sys.stdout.flush()
    time.sleep(60)
"""


@pytest.mark.processes
def test_after_a_kill_9_of_its_owner_nothing_of_a_cluster_is_left():
    """A paused broker, too, which sees nothing by itself."""
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER)], stdout=subprocess.PIPE, text=True
    )
    try:
        folder, *pids = owner.stdout.readline().split()
        assert len(pids) == 5
        assert all(alive(int(pid)) for pid in pids)
        owner.kill()
        until(lambda: not any(alive(int(pid)) for pid in pids), ENDED_S, "all have ended")
        until(lambda: not Path(folder).exists(), ENDED_S, "the folder is gone")
    finally:
        owner.kill()
        owner.wait(10)
        owner.stdout.close()


OWNER_OF_THREADS = """
    import os, time
    from ottla import SyncCluster
    cluster = SyncCluster(1, in_process=True)
    cluster.open()
    cluster.create_topic("orders")
    if os.fork() == 0:
        os.setsid()
        print(cluster.dir, os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
"""


def test_after_a_kill_9_of_its_owner_the_folder_of_a_cluster_in_threads_is_gone():
    """The signal goes to the owner's whole process group; a fork of the owner lives on."""
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER_OF_THREADS)],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    fork = 0
    try:
        folder, pid = owner.stdout.readline().split()
        fork = int(pid)
        assert (Path(folder) / "broker-1/data/orders-0").is_dir()
        os.killpg(owner.pid, signal.SIGKILL)
        until(lambda: not Path(folder).exists(), ENDED_S, "the folder is gone")
        assert alive(fork)
    finally:
        owner.kill()
        owner.wait(10)
        owner.stdout.close()
        if fork:
            os.kill(fork, signal.SIGKILL)


@pytest.mark.processes
def test_after_a_kill_9_of_owner_and_fork_server_no_broker_is_left():
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER)], stdout=subprocess.PIPE, text=True
    )
    try:
        folder, server, *pids = owner.stdout.readline().split()
        os.kill(int(server), signal.SIGKILL)
        owner.kill()
        until(lambda: not any(alive(int(pid)) for pid in pids), ENDED_S, "all have ended")
    finally:
        owner.kill()
        owner.wait(10)
        owner.stdout.close()
        subprocess.run(["rm", "-rf", folder], check=False)


@pytest.mark.processes
def test_clusters_are_forked_from_one_program_and_another_one_where_it_has_ended():
    programs = []
    for _ in range(2):
        with SyncCluster(1) as cluster:
            programs.append(parent(cluster._host._server.pid))
    assert programs[0] == programs[1] != os.getpid()
    os.kill(programs[0], signal.SIGKILL)
    with SyncCluster(1) as cluster:
        assert parent(cluster._host._server.pid) not in {*programs, os.getpid()}
        cluster.create_topic("orders")
        assert cluster.isr_of("orders-0") == [1]


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


OTHER_SYSTEM = """
    from ottla.local import fork_process
    fork_process.PROGRAM = fork_process.PROGRAM.replace("main()", "sys.platform = 'other'; main()")
"""


@pytest.mark.processes
def test_where_the_kernel_does_not_end_them_brokers_end_by_themselves():
    """As on macOS: at the end of their control sockets, unless they are paused."""
    program = textwrap.dedent(OTHER_SYSTEM) + textwrap.dedent(OWNER).replace("cluster.pause(2)", "")
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        folder, server, *pids = owner.stdout.readline().split()
        os.kill(int(server), signal.SIGKILL)
        time.sleep(0.3)
        assert all(alive(int(pid)) for pid in pids), "it was the kernel"
        owner.kill()
        until(lambda: not any(alive(int(pid)) for pid in pids), ENDED_S, "all have ended")
    finally:
        owner.kill()
        owner.wait(10)
        owner.stdout.close()
        subprocess.run(["rm", "-rf", folder], check=False)


def alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.processes
def test_two_clusters_at_once_have_ports_of_their_own():
    with SyncCluster(3) as one, SyncCluster(3) as other:
        assert not set(one.bootstrap.split(",")) & set(other.bootstrap.split(","))
        one.create_topic("orders")
        with pytest.raises(OttlaError, match="know no partition"):
            other.isr_of("orders-0")


def test_importing_ottla_stays_cheap():
    code = "import sys, ottla; print(sum(m.startswith('ottla') for m in sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    assert found.stdout.strip() == "1"
    with pytest.raises(AttributeError, match="no attribute 'Clusters'"):
        _ = ottla.Clusters


def test_a_port_that_was_taken_is_replaced(monkeypatch):
    """Where ports cannot be held (macOS), another program may have taken one meanwhile."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = iter([other.getsockname()[1]])
        hold = SyncCluster._hold_port
        calls = iter(range(100))

        def hold_port(cluster):
            return next(taken) if next(calls) == 1 else hold(cluster)

        monkeypatch.setattr(SyncCluster, "_hold_port", hold_port)
        with SyncCluster(1, in_process=True) as cluster:
            assert cluster.controller == 1
            assert str(other.getsockname()[1]) not in cluster.bootstrap
        assert next(calls) > 5, "it was not started twice"


def test_no_other_program_is_given_a_port_while_its_broker_is_down():
    with SyncCluster(1, in_process=True) as cluster:
        cluster.kill(1)
        port = int(cluster.address(1).rpartition(":")[2])
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
        given = []
        for _ in range(300):
            with socket.socket() as asked:
                asked.bind(("127.0.0.1", 0))
                given.append(asked.getsockname()[1])
        assert port not in given
        cluster.start(1)


@pytest.mark.processes
def test_a_fork_of_the_test_process_does_not_keep_a_cluster_alive():
    """As multiprocessing makes them: it has copies of all sockets."""
    with SyncCluster(1) as cluster:
        pid = cluster.pid(1)
        fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
        fork.start()
        began = time.monotonic()
    try:
        assert time.monotonic() - began < 20, "it was waited for in vain"
        assert not alive(pid)
        assert fork.is_alive()
    finally:
        fork.kill()
        fork.join(10)


def test_many_clusters_one_after_another_leave_nothing_in_the_process():
    def left():
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    def nothing_more():
        threads, files = left()
        return threads <= before[0] and files <= before[1]

    for n in range(13):
        with SyncCluster(1, in_process=True) as cluster:
            cluster.create_topic("orders")
            if n % 3 == 0:
                cluster.kill(1)
            if n % 3 == 1:
                cluster.pause(1)
        if n == 3:
            before = left()
    # Threads of workers are told to end, and not waited for.
    until(nothing_more, 30, lambda: f"{before} threads and files, then {left()}")


def test_threads_run_on_asyncios_own_loop_too(monkeypatch):
    monkeypatch.setattr("ottla.testing.thread_host.loop_factory", lambda: None)
    with SyncCluster(3, in_process=True) as cluster:
        cluster.create_topic("orders")
        writer = Writer(cluster.bootstrap, "orders")
        writer.write(50)
        cluster.kill(cluster.leader_of("orders-0"))
        writer.write(50)
        writer.flush()
        assert_kept(writer, read_all(cluster.bootstrap, "orders"))
        assert len(writer.acknowledged) == 100


def test_a_zookeeper_that_runs_is_used_and_survives():
    with SyncCluster(1, in_process=True) as first:
        address = f"{first.zookeeper}/another"
        with SyncCluster(2, in_process=True, zookeeper=address) as cluster:
            assert cluster.zookeeper == address
            cluster.create_topic("orders")
            with pytest.raises(OttlaError, match="know no partition"):
                first.isr_of("orders-0")
            follower = min({1, 2} - {cluster.controller})
            cluster.partition(follower, from_="zookeeper")
            cluster.heal()
        first.create_topic("invoices")
        assert first.leader_of("invoices-0") == 1


@BOTH
def test_a_kill_leaves_no_mark_of_a_clean_end_and_a_stop_does(in_process):
    with SyncCluster(2, in_process=in_process) as cluster:
        cluster.create_topic("orders")
        marks = [cluster.dir / f"broker-{n}/data/.kafka_cleanshutdown" for n in (1, 2)]
        cluster.kill(1)
        cluster.stop(2)
        assert [mark.exists() for mark in marks] == [False, True]
        last = cluster.logs(1, 1000)
        assert "shutting down" not in last, "a killed broker took steps of its own"
        assert "shut down" in cluster.logs(2, 1)
