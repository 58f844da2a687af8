"""F20 beside Apache Kafka 3.9: its controller moves our leader, its broker leaves marks alone."""

import shutil
import time

import pytest

from ottla.log import damage
from ottla.model.ids import TopicPartition
from support.clients import admin_client, create_topics
from support.damaged import COUNT, fill, flip, left_over, read, segments, values
from support.seen import Znodes
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

TOPIC = "mixed"
JVM = 10
CONFIG = {"segment.bytes": "100000"}
UNIQUE = "0123456789abcdef0123456789abcdef"


def create(admin, replicas) -> None:
    from confluent_kafka.admin import NewTopic

    new = NewTopic(TOPIC, 1, replica_assignment=[replicas], config=CONFIG)
    create_topics(admin, new)


@pytest.mark.parametrize("replicas", [[0, 1, JVM], [0, JVM]], ids=["three", "ours and a JVM's"])
def test_f20_a_jvm_controller_moves_the_leader_and_takes_the_replica_back(tmp_path, replicas):
    from support.mixed import MixedCluster

    with MixedCluster(tmp_path, 2, 1, jvm_first=True) as mixed:
        admin = admin_client(mixed.bootstrap)
        until(lambda: len(admin.list_topics(timeout=10).brokers) == 3, 30, "all are known")
        mixed.give_office_to(JVM)
        create(admin, replicas)
        mixed.wait_full(TOPIC)
        fill(mixed, TOPIC)
        mixed.ours.terminate(0)
        mixed.start(0)
        mixed.wait_full(TOPIC)
        mixed.give_lead_to(0, TOPIC)
        assert mixed.znodes.controller() == JVM
        flip(segments(mixed.ours, 0, TOPIC)[1])
        began_s = time.monotonic()
        found, errors = read(mixed.bootstrap, TOPIC)
        took_s = time.monotonic() - began_s
        assert not errors
        assert [found[n] for n in range(COUNT)] == values()
        assert mixed.znodes.states(TOPIC)[0].leader != 0
        mixed.wait_full(TOPIC)
        until(lambda: not left_over(mixed.ours, 0, TOPIC), 60, "nothing is left of the damage")
        healed_s = time.monotonic() - began_s
        print(f"all was read after {took_s:.1f} s, the replica was whole after {healed_s:.1f} s")
        assert mixed.znodes.controller() == JVM
        mixed.give_lead_to(0, TOPIC)
        again, errors = read(mixed.bootstrap, TOPIC)
        assert not errors
        assert again == found
        mixed.stop()
        assert not mixed.replica_differences(TOPIC)


def test_f20_a_jvm_broker_leaves_the_mark_and_what_was_set_aside_alone(tmp_path):
    from support.kafka39 import Kafka39Cluster

    # A JVM that a busy machine stops for longer than its session loses the topic's creation.
    with Kafka39Cluster(tmp_path / "kafka", heap_mb=300, session_timeout_ms=6000) as kafka:
        admin = admin_client(kafka.bootstrap)
        create(admin, [0])
        fill(kafka, TOPIC)
        kafka.terminate(0)
        folder = kafka.data(0) / f"{TOPIC}-0"
        mark = damage.encode(TopicPartition(TOPIC, 0), [(1450, 1500)], COUNT)
        (folder / damage.DAMAGE_FILE).write_bytes(mark)
        aside = folder.with_name(f"{folder.name}.{UNIQUE}-stray")
        shutil.copytree(folder, aside)
        flip(sorted(aside.glob("*.log"))[1])
        before = {p.name for p in aside.iterdir()}
        kafka.start_broker(0)
        found, errors = read(kafka.bootstrap, TOPIC)
        assert not errors
        assert [found[n] for n in range(COUNT)] == values()
        kafka.kill(0)
        with Znodes(kafka.zookeeper) as znodes:  # a killed broker's lives as long as its session
            until(lambda: not znodes.brokers(), 30, "the broker is forgotten")
        kafka.start_broker(0)
        kafka.terminate(0)
        assert (folder / damage.DAMAGE_FILE).read_bytes() == mark
        assert (aside / damage.DAMAGE_FILE).read_bytes() == mark
        assert {p.name for p in aside.iterdir() if p.suffix == ".log"} == {
            n for n in before if n.endswith(".log")
        }
