"""All logs of a broker: start, stop, checkpoints, deletion."""

import asyncio
import json
import shutil

import pytest

from ottla.log import checkpoints
from ottla.log.checkpoints import CheckpointError, MetaProperties
from ottla.log.log_dir import parse_folder
from ottla.model.errors import ErrorCode, OttlaError, StartupError
from ottla.model.ids import ONE_UUID, TopicPartition
from support.logs import load_logs, stop_logs, write_high_watermarks, write_recovery_points

ID = bytes(range(16))


def remove_due(kit, manager):
    asyncio.run(manager.remove_due(kit.world.workers))


def tps(count):
    return [TopicPartition("topic", i) for i in range(count)]


def started(kit, *dirs, **properties):
    manager = kit.manager(*dirs, **properties)
    load_logs(manager, lambda _: kit.config())
    return manager


def written(kit, manager, count=3):
    for number, tp in enumerate(tps(count)):
        log = manager.get_or_create(tp, ID, is_new=True)
        kit.fill(log, number + 1)
        log.set_high_watermark(number)
    return manager


def test_everything_comes_back_after_a_clean_stop(kit):
    manager = written(kit, started(kit, "a", "b"))
    manager.write_meta(MetaProperties("cluster", 1))
    stop_logs(manager)
    for name in ("a", "b"):
        marker = kit.root / name / ".kafka_cleanshutdown"
        assert json.loads(marker.read_bytes()) == {"version": 0, "brokerEpoch": -1}
    manager = started(kit, "a", "b")
    assert manager.meta == MetaProperties("cluster", 1)
    assert manager.recovered_logs == 0
    assert sorted(log.tp for log in manager.logs()) == tps(3)
    for number, tp in enumerate(tps(3)):
        log = manager.get(tp)
        assert log.log_end_offset == log.recovery_point == number + 1
        assert log.high_watermark == number
        assert log.topic_id == ID
    assert not list(kit.root.glob("*/.kafka_cleanshutdown")), "gone before anything is loaded"


def test_everything_comes_back_after_kill_9(kit):
    manager = written(kit, started(kit))
    manager.get(tps(3)[2]).set_high_watermark(1)
    write_high_watermarks(manager)
    manager.abandon()
    manager = started(kit)
    assert manager.recovered_logs == 3
    assert [manager.get(tp).log_end_offset for tp in tps(3)] == [1, 2, 3]
    assert manager.get(tps(3)[2]).high_watermark == 1


def test_a_lock_keeps_a_second_broker_out(kit):
    manager = started(kit)
    with pytest.raises(StartupError, match="in use"):
        started(kit)
    stop_logs(manager)
    started(kit)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("version=0\nbroker.id=7\ncluster.id=x\n", "broker 7"),
        ("version=1\nnode.id=1\nbroker.id=1\ncluster.id=x\n", "KRaft"),
        ("version=one\nbroker.id=1\n", "meta.properties"),
        ("version=0\nbroker.id=one\n", "meta.properties"),
    ],
)
def test_foreign_folders_are_refused(kit, text, complaint):
    (kit.root / "data").mkdir()
    (kit.root / "data" / "meta.properties").write_text(text)
    with pytest.raises(StartupError, match=complaint):
        started(kit)


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (b"", b""),
        (bytes(512), b""),
        (b"#Sat Nov 21\n", b"#Sat Nov 21\n"),
        (b"version=0\ncluster.id=x\n", b"cluster.id=x\n"),
        (b"version=0\r\nbroker.id=1\r\n", b"broker.id=1\n"),
        (b"broker.id=1\ncluster.id=x\n", b"broker.id=1\ncluster.id=x\n"),
        (b"broker.id=1\ndirectory.id=abc\nmine=1\n", b"directory.id=abc\nmine=1\n"),
    ],
)
def test_what_meta_properties_does_not_say_is_completed(kit, data, kept):
    """As Kafka 3.9 does: see tests/compat/test_files_with_kafka.py."""
    (kit.root / "data").mkdir()
    path = kit.root / "data" / "meta.properties"
    path.write_bytes(data)
    manager = started(kit)
    manager.write_meta(MetaProperties("x", 1))
    assert checkpoints.decode_meta_properties(path.read_bytes()) == MetaProperties("x", 1)
    assert kept in path.read_bytes()


def test_two_dirs_of_different_clusters_are_refused(kit):
    for name, cluster in (("a", "x"), ("b", "y")):
        (kit.root / name).mkdir()
        (kit.root / name / "meta.properties").write_text(
            f"#Sat Nov 21\nversion=0\nbroker.id=1\ncluster.id={cluster}\n"
        )
    with pytest.raises(StartupError, match="another log dir"):
        started(kit, "a", "b")


def test_a_partition_in_two_dirs_is_refused(kit):
    for name in ("a", "b"):
        (kit.root / name / "topic-0").mkdir(parents=True)
    with pytest.raises(StartupError, match="two log dirs"):
        started(kit, "a", "b")


@pytest.mark.parametrize(
    "name", [checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS, checkpoints.LOG_STARTS]
)
@pytest.mark.parametrize("content", [None, b"", b"garbage\xff", b"0\n9\ntopic 0 1\n", b"7\n0\n"])
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_checkpoints_lose_no_record(kit, name, content, clean):
    manager = written(kit, started(kit))
    if clean:
        stop_logs(manager)
    else:
        write_recovery_points(manager)
        write_high_watermarks(manager)
        manager.abandon()
    path = kit.root / "data" / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    manager = started(kit)
    assert [manager.get(tp).log_end_offset for tp in tps(3)] == [1, 2, 3]
    for tp in tps(3):
        kit.everything(manager.get(tp))


def test_new_logs_go_where_there_are_fewest(kit):
    manager = started(kit, "a", "b", "c")
    for tp in tps(9):
        manager.get_or_create(tp, is_new=True)
    for name in "abc":
        assert len(list((kit.root / name).glob("topic-*"))) == 3


def test_another_topic_id_is_inconsistent(kit):
    manager = written(kit, started(kit))
    with pytest.raises(OttlaError) as error:
        manager.get_or_create(tps(1)[0], ONE_UUID)
    assert error.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert manager.get_or_create(tps(1)[0], ID) is manager.get(tps(1)[0])


def test_delete_renames_at_once_and_removes_later(kit):
    manager = written(kit, started(kit))
    tp = tps(1)[0]
    manager.delete(tp)
    assert manager.get(tp) is None
    [renamed] = (kit.root / "data").glob("topic-0.*-delete")
    assert len(renamed.name) == len("topic-0.") + 32 + len("-delete")
    log = manager.get_or_create(tp, ONE_UUID, is_new=True)
    assert log.log_end_offset == 0, "old data never under the new topic"
    remove_due(kit, manager)
    assert renamed.exists()
    kit.clock.advance(61)
    remove_due(kit, manager)
    assert not renamed.exists()
    stop_logs(manager)
    manager = started(kit)
    assert manager.get(tp).topic_id == ONE_UUID


def test_a_long_topic_name_still_makes_a_folder_name(kit):
    manager = started(kit)
    tp = TopicPartition("x" * 249, 0)
    manager.get_or_create(tp, is_new=True)
    manager.delete(tp)
    [renamed] = (kit.root / "data").glob("*-delete")
    assert len(renamed.name) == 255


def test_folders_left_to_delete_go_at_the_next_start(kit):
    manager = written(kit, started(kit))
    manager.delete(tps(1)[0])
    manager.abandon()
    manager = started(kit)
    remove_due(kit, manager)
    assert not list((kit.root / "data").glob("*-delete"))


def test_a_folder_without_a_log_may_be_removed_by_name(kit):
    manager = started(kit)
    (kit.root / "data" / "stray-3").mkdir()
    manager.delete_stray_folder(TopicPartition("stray", 3))
    assert not (kit.root / "data" / "stray-3").exists()


def test_other_folders_and_files_are_left_alone(kit):
    data = kit.root / "data"
    for name in ("lost+found", "topic-1.0123-future", "topic-x", "-"):
        (data / name).mkdir(parents=True)
    (data / "notes-1").write_text("a file")
    manager = started(kit)
    assert manager.logs() == []
    stop_logs(manager)
    assert (data / "lost+found").is_dir()


def test_recovery_points_move_only_with_a_flush(kit):
    manager = written(kit, started(kit))
    path = kit.root / "data" / checkpoints.RECOVERY_POINTS
    write_recovery_points(manager)
    points = checkpoints.decode_offsets(path.read_bytes())
    assert points == dict.fromkeys(tps(3), 0)
    flushed = asyncio.run(manager.flush_dirty(kit.world.workers, everything=True))
    assert flushed == 3
    asyncio.run(manager.write_recovery_points(kit.world.workers))
    points = checkpoints.decode_offsets(path.read_bytes())
    assert points == {tp: n + 1 for n, tp in enumerate(tps(3))}


def test_damage_is_counted_for_the_broker(kit):
    manager = flushed(kit, 2)
    assert manager.statistics()["corrupt_reads"] == 0
    log = manager.logs()[1]
    log.corrupt_reads += 2
    assert manager.statistics()["corrupt_reads"] == 2


def points_of(kit):
    path = kit.root / "data" / checkpoints.RECOVERY_POINTS
    return checkpoints.decode_offsets(path.read_bytes())


def flushed(kit, count):
    manager = written(kit, started(kit), count)
    asyncio.run(manager.flush_dirty(kit.world.workers, everything=True))
    write_recovery_points(manager)
    return manager


def test_many_truncations_cost_one_checkpoint_and_that_before_the_first_append(kit):
    manager = flushed(kit, 30)
    writes = []
    write = kit.files.write_durable
    kit.files.write_durable = lambda path, data: (writes.append(path), write(path, data))
    for log in manager.logs():
        log.truncate_to(0)
    assert writes == []
    for log in manager.logs():
        kit.fill(log, 1)
        assert points_of(kit) == dict.fromkeys(tps(30), 0)
    assert len(writes) == 1


def test_a_checkpoint_under_way_does_not_raise_a_point_again(kit):
    manager = flushed(kit, 3)
    log = manager.logs()[2]

    class Slow(type(kit.world.workers)):
        async def run(self, function, *args):
            if log.recovery_point == 3:
                log.truncate_to(1)
                kit.fill(log, 1)
            return await super().run(function, *args)

    asyncio.run(manager.write_recovery_points(Slow()))
    assert points_of(kit)[log.tp] == 1
    asyncio.run(manager.write_recovery_points(kit.world.workers))
    assert points_of(kit)[log.tp] == 1


def test_a_log_made_anew_does_not_inherit_a_recovery_point(kit):
    """The topic was deleted and created again: a crash must not trust what is not flushed yet."""
    manager = flushed(kit, 3)
    tp = tps(3)[2]
    assert points_of(kit)[tp] == 3
    manager.delete(tp)
    kit.fill(manager.get_or_create(tp, bytes(15) + b"2", is_new=True), 5)
    assert points_of(kit)[tp] == 0


def test_rolled_segments_are_flushed_in_the_background(kit):
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config(segment_bytes=300))
    log = manager.get_or_create(tps(1)[0], ID, is_new=True)
    kit.fill(log, 10)
    asyncio.run(manager.flush_dirty(kit.world.workers))
    assert log.recovery_point == log.local.active.base_offset > 0
    assert asyncio.run(manager.flush_dirty(kit.world.workers)) == 0


def test_small_files_of_many_logs_are_synced_together(kit):
    manager = started(kit)
    for tp in tps(30):
        manager.get_or_create(tp, ID, is_new=True)
        kit.fill(manager.get(tp), 1)
    kit.files.calls.clear()
    assert asyncio.run(manager.flush_dirty(kit.world.workers)) == 30
    assert kit.files.calls.count("sync_tree") == 1
    assert kit.files.calls.count("write_durable") == 0
    assert len(list((kit.root / "data").glob("*/leader-epoch-checkpoint"))) == 30
    assert manager.get(tps(1)[0]).recovery_point == 0, "no record was synced by its own file"


class DeletesMeanwhile:
    """Workers that begin late: topics are deleted before the disk is touched."""

    def __init__(self, manager, gone):
        self._manager = manager
        self._gone = gone

    async def run(self, function, *args):
        while self._gone:
            self._manager.delete(self._gone.pop())
        return function(*args)


@pytest.mark.parametrize("count", [3, 30], ids=["file by file", "by sync_tree"])
def test_a_log_deleted_while_it_is_flushed_takes_no_dir_offline(kit, count):
    manager = written(kit, started(kit), count)
    gone = [tps(count)[0], tps(count)[-1]]
    workers = DeletesMeanwhile(manager, list(gone))
    for tp in tps(count):
        manager.get(tp).flush()
        manager.get(tp).assign_epoch_start(7, manager.get(tp).log_end_offset)
    asyncio.run(manager.flush_dirty(workers))
    assert manager.offline_dirs == []
    assert [tp for tp in gone if manager.get(tp)] == []
    for tp in tps(count)[1:-1]:
        path = kit.root / "data" / str(tp) / checkpoints.LEADER_EPOCHS
        assert path.exists(), "the others' files were written all the same"


def test_a_folder_that_is_gone_while_its_log_is_not_is_a_bad_disk(kit):
    manager = written(kit, started(kit), 30)
    for tp in tps(30):
        manager.get(tp).flush()
        manager.get(tp).assign_epoch_start(7, manager.get(tp).log_end_offset)
    shutil.rmtree(kit.root / "data" / str(tps(30)[0]))
    asyncio.run(manager.flush_dirty(kit.world.workers))
    assert manager.offline_dirs == [str(kit.root / "data")]


def test_flush_ms(kit):
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config(flush_ms=5000))
    log = manager.get_or_create(tps(1)[0], ID, is_new=True)
    kit.fill(log, 2)
    asyncio.run(manager.flush_dirty(kit.world.workers))
    assert log.recovery_point == 0
    kit.clock.advance(6)
    asyncio.run(manager.flush_dirty(kit.world.workers))
    assert log.recovery_point == 2


def test_a_failed_flush_takes_the_dir_offline(kit):
    manager = written(kit, started(kit))
    kit.files.broken["fsync"] = OSError(5, "broken")
    asyncio.run(manager.flush_dirty(kit.world.workers, everything=True))
    assert manager.offline_dirs == [str(kit.root / "data")]
    stop_logs(manager)
    assert not (kit.root / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("count", [3, 30])
def test_a_flush_that_fails_with_anything_has_an_end(kit, count, caplog):
    """Its files are not known to be missing any more: the recovery point must not pass them."""
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config())
    logs = [manager.get_or_create(tp, ID, is_new=True) for tp in tps(count)]
    for log in logs:
        kit.fill(log, 2)
    real = kit.world.workers.run

    async def run(function, *args):
        raise MemoryError("no room")

    kit.world.workers.run = run
    asyncio.run(manager.flush_dirty(kit.world.workers, everything=True))
    assert "flush failed" in caplog.text
    assert manager.offline_dirs == [str(kit.root / "data")]
    kit.world.workers.run = real
    asyncio.run(manager.flush_dirty(kit.world.workers, everything=True))
    assert [log.recovery_point for log in logs] == [0] * len(logs)
    stop_logs(manager)
    assert not (kit.root / "data" / ".kafka_cleanshutdown").exists()


def test_log_starts_are_kept(kit):
    manager = written(kit, started(kit))
    log = manager.get(tps(3)[2])
    log.set_high_watermark(3)
    log.maybe_increment_log_start_offset(2)
    write_recovery_points(manager)
    path = kit.root / "data" / checkpoints.LOG_STARTS
    assert path.read_bytes() == b"0\n1\ntopic 2 2\n"
    manager.abandon()
    assert started(kit).get(tps(3)[2]).log_start_offset == 2


def test_periodic_tends_all_logs_in_slices(kit):
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config(segment_bytes=300, retention_bytes=300))
    for tp in tps(5):
        log = manager.get_or_create(tp, ID, is_new=True)
        kit.fill(log, 10)
        log.set_high_watermark(10)
    kit.clock.advance(400)
    manager.periodic(kit.clock.wall)
    assert all(log.log_start_offset > 0 for log in manager.logs())
    deleted = list((kit.root / "data").glob("*/0*.deleted"))
    assert deleted
    kit.clock.advance(400)
    remove_due(kit, manager)
    assert not [p for p in deleted if p.exists()]


@pytest.mark.parametrize(
    ("name", "tp"),
    [
        ("topic-0", TopicPartition("topic", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("topic", None),
        ("-1", None),
        ("topic-", None),
        ("topic-x", None),
        ("topic-٣", None),
    ],
)
def test_folder_names(name, tp):
    assert parse_folder(name) == tp


# The files' texts ----------------------------------------------------------------------------


def test_checkpoint_texts_are_kafkas():
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b.c", 12): 2**40}
    data = checkpoints.encode_offsets(offsets)
    assert data == b"0\n2\na 0 5\nb.c 12 1099511627776\n"
    assert checkpoints.decode_offsets(data) == offsets
    assert checkpoints.decode_offsets(b"") == {}
    data = checkpoints.encode_epochs([(0, 0), (3, 17)])
    assert data == b"0\n2\n0 0\n3 17\n"
    assert checkpoints.decode_epochs(data) == [(0, 0), (3, 17)]
    data = checkpoints.encode_partition_metadata(ONE_UUID)
    assert data == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert checkpoints.decode_partition_metadata(data + b"\n") == ONE_UUID
    meta = MetaProperties("c", 3)
    assert checkpoints.decode_meta_properties(checkpoints.encode_meta_properties(meta)) == meta


@pytest.mark.parametrize("data", [b"1\n0\n", b"0\n1\n", b"0\n1\na b\n", b"x", b"0\n1\na 0 x\n"])
def test_broken_checkpoints(data):
    with pytest.raises(CheckpointError):
        checkpoints.decode_offsets(data)


@pytest.mark.parametrize("data", [b"", b"0\n2\n2 0\n1 5\n", b"0\n2\n1 5\n2 5\n", b"0\n1\n-1 0\n"])
def test_broken_epochs(data):
    with pytest.raises(CheckpointError):
        checkpoints.decode_epochs(data)


@pytest.mark.parametrize("data", [b"", b"version: 1\ntopic_id: x", b"version: 0\ntopic_id: x"])
def test_broken_partition_metadata(data):
    with pytest.raises(CheckpointError):
        checkpoints.decode_partition_metadata(data)
