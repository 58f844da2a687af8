"""F20 on real processes: a bit flips on a leader's disk, below its high watermark."""

import re
import subprocess
import sys
import time

import pytest

from ottla.log import damage
from ottla.wire.records import iter_batches
from support.clients import admin_client, create_topic
from support.damaged import (
    COUNT,
    SEGMENT,
    fill,
    flip,
    full,
    leader_of,
    read,
    segments,
    values,
    wait_healed,
)
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from support.cluster import OttlaCluster

    folder = tmp_path_factory.mktemp("damage")
    with OttlaCluster(
        folder, brokers=3, auto_leader_rebalance_enable="false", log_cleaner_enable="false"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def admin(cluster):
    return admin_client(cluster.bootstrap)


def filled(cluster, admin) -> str:
    topic = create_topic(admin, 1, 3, min_insync_replicas="2", **SEGMENT)
    until(lambda: full(admin, topic), 30, "all replicas are in sync")
    fill(cluster, topic)
    return topic


def restart_cold(cluster, admin, broker, topic) -> None:
    """Restart a broker, so that nothing of its logs lies in its memory, and let it lead again."""
    cluster.terminate(broker)
    cluster.start_broker(broker)
    until(lambda: full(admin, topic), 60, "all replicas are in sync again")
    elect(cluster, broker, topic)


def elect(cluster, broker, topic) -> None:
    """Have a broker lead, by a reassignment that names it first and a preferred election."""
    from ottla.admin.session import connected
    from support.mixed import _elect_preferred, _reorder

    orders = {topic: [broker, *(b for b in cluster.ids if b != broker)]}
    connected(cluster.bootstrap, lambda client: _reorder(client, orders))
    admin = admin_client(cluster.bootstrap)

    def leads() -> bool:
        connected(cluster.bootstrap, lambda client: _elect_preferred(client, [topic]))
        return leader_of(admin, topic) == broker

    until(leads, 30, f"broker {broker} leads")


def test_f20_leadership_moves_all_is_read_and_the_replica_is_copied_anew(cluster, admin):
    topic = filled(cluster, admin)
    leader = leader_of(admin, topic)
    restart_cold(cluster, admin, leader, topic)
    flip(segments(cluster, leader, topic)[1])
    began_s = time.monotonic()
    found, errors = read(cluster.bootstrap, topic)
    took_s = time.monotonic() - began_s
    assert not errors
    assert [found[n] for n in range(COUNT)] == values()
    until(lambda: leader_of(admin, topic) != leader, 20, "whoever is asked has heard of the move")
    wait_healed(cluster, admin, topic, leader)
    healed_s = time.monotonic() - began_s
    print(f"all was read after {took_s:.1f} s, the replica was whole after {healed_s:.1f} s")
    logs = [cluster.log_bytes(b, f"{topic}-0") for b in cluster.ids]
    assert logs[0] == logs[1] == logs[2]
    assert took_s < 30
    elect(cluster, leader, topic)
    again, errors = read(cluster.bootstrap, topic)
    assert not errors
    assert again == found


@pytest.mark.parametrize("step", ["marked", "refused", "set aside"])
def test_f20_kill_9_at_any_step_does_not_forget(cluster, admin, step):
    topic = filled(cluster, admin)
    leader = leader_of(admin, topic)
    restart_cold(cluster, admin, leader, topic)
    flip(segments(cluster, leader, topic)[1])
    folder = cluster.data(leader)
    # Killed as soon as the file system, or the broker's own word, shows the step.
    shows = {
        "marked": (folder / f"{topic}-0" / damage.DAMAGE_FILE).exists,
        "refused": lambda: (
            f"damaged replica refused partition={topic}-0" in log_of(cluster, leader)
        ),
        "set aside": lambda: any(folder.glob(f"{topic}-0.*-stray")),
    }[step]
    command = [sys.executable, "-c", READER, cluster.bootstrap, topic]
    reader = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not shows():  # without a pause: the next step comes soon
            assert time.monotonic() < deadline, f"never {step}"
        cluster.kill(leader)
    finally:
        reader.kill()
        reader.wait(10)
    cluster.start_broker(leader)
    found, errors = read(cluster.bootstrap, topic)
    assert not errors
    assert [found[n] for n in range(COUNT)] == values()
    wait_healed(cluster, admin, topic, leader)
    logs = [cluster.log_bytes(b, f"{topic}-0") for b in cluster.ids]
    assert logs[0] == logs[1] == logs[2]


READER = """
import sys
from confluent_kafka import Consumer, TopicPartition
c = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "x", "log_level": 2})
c.assign([TopicPartition(sys.argv[2], 0, 0)])
while True:
    c.poll(0.1)
"""


def log_of(cluster, broker) -> str:
    return cluster.log(broker).read_text(errors="replace")


def test_f20_the_last_replica_goes_on_serving_what_is_whole(cluster, admin):
    topic = create_topic(admin, 1, 1, **SEGMENT)
    until(lambda: full(admin, topic, 1), 30, "it is led")
    fill(cluster, topic)
    leader = leader_of(admin, topic)
    cluster.terminate(leader)
    path = segments(cluster, leader, topic)[1]
    first = flip(path)
    batches = {h.base_offset: h.next_offset for _, h in iter_batches(memoryview(path.read_bytes()))}
    end = batches[first]
    cluster.start_broker(leader)
    until(lambda: full(admin, topic, 1), 30, "it is led")
    before, errors = read(cluster.bootstrap, topic, 0, first)
    assert [before[n] for n in range(first)] == values()[:first]
    assert not errors
    hole, errors = read(cluster.bootstrap, topic, first, end, after_error_s=3)
    assert not hole
    assert errors
    after, errors = read(cluster.bootstrap, topic, end, COUNT)
    assert [after[n] for n in range(end, COUNT)] == values()[end:]
    assert not errors
    assert leader_of(admin, topic) == leader
    said = re.findall(
        rf"damaged log goes on leading partition={topic}-0 unreadable=(\S+):",
        log_of(cluster, leader),
    )
    assert said == [f"{first}..{end - 1}"]
    mark = damage.decode((cluster.data(leader) / f"{topic}-0" / damage.DAMAGE_FILE).read_bytes())
    assert mark.ranges == ((first, end),)
