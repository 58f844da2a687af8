"""AlterReplicaLogDirs on brokers in the simulated world: placed, moved, described."""

import pytest

from ottla.log import checkpoints
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.cluster import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from ottla.wire.messages.configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.records import DeleteRecordsRequest
from ottla.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest, ElectLeadersRequest
from support.logs import facts_of

pytestmark = pytest.mark.timeout(60)

ONE, TWO, THREE = "/data-1", "/data-2", "/data-3"
TP = TopicPartition("t", 0)
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER = 4
SLOW = 2000


def create(scene, name, partitions, replication_factor=1, **configs):
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor
    )
    topic.configs = [
        CreateTopicsRequest.CreatableTopicConfig(name=k.replace("_", "."), value=v)
        for k, v in configs.items()
    ]
    answer = scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer
    tps = [TopicPartition(name, p) for p in range(partitions)]
    scene.wait(
        lambda: all(
            sum(b.logs.get(tp) is not None for b in scene.brokers.values()) == replication_factor
            for tp in tps
        )
    )


def place(scene, path, name, *partitions, broker=1):
    r = AlterReplicaLogDirsRequest
    topic = r.AlterReplicaLogDirTopic(name=name, partitions=list(partitions))
    answer = scene.ask(broker, r(dirs=[r.AlterReplicaLogDir(path=path, topics=[topic])]), 2)
    (result,) = answer.results
    assert result.topic_name == name
    return [p.error_code for p in result.partitions]


def throttle(scene, rate, broker=1):
    r = IncrementalAlterConfigsRequest
    config = r.AlterableConfig(
        name=THROTTLE, config_operation=0 if rate else 1, value=str(rate) if rate else None
    )
    resource = r.AlterConfigsResource(
        resource_type=BROKER, resource_name=str(broker), configs=[config]
    )
    answer = scene.ask(broker, r(resources=[resource]), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE, answer
    quota = scene.brokers[f"b{broker}"].services.replicas.log_dirs_quota
    scene.wait(lambda: quota.bound == (rate or float("inf")))


def describe(scene, broker=1):
    """Return {(dir, partition, is future): lag} of the topic `t`."""
    answer = scene.ask(broker, DescribeLogDirsRequest(topics=None), 4)
    assert all(r.total_bytes >= r.usable_bytes > 0 for r in answer.results if not r.error_code)
    return {
        (r.log_dir, p.partition_index, p.is_future_key): p.offset_lag
        for r in answer.results
        for topic in r.topics
        for p in topic.partitions
    }


def folders(scene, broker=1):
    """Return the partition folders in each log dir."""
    found = {}
    for path in sorted(scene.simulation.node(f"b{broker}").disk.folders):
        parent, _, name = path.rpartition("/")
        if name.startswith("t-"):
            found.setdefault(parent, []).append(name)
    return found


class Dirs:
    """Broker 1 with its partition t-0 in `here`, and another dir, `there`."""

    def __init__(self, scene, dirs=(ONE, TWO), **configs):
        self.scene = scene
        scene.up(1, log_dirs=",".join(dirs))
        create(scene, "t", 1, **configs)
        self.here = self.log.parent_dir
        self.there, *self.elsewhere = (d for d in dirs if d != self.here)

    @property
    def broker(self):
        return self.scene.brokers["b1"]

    @property
    def log(self):
        return self.broker.logs.get(TP)

    @property
    def future(self):
        return self.broker.logs.future(TP)

    def fill(self, batches=40, size=1000):
        for _ in range(batches):
            self.scene.produce("t", 5, size=size)

    def begin_slowly(self):
        """Begin a move that will take minutes, and let it come some way."""
        throttle(self.scene, SLOW)
        assert place(self.scene, self.there, "t", 0) == [ErrorCode.NONE]
        self.scene.wait(lambda: self.future is not None and self.future.log_end_offset)
        assert self.future.log_end_offset < self.log.log_end_offset

    def kill_and_start(self):
        self.scene.simulation.node("b1").crash()
        self.scene.up(1, **self.scene.settings["b1"][1])

    def let_finish(self):
        throttle(self.scene, None)
        self.scene.wait(lambda: self.log.parent_dir == self.there)


@pytest.fixture
def dirs(scene):
    return Dirs(scene)


def test_a_replica_is_created_in_the_requested_log_dir(scene):
    logs = scene.up(1, log_dirs=f"{ONE},{TWO}").logs
    # By itself each of them would lie in the emptier dir, so: in turn.
    codes = place(scene, TWO, "t", 0, 1, 2)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    create(scene, "t", 3)
    assert {log.parent_dir for log in logs.logs()} == {TWO}
    assert place(scene, TWO, "t", 0, 2) == [ErrorCode.NONE] * 2
    assert logs.future(TP) is None, "they are there"
    assert place(scene, "/elsewhere", "t", 1) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert place(scene, ONE, "t" * 249, 0) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    create(scene, "u", 2)
    assert {log.parent_dir for log in logs.logs() if log.tp.topic == "u"} == {ONE}


def test_a_replica_in_use_moves_with_all_it_has(dirs):
    scene = dirs.scene
    for n in range(4):
        scene.produce("t", 5, size=500, producer_id=7, producer_epoch=1, base_sequence=5 * n)
    dirs.fill(3)
    log = dirs.log
    r = DeleteRecordsRequest
    part = r.DeleteRecordsPartition(partition_index=0, offset=7)
    scene.ask(1, r(topics=[r.DeleteRecordsTopic(name="t", partitions=[part])], timeout_ms=9000), 2)
    before = facts_of(log)
    assert before["range"][0] == 7, "in the midst of a batch"
    assert place(scene, dirs.there, "t", 0) == [ErrorCode.NONE]
    assert place(scene, dirs.there, "t", 0) == [ErrorCode.NONE], "it is on its way"
    scene.wait(lambda: dirs.log.parent_dir == dirs.there)
    assert dirs.log is not log
    assert dirs.log.dir == f"{dirs.there}/t-0"
    assert facts_of(dirs.log) == before
    assert dirs.future is None
    assert describe(scene) == {(dirs.there, 0, False): 0}
    scene.produce("t", 5, producer_id=7, producer_epoch=1, base_sequence=20)
    assert dirs.log.high_watermark == dirs.log.log_end_offset == before["range"][1] + 5
    (gone,) = folders(scene)[dirs.here]
    assert gone.endswith("-delete")
    scene.wait(lambda: dirs.here not in folders(scene), within_s=90)  # file.delete.delay.ms


def test_the_checkpoints_say_what_lies_where(dirs):
    scene = dirs.scene
    dirs.fill(5)
    disk = scene.simulation.node("b1").disk

    def said(folder, name):
        inode = disk.inodes.get(f"{folder}/{name}")
        return {} if inode is None else checkpoints.decode_offsets(bytes(inode.data))

    scene.wait(lambda: said(dirs.here, checkpoints.HIGH_WATERMARKS))
    place(scene, dirs.there, "t", 0)
    scene.wait(lambda: dirs.log.parent_dir == dirs.there)
    moves = dirs.broker.services.replicas.moves
    scene.wait(lambda: not moves._unwritten)
    scene.simulation.run_for(0.1)
    end = dirs.log.log_end_offset
    assert said(dirs.here, checkpoints.HIGH_WATERMARKS) == {}
    assert said(dirs.there, checkpoints.HIGH_WATERMARKS) == {TP: end}
    assert said(dirs.here, checkpoints.RECOVERY_POINTS) == {}
    assert TP in said(dirs.there, checkpoints.RECOVERY_POINTS)


def test_a_throttled_move_is_shown_and_survives_kill_9(dirs):
    scene = dirs.scene
    dirs.fill(40)  # 200 kB
    dirs.begin_slowly()
    scene.simulation.run_for(5)
    lag = dirs.log.log_end_offset - dirs.future.log_end_offset
    assert describe(scene) == {(dirs.here, 0, False): 0, (dirs.there, 0, True): lag}
    copied = dirs.broker.services.replicas.moves.copied_bytes_total
    assert 0 < copied < 60_000, "one slice may overshoot"
    assert dirs.broker.statistics()["replicas"]["log_dir_moves"]["moving"] == 1
    (name,) = folders(scene)[dirs.there]
    assert name.startswith("t-0.")
    assert name.endswith("-future")
    came, before = dirs.future.log_end_offset, facts_of(dirs.log)["records"]
    dirs.kill_and_start()
    assert dirs.future.log_end_offset == came
    scene.wait(lambda: dirs.broker.services.replicas.moves.statistics()["moving"])
    assert folders(scene)[dirs.there] == [name]
    dirs.let_finish()
    assert facts_of(dirs.log)["records"] == before
    assert dirs.broker.services.replicas.moves.copied_bytes_total < 200_000, "not from the start"


def test_the_dir_it_lies_in_cancels_a_move(dirs):
    scene = dirs.scene
    dirs.fill()
    dirs.begin_slowly()
    before = facts_of(dirs.log)
    assert place(scene, dirs.here, "t", 0) == [ErrorCode.NONE]
    assert dirs.future is None
    assert describe(scene) == {(dirs.here, 0, False): 0}
    throttle(scene, None)
    scene.simulation.run_for(5)
    assert facts_of(dirs.log) == before
    (gone,) = folders(scene)[dirs.there]
    assert gone.endswith("-delete")
    place(scene, dirs.there, "t", 0)
    scene.wait(lambda: dirs.log.parent_dir == dirs.there)
    assert facts_of(dirs.log) == before


def test_a_move_is_sent_elsewhere(scene):
    dirs = Dirs(scene, (ONE, TWO, THREE))
    dirs.fill()
    dirs.begin_slowly()
    (other,) = dirs.elsewhere
    assert place(scene, other, "t", 0) == [ErrorCode.NONE]
    assert {d for d, _, future in describe(scene) if future} == {other}
    throttle(scene, None)
    scene.wait(lambda: dirs.log.parent_dir == other)
    assert dirs.log.log_end_offset == 200


def test_a_topic_is_deleted_amid_a_move(dirs):
    scene = dirs.scene
    dirs.fill()
    dirs.begin_slowly()
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    assert scene.ask(1, request, 5).responses[0].error_code == ErrorCode.NONE
    scene.wait(lambda: dirs.log is None)
    assert dirs.future is None
    assert all(name.endswith("-delete") for names in folders(scene).values() for name in names)
    assert dirs.broker.services.replicas.moves.statistics()["moving"] == 0
    scene.wait(lambda: scene.znode("/admin/delete_topics/t") is None)
    create(scene, "t", 1)
    assert dirs.log.log_end_offset == 0
    assert dirs.future is None


def test_the_target_fails_amid_a_move(dirs):
    scene = dirs.scene
    dirs.fill()
    dirs.begin_slowly()
    scene.simulation.node("b1").disk.fail(dirs.there, ("write",))
    throttle(scene, None)
    scene.wait(lambda: dirs.broker.logs.offline_dirs == [dirs.there])
    scene.produce("t", 5)
    assert dirs.log.parent_dir == dirs.here
    assert dirs.future is None
    assert dirs.broker.services.replicas.get(TP).future is None
    assert describe(scene) == {(dirs.here, 0, False): 0}
    assert place(scene, dirs.there, "t", 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert place(scene, dirs.here, "t", 0) == [ErrorCode.NONE]


def test_no_move_begins_while_a_dir_is_offline(scene):
    dirs = Dirs(scene, (ONE, TWO, THREE))
    (other,) = dirs.elsewhere
    scene.simulation.node("b1").disk.fail(other, ("write",))
    place(scene, other, "t", 0)
    scene.wait(lambda: dirs.broker.logs.offline_dirs == [other])
    # A future log of the partition may lie there.
    assert place(scene, dirs.there, "t", 0) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_the_source_fails_amid_a_move_which_goes_on_with_the_next_life(dirs):
    scene = dirs.scene
    dirs.fill()
    dirs.begin_slowly()
    disk = scene.simulation.node("b1").disk
    disk.fail(dirs.here, ("write", "read"))
    scene.wait(lambda: dirs.broker.logs.offline_dirs == [dirs.here])
    assert TP in dirs.broker.services.replicas.offline
    assert place(scene, dirs.there, "t", 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert describe(scene) == {(dirs.there, 0, True): -1}
    disk.mend()
    dirs.kill_and_start()
    dirs.let_finish()
    assert dirs.log.log_end_offset == 200


def test_leader_and_follower_move_under_load_while_leadership_changes(scene):
    for number in (1, 2):
        scene.up(number, log_dirs=f"{ONE},{TWO}", replica_lag_time_max_ms="5000")
    create(scene, "t", 1, replication_factor=2, segment_bytes="20000")
    brokers = [scene.brokers["b1"], scene.brokers["b2"]]
    for _ in range(20):
        scene.produce("t", 5, size=1000)
    homes = [broker.logs.get(TP).parent_dir for broker in brokers]
    targets = [TWO if home == ONE else ONE for home in homes]
    for number, target in zip((1, 2), targets, strict=True):
        throttle(scene, 40_000, number)
        assert place(scene, target, "t", 0, broker=number) == [ErrorCode.NONE]
    known = brokers[0].services.metadata
    first = known.partition("t", 0).leader
    rounds = 0
    while any(b.logs.get(TP).parent_dir == h for b, h in zip(brokers, homes, strict=True)):
        scene.produce("t", 5, size=1000)
        rounds += 1
        if rounds == 3:
            scene.stop(first)
            scene.wait(lambda: known.partition("t", 0) and _led_by_another(scene, first))
        if rounds == 6:
            scene.up(first, **scene.settings[f"b{first}"][1])
            brokers[first - 1] = scene.brokers[f"b{first}"]
        scene.simulation.run_for(0.2)
        assert rounds < 200
    scene.wait(lambda: len({b.logs.get(TP).high_watermark for b in brokers}) == 1)
    assert rounds > 6, "it was amid the moves"
    one, two = (facts_of(b.logs.get(TP)) for b in brokers)
    assert one["records"] == two["records"]
    assert len(one["records"]) == 100 + 5 * rounds
    r = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
    scene.ask(2, ElectLeadersRequest(election_type=0, topic_partitions=[r], timeout_ms=9000), 2)
    scene.produce("t", 5)


def _led_by_another(scene, first):
    other = scene.brokers[f"b{3 - first}"]
    return other.services.metadata.partition("t", 0).leader == 3 - first


def test_a_compacted_topic_is_cleaned_after_its_move_not_during_it(scene):
    scene.up(1, log_dirs=f"{ONE},{TWO}", log_cleaner_backoff_ms="500")
    create(scene, "t", 1, cleanup_policy="compact", segment_bytes="20000",
           min_cleanable_dirty_ratio="0.01")  # fmt: skip
    logs = scene.brokers["b1"].logs
    home = logs.get(TP).parent_dir
    throttle(scene, SLOW)
    for _ in range(20):
        scene.produce("t", 20, size=900, key=b"k")
    assert place(scene, TWO if home == ONE else ONE, "t", 0) == [ErrorCode.NONE]
    moving = logs.get(TP).cleaned_offset
    scene.simulation.run_for(10)
    assert logs.future(TP) is not None
    assert logs.get(TP).cleaned_offset == moving
    throttle(scene, None)
    scene.wait(lambda: logs.get(TP).parent_dir != home)
    scene.wait(lambda: logs.get(TP).cleaned_offset > moving)
