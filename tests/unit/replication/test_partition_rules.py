"""What a leader tells right after its election, and figures (PartitionTest, ReplicaManagerTest)."""

import pytest

from ottla.model.errors import ErrorCode, StorageError
from ottla.model.ids import TopicPartition

TP = TopicPartition("t", 0)


def test_the_latest_offset_is_not_told_before_it_is_known(wired):
    """KIP-207: until the watermark reaches its epoch a new leader's latest offset could go back."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a", "b")
        await c.settle()
        await c[1].stop()
        await c.produce(2, "ignored", acks=1)
        await c.controller.lead(2, isr=[1, 2], to=[2])
        await c.produce(2, "c", acks=1)

        async def latest(version):
            answer = await c[2].send(wired.list_offsets_request(-1), version)
            return answer.topics[0].partitions[0]

        log = c[2].log()
        log.high_watermark = 1  # as far as it had heard when it was elected
        assert (await latest(5)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await latest(4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        debugging = wired.list_offsets_request(-1, replica=-2)
        assert (await c[2].send(debugging, 5)).topics[0].partitions[0].error_code == 0
        log.high_watermark = log.log_end_offset
        assert (await latest(5)).offset == 3

    wired(scenario, brokers=2, min_insync_replicas=1)


def test_partitions_without_all_replicas_in_sync_are_counted_where_they_are_led(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)

        def counted():
            return [c[b].replicas.statistics()["under_replicated"] for b in (1, 2)]

        assert counted() == [0, 0]
        await c.controller.lead(1, isr=[1])
        assert counted() == [1, 0], "a follower does not count it a second time"
        await c.until(lambda: counted() == [0, 0])

    wired(scenario, brokers=2, min_insync_replicas=1)


@pytest.mark.parametrize("epoch", [-2, -1, 0, 1])
@pytest.mark.parametrize("delete", [False, True])
def test_stop_replica_by_leader_epoch(wired, epoch, delete):
    """-2 (a deletion) and -1 (an old controller) always count, else what is not older."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(1)
        answer = await c.controller.stop_replica(2, delete=delete, leader_epoch=epoch)
        stale = epoch == 0
        expected = ErrorCode.FENCED_LEADER_EPOCH if stale else ErrorCode.NONE
        assert answer.partition_errors[0].error_code == expected
        assert (c[2].log() is None) == (delete and not stale)
        assert (TP in c[2].replicas.fetchers._where) == stale

    wired(scenario, brokers=2)


def test_a_disk_that_fails_while_a_replica_is_deleted(wired, monkeypatch):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)

        def broken(tp):
            raise StorageError(f"cannot rename {tp}")

        monkeypatch.setattr(c[2].logs, "delete_stray_folder", broken)
        answer = await c.controller.stop_replica(2, delete=True)
        assert answer.partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert TP in c[2].replicas.offline
        again = await c.controller.stop_replica(2, delete=True)
        assert again.partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    wired(scenario, brokers=2)


def test_a_partition_that_is_not_here_is_stopped_without_a_word(wired):
    async def scenario(c):
        for delete in (False, True):
            answer = await c.controller.stop_replica(2, delete=delete, index=7)
            assert answer.partition_errors[0].error_code == ErrorCode.NONE

    wired(scenario, brokers=2)
