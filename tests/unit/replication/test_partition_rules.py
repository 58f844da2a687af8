"""A leader's offsets right after its election, and figures (PartitionTest, ReplicaManagerTest)."""

import copy
import errno

import pytest

from ottla.model.errors import ErrorCode, StorageError
from ottla.model.ids import TopicPartition

TP = TopicPartition("t", 0)


def test_the_latest_offset_is_an_error_before_it_is_known(wired):
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


@pytest.mark.parametrize("leaving", [False, True])
def test_r14_a_follower_that_was_stopped_follows_again_when_it_is_named_in_the_same_epoch(
    wired, leaving
):
    """Found by the simulator (seed 30000188): after it, a damaged replica was never in sync again.

    Its refusal of a first LeaderAndIsr made the controller stop it, after a second one had had it
    copied anew; a third one, in the same epoch, was taken for old.
    """

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.stop_replica(2, delete=False)
        await c.produce(1, "a", acks=1)
        await c.settle()
        assert c[2].log().log_end_offset == 0
        c[2].replicas.leaving = leaving
        named = c.controller.states["t", 0]
        await c.controller.tell(named, [2])
        assert (TP in c[2].replicas.fetchers._where) == (not leaving)
        if not leaving:
            await c.until(lambda: c[2].log().log_end_offset == 1)
            again = await c.controller.tell(named, [2])
            (told,) = again[2].topics[0].partition_errors
            assert told.error_code == ErrorCode.STALE_CONTROLLER_EPOCH, "nothing new"

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


def test_f18_a_disk_that_fails_while_a_folder_without_a_log_is_deleted(wired, monkeypatch):
    """C5: an OSError of the disk is a response, not a closed connection; the log dir is offline."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.stop_replica(2, delete=True)
        c[2].logs._files.make_dirs(f"{c[2].logs.live_dirs[0]}/t-0")

        def broken(_source, _target):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(c[2].logs._files, "rename", broken)
        answer = await c.controller.stop_replica(2, delete=True)
        assert answer.partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not c[2].logs.live_dirs

    wired(scenario, brokers=2)


def codes_of(answer):
    return {e.error_code for topic in answer.topics for e in topic.partition_errors}


def test_f45_a_replica_that_lacks_a_descriptor_is_not_offline(wired, monkeypatch):
    """KAFKA_STORAGE_ERROR means a dead log dir to the controller: it never sends again."""

    async def scenario(c):
        files = c[1].logs._files
        opening = files.open

        def none_left(path, **keywords):
            raise OSError(errno.EMFILE, "Too many open files", path)

        monkeypatch.setattr(files, "open", none_left)
        answers = await c.controller.lead(1, replicas=[1, 2], new=True)
        assert codes_of(answers[1]) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert not c[1].logs.offline_dirs
        monkeypatch.setattr(files, "open", opening)
        answers = await c.controller.tell(c.controller.states["t", 0])
        assert codes_of(answers[1]) == {ErrorCode.NONE}
        assert c[1].partition().state.is_leader

    wired(scenario, brokers=2)


def test_c5_a_bug_at_one_partition_costs_only_that_one(wired, monkeypatch):
    async def scenario(c):
        create, stop = c[1].logs.get_or_create, c[1].logs.delete_stray_folder

        def broken(tp, *rest):
            if tp.partition == 0:
                raise ZeroDivisionError
            return (create if rest else stop)(tp, *rest)

        monkeypatch.setattr(c[1].logs, "get_or_create", broken)
        monkeypatch.setattr(c[1].logs, "delete_stray_folder", broken)
        for index, code in enumerate((ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE)):
            answers = await c.controller.lead(1, replicas=[1], index=index, new=True)
            assert answers[1].topics[0].partition_errors[0].error_code == code
            stopped = await c.controller.stop_replica(1, delete=True, index=index)
            assert stopped.partition_errors[0].error_code == code

    wired(scenario, brokers=1)


def test_a_partition_that_is_not_here_is_stopped_without_a_word(wired):
    async def scenario(c):
        for delete in (False, True):
            answer = await c.controller.stop_replica(2, delete=delete, index=7)
            assert answer.partition_errors[0].error_code == ErrorCode.NONE

    wired(scenario, brokers=2)


async def told(c, broker, topic_id=None, **changes):
    """Send one broker a state that differs in some fields from the last one; return the error."""
    state = copy.copy(c.controller.states["t", 0])
    for name, value in changes.items():
        setattr(state, name, value)
    extra = {} if topic_id is None else {"topic_id": topic_id}
    answers = await c.controller.tell(state, [broker], **extra)
    return answers[broker].topics[0].partition_errors[0].error_code


@pytest.mark.parametrize("broker", [1, 2], ids=["leader", "follower"])
def test_an_older_partition_epoch_changes_nothing(wired, broker):
    """A higher leader epoch with an older partition epoch comes from a state already overtaken."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(1)
        partition = c[broker].partition()
        before = (
            partition.state.leader_epoch,
            partition.state.partition_epoch,
            partition.state.replicas,
        )
        code = await told(c, broker, leader_epoch=9, partition_epoch=0, replicas=[1, 2, 3])
        assert code == ErrorCode.NONE
        found = (
            partition.state.leader_epoch,
            partition.state.partition_epoch,
            partition.state.replicas,
        )
        assert found == before

    wired(scenario, brokers=2)


def test_the_same_epoch_again_does_not_begin_an_epoch_anew(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a", "b")
        partition = c[1].partition()
        follower = partition.state.followers[2]
        assert partition.state.epoch_start == 0
        code = await told(c, 1, partition_epoch=5, isr=[1])
        assert code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert partition.state.epoch_start == 0
        assert partition.state.followers[2] is follower
        assert partition.state.isr.committed == (1, 2)

    wired(scenario, brokers=2)


def test_epochs_are_checked_by_followers_too(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(1)
        await c.produce(1, "a")
        await c.settle()
        for epoch, code in (
            (0, ErrorCode.FENCED_LEADER_EPOCH),
            (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (1, ErrorCode.NONE),
        ):
            answer = await c[2].send(wired.fetch_request(0, epoch=epoch), 17)
            assert answer.responses[0].partitions[0].error_code == code
        answer = await c[2].send(wired.fetch_request(0, epoch=1, replica=3), 17)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    wired(scenario, brokers=2)


def test_a_topic_gets_its_id_after_its_log(wired):
    """A controller of before 2.8 named no id; its successor does: in memory and in the file."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        nothing = bytes(16)
        await told(c, 1, nothing, leader_epoch=1, partition_epoch=1)
        log = c[1].log()
        log.id_file.topic_id = nothing
        c[1].partition().state.topic_id = nothing
        code = await told(c, 1, wired.topic_id, leader_epoch=1, partition_epoch=1)
        assert code == ErrorCode.NONE
        assert (c[1].partition().state.topic_id, log.topic_id) == (wired.topic_id, wired.topic_id)

    wired(scenario, brokers=2)


def test_a_new_epoch_of_the_same_leader_starts_the_fetcher_over(wired):
    """An update between was missed: the leader may have been another, and histories may differ."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        await c.settle()
        before = c[2].replicas.fetchers._where[TP].states[TP]
        await c.controller.lead(2, to=[])  # nobody heard of this one
        await c.controller.lead(1)
        after = c[2].replicas.fetchers._where[TP].states[TP]
        assert after is not before
        assert after.leader_epoch == 2
        await c.produce(1, "b")
        await c.until(lambda: c[2].log().log_end_offset == 2)

    wired(scenario, brokers=2)
