"""F20 on whole simulated brokers, with our controller: a bit flips, brokers die meanwhile."""

import random

import pytest

from ottla.log.damage import DAMAGE_FILE
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.sim.world import Simulation
from ottla.wire.messages.records import FetchRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import iter_batches, iter_records

from .conftest import FOLDER, Scene

TP = TopicPartition("t", 0)
COUNT = 40
BROKERS = (1, 2, 3)


def create(scene, config):
    r = CreateTopicsRequest
    topic = r.CreatableTopic(
        name=TP.topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[r.CreatableReplicaAssignment(partition_index=0, broker_ids=list(BROKERS))],
        configs=[r.CreatableTopicConfig(name=k, value=v) for k, v in config.items()],
    )
    answer = scene.ask(1, r(topics=[topic], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer
    scene.wait(lambda: all(TP in b.services.replicas.partitions for b in scene.brokers.values()))


def state(scene):
    """Return leader and ISR by the last metadata of the running brokers."""
    known = [b.services.metadata.partition(*TP) for b in scene.brokers.values()]
    return max((p for p in known if p is not None), key=lambda p: p.leader_epoch, default=None)


def disk(scene, number):
    return scene.simulation.node(f"b{number}").disk


def files(scene, number, folder=f"{FOLDER}/{TP}"):
    return sorted(
        p for p in disk(scene, number).inodes if p.startswith(f"{folder}/") and p.endswith(".log")
    )


def log_bytes(scene, number):
    return b"".join(bytes(disk(scene, number).inodes[p].data) for p in files(scene, number))


def left_over(scene, number):
    return [p for p in disk(scene, number).inodes if "-stray/" in p or p.endswith(DAMAGE_FILE)]


def flip(scene, number, rng):
    """Flip a bit under the checksum of a batch in a closed segment; the log is read from files."""
    path = rng.choice(files(scene, number)[:-1])
    data = bytes(disk(scene, number).inodes[path].data)
    position, header = rng.choice(list(iter_batches(memoryview(data))))
    disk(scene, number).flip_bit(path, position + rng.randrange(61, header.size), rng.randrange(8))
    for log in scene.brokers[f"b{number}"].logs.logs():
        log.local.tail.clear()


def fetch(scene, number, offset):
    request = FetchRequest(
        session_epoch=-1,
        max_bytes=1 << 20,
        min_bytes=1,
        topics=[
            FetchRequest.FetchTopic(
                topic=TP.topic,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=0, fetch_offset=offset, partition_max_bytes=300
                    )
                ],
            )
        ],
    )
    return scene.ask(number, request, 11).responses[0].partitions[0]


def consume(scene, end=COUNT):
    """Read all as a consumer does that finds the leader after each error."""
    found = {}
    offset = 0
    seen = set()
    for _ in range(1000):
        if offset >= end:
            return found, seen
        known = state(scene)
        if known is None or known.leader < 0 or not scene.heard(f"b{known.leader}"):
            scene.simulation.run_for(0.1)
            continue
        data = fetch(scene, known.leader, offset)
        seen.add(ErrorCode(data.error_code))
        if data.error_code or not data.records:
            scene.simulation.run_for(0.1)
            continue
        records = memoryview(data.records)
        for position, header in iter_batches(records):
            for record in iter_records(records[position : position + header.size]):
                found[record.offset] = bytes(record.value)
            offset = header.next_offset
    raise AssertionError(f"nobody serves offset {offset}: {state(scene)} {seen}")


def whole(scene):
    known = state(scene)
    return (
        len(scene.brokers) == len(BROKERS)
        and known is not None
        and sorted(known.isr) == list(BROKERS)
        and not any(left_over(scene, n) for n in BROKERS)
        and len({log_bytes(scene, n) for n in BROKERS}) == 1
    )


@pytest.mark.parametrize("seed", range(12))
def test_f20_no_record_is_lost_however_brokers_die_meanwhile(seed):
    rng = random.Random(seed)
    with Simulation(seed) as simulation:
        scene = Scene(simulation)
        for number in BROKERS:
            scene.up(number)
        create(scene, {"segment.bytes": "700", "index.interval.bytes": "100"})
        for _ in range(COUNT // 2):
            scene.produce(TP.topic, 2, size=20)
        scene.wait(lambda: sorted(state(scene).isr) == list(BROKERS))
        simulation.run_for(2)
        good = log_bytes(scene, 1)
        # One replica, so that the others have everything; leader or follower.
        victim = rng.choice(BROKERS)
        flip(scene, victim, rng)
        node = simulation.node(f"b{victim}")
        for _ in range(rng.randrange(3)):
            # A consumer reads from the victim, whatever its state; it dies at a drawn moment.
            offset = rng.randrange(COUNT)
            if scene.heard(f"b{victim}"):
                fetch(scene, victim, offset)
            simulation.run_for(rng.random() ** 3 * 3)
            node.crash(power_loss=rng.random() < 0.5)
            scene.up(victim)
        found, seen = consume(scene)
        assert sorted(found) == list(range(COUNT))
        assert ErrorCode.CORRUPT_MESSAGE not in seen
        # A consumer of each replica finds damage that was not read yet.
        for number in BROKERS:
            for log in scene.brokers[f"b{number}"].logs.logs():
                log.local.tail.clear()
            for offset in range(COUNT):
                fetch(scene, number, offset)
        scene.wait(lambda: whole(scene), within_s=120)
        assert log_bytes(scene, 1) == good
        assert not simulation.failures()
