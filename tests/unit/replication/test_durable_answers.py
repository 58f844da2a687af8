"""What a controller is told is done survives a power loss: topic ids, deletions, strays (R15)."""

import random

import pytest

from ottla.log.lives import Stated
from ottla.log.stray_folders import STRAY_NOTE, decode
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition

TP = TopicPartition("t", 0)
NEW = bytes(15) + b"\x09"
HOUR_MS = 3600 * 1000


class Everything(random.Random):
    """Has a power loss undo every operation on folders that was not synced."""

    def random(self):
        return 0.0

    def randint(self, _least, most):
        return most


async def power_loss(c, broker):
    """The machine of a broker loses power: what was not synced is gone."""
    node = c[broker]
    node.disk.power_loss(Everything(1))
    node.sync_disk = lambda: None
    await node.stop(clean=False)
    await node.start()


def code_of(answer):
    return answer.topics[0].partition_errors[0].error_code


def strays(c, broker):
    return sorted(n for n in c[broker].disk.children("/data") if n.endswith("-stray"))


def test_r15_a_topic_id_is_durable_when_leader_and_isr_is_answered(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1], new=True)
        topic_id = c[1].log().topic_id
        assert topic_id != ZERO_UUID
        await power_loss(c, 1)
        assert c[1].log().topic_id == topic_id

    wired(scenario, brokers=1)


def test_r15_ids_of_many_partitions_are_durable_by_one_sync(wired):
    async def scenario(c):
        syncs = []
        sync_tree = c[1].files.sync_tree
        c[1].files.sync_tree = lambda path: (syncs.append(path), sync_tree(path))
        states = []
        for index in range(40):
            await c.controller.lead(1, replicas=[1], index=index, to=[], new=True)
            states.append(c.controller.states["t", index])
        await c.controller.tell_all(1, states)
        assert len(syncs) == 1
        await power_loss(c, 1)
        ids = {c[1].logs.get(TopicPartition("t", index)).topic_id for index in range(40)}
        assert ZERO_UUID not in ids
        assert len(ids) == 1

    wired(scenario, brokers=1)


def test_r15_an_id_read_after_a_crash_is_durable_before_the_log_is_led(wired):
    """Only the process died: what it wrote may be in memory alone (seed 779600176)."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1], new=True)
        await c.produce(1, "a")
        await c[1].stop(clean=False)
        await c[1].start()
        log = c[1].log()
        assert not log.topic_id_durable
        await c.controller.lead(1)
        assert log.topic_id_durable

    wired(scenario, brokers=1)


def test_r15_a_deletion_is_durable_when_stop_replica_is_answered(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1], new=True)
        await c.produce(1, "of a deleted topic")
        c[1].sync_disk()
        await c.controller.stop_replica(1, delete=True)
        await power_loss(c, 1)
        assert c[1].log() is None

    wired(scenario, brokers=1)


def test_a_deletion_that_cannot_be_made_durable_is_answered_as_failed(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1], new=True)

        def broken(path):
            raise OSError(5, "Input/output error", path)

        c[1].files.fsync_dir = broken
        answer = await c.controller.stop_replica(1, delete=True)
        assert answer.partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    wired(scenario, brokers=1)


def test_r15_a_new_partition_does_not_take_records_of_which_nothing_says_whose(wired):
    """A power loss brought a deleted folder back, and its partition.metadata was torn."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1], new=True)
        await c.produce(1, "of a deleted topic")
        await c[1].stop()
        c[1].path("t-0/partition.metadata").write_bytes(b"")
        await c[1].start()
        state = c.controller.states["t", 0]
        state.leader_epoch, state.is_new = 0, True
        assert code_of((await c.controller.tell(state, topic_id=NEW))[1]) == ErrorCode.NONE
        assert c[1].log().log_end_offset == 0
        assert c[1].log().topic_id == NEW
        (name,) = strays(c, 1)
        note = decode(c[1].path(f"{name}/{STRAY_NOTE}").read_bytes())
        assert note.tp == TP

    wired(scenario, brokers=1)


def test_a_log_without_an_id_is_taken_where_the_partition_is_not_new(wired):
    """As Kafka takes logs of a time before topic ids."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1], new=True)
        await c.produce(1, "a")
        await c[1].stop()
        c[1].path("t-0/partition.metadata").write_bytes(b"")
        await c[1].start()
        await c.controller.lead(1)
        assert c[1].log().log_end_offset == 1
        assert strays(c, 1) == []

    wired(scenario, brokers=1)


async def put_aside(c):
    await c.controller.lead(1, replicas=[1], new=True)
    await c.produce(1, "old")
    state = c.controller.states["t", 0]
    state.leader_epoch = 0
    c.topics["t"] = NEW
    assert code_of((await c.controller.tell(state, topic_id=NEW))[1]) == ErrorCode.NONE
    (name,) = strays(c, 1)
    return name


def test_r21_a_stray_is_kept_whole_and_durable(wired):
    async def scenario(c):
        name = await put_aside(c)
        await power_loss(c, 1)
        assert strays(c, 1) == [name]
        assert b"old" in c[1].path(f"{name}/{0:020}.log").read_bytes()
        assert c[1].log().log_end_offset == 0
        assert list(c[1].logs.leaving.strays.folders) == [f"/data/{name}"]

    wired(scenario, brokers=1)


@pytest.mark.parametrize(
    ("retention_ms", "hours", "kept"),
    [(None, 7 * 24 - 1, True), (None, 7 * 24 + 1, False), ("-1", 10_000, True), ("0", 0, False)],
)
def test_r21_a_stray_is_removed_when_its_time_is_over(wired, retention_ms, hours, kept):
    async def scenario(c):
        await put_aside(c)
        for restart in (False, True):
            if restart:
                await c[1].stop()
                await c[1].start()
            c[1].logs.periodic(c[1].world.clock.wall_ms() + hours * HOUR_MS)
            assert bool(strays(c, 1)) == kept

    settings = {} if retention_ms is None else {"ottla.stray.retention.ms": retention_ms}
    wired(scenario, brokers=1, **settings)


def test_r21_a_stray_of_another_broker_or_a_torn_note_stays_for_ever(wired):
    async def scenario(c):
        name = await put_aside(c)
        await c[1].stop()
        c[1].path(f"{name}/{STRAY_NOTE}").write_bytes(b"partition=t-0\ntopic_id")
        await c[1].start()
        c[1].logs.periodic(10**15)
        assert strays(c, 1) == [name]

    wired(scenario, brokers=1)


def test_r21_no_stray_is_removed_after_zookeeper_went_back(wired):
    """What it forgot may be the last copy; also after restarts, when nothing looks wrong."""

    async def scenario(c):
        name = await put_aside(c)
        workers, lives = c[1].world.workers, c[1].logs.lives
        await lives.registered(workers, broker_epoch=9, zxid=9, controller_epoch=1, session=1)
        for _ in range(2):
            lives = c[1].logs.lives
            lives.compare(Stated("", 0, 5, 1))
            await lives.registered(workers, broker_epoch=5, zxid=5, controller_epoch=1, session=1)
            c[1].logs.periodic(10**15)
            assert strays(c, 1) == [name]
            await c[1].stop()
            await c[1].start()

    wired(scenario, brokers=1)
