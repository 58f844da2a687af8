"""AlterReplicaLogDirs: where replicas are to lie."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.wire.messages.create_topics import CreateTopicsRequest

pytestmark = pytest.mark.timeout(60)

ONE, TWO = "/data-1", "/data-2"


def create(scene, name, partitions):
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1
    )
    assert scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
    logs = scene.brokers["b1"].logs
    scene.wait(lambda: logs.get(TopicPartition(name, partitions - 1)) is not None)


def place(scene, path, name, *partitions):
    r = AlterReplicaLogDirsRequest
    topic = r.AlterReplicaLogDirTopic(name=name, partitions=list(partitions))
    answer = scene.ask(1, r(dirs=[r.AlterReplicaLogDir(path=path, topics=[topic])]), 2)
    (result,) = answer.results
    assert result.topic_name == name
    return [p.error_code for p in result.partitions]


def test_a_replica_is_created_where_it_was_asked_for(scene):
    logs = scene.up(1, log_dirs=f"{ONE},{TWO}").logs
    # By itself each of them would lie in the emptier folder, so: in turn.
    codes = place(scene, TWO, "t", 0, 1, 2)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    create(scene, "t", 3)
    assert {log.dir.rpartition("/")[0] for log in logs.logs()} == {TWO}
    assert place(scene, TWO, "t", 0, 2) == [ErrorCode.NONE] * 2
    assert place(scene, ONE, "t", 1) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert place(scene, "/elsewhere", "t", 1) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert place(scene, ONE, "t" * 249, 0) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    create(scene, "u", 2)
    assert {log.dir.rpartition("/")[0] for log in logs.logs() if log.tp.topic == "u"} == {ONE}
