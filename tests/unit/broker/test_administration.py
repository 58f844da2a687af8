"""Requests of administrators to a simulated cluster: topics, partitions, settings, leadership."""

import pytest

from ottla.broker.services import BrokerState
from ottla.model.errors import ErrorCode
from ottla.wire.messages.cluster import DescribeLogDirsRequest, MetadataRequest
from ottla.wire.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.records import DeleteRecordsRequest
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from ottla.zookeeper.errors import ConnectionLossError, SessionExpiredError

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC = 2


@pytest.fixture
def cluster(scene):
    """Two brokers, the first of them the controller, and topic `t`: 0 on 1,2 and 1 on 2,1."""
    scene.up(1)
    scene.up(2)
    create(scene, "t", {0: (1, 2), 1: (2, 1)})
    return scene


def create(scene, name, assignments, **configs):
    entry = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=p, broker_ids=list(b))
            for p, b in assignments.items()
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=k.replace("_", "."), value=v)
            for k, v in configs.items()
        ],
    )
    answer = scene.ask(1, CreateTopicsRequest(topics=[entry], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer
    live = [
        broker.services for broker in scene.brokers.values() if broker.state is BrokerState.RUNNING
    ]
    scene.wait(lambda: all(s.metadata.partition(name, min(assignments)) for s in live))


def partition(scene, topic, index, broker=1):
    return scene.brokers[f"b{broker}"].services.metadata.partition(topic, index)


def more(scene, name, count, assignments=None, broker=1, **fields):
    entry = CreatePartitionsRequest.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [
            CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=a) for a in assignments
        ],
    )
    fields.setdefault("timeout_ms", 10_000)
    request = CreatePartitionsRequest(topics=[entry], **fields)
    return scene.ask(broker, request, 3).results[0].error_code


def test_more_partitions(cluster):
    assert more(cluster, "t", 4) == ErrorCode.NONE
    states = [partition(cluster, "t", p) for p in range(4)]
    assert [s.replicas for s in states[:2]] == [(1, 2), (2, 1)]
    assert all(s.leader > 0 and len(s.replicas) == 2 for s in states)
    assert more(cluster, "t", 5, [[2, 1]]) == ErrorCode.NONE
    assert partition(cluster, "t", 4).replicas == (2, 1)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 2**31 - 1, None, ErrorCode.POLICY_VIOLATION),
        ("absent", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_are_refused(cluster, name, count, assignments, code):
    assert more(cluster, name, count, assignments) == code
    assert partition(cluster, "t", 2) is None


def test_partitions_only_checked_and_only_by_the_controller(cluster):
    assert more(cluster, "t", 3, validate_only=True) == ErrorCode.NONE
    assert partition(cluster, "t", 2) is None
    assert more(cluster, "t", 3, broker=2) == ErrorCode.NOT_CONTROLLER


def settings(scene, topic):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    result = scene.ask(1, DescribeConfigsRequest(resources=[resource]), 4).results[0]
    return {c.name: c.value for c in result.configs if c.config_source == 1}


def change(scene, topic, *operations, kind=TOPIC, broker=2, **fields):
    entry = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=topic,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=name, config_operation=operation, value=value
            )
            for name, operation, value in operations
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[entry], **fields)
    return scene.ask(broker, request, 1).responses[0].error_code


def test_settings_change_one_by_one_and_reach_the_logs(cluster):
    assert change(cluster, "t", ("retention.ms", SET, "5"), ("segment.bytes", SET, "1000")) == 0
    assert change(cluster, "t", ("segment.bytes", DELETE, None)) == 0
    assert change(cluster, "t", ("cleanup.policy", APPEND, "compact")) == 0
    assert settings(cluster, "t") == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert change(cluster, "t", ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert settings(cluster, "t")["cleanup.policy"] == "compact"

    def everywhere():
        return all(
            log.config.retention_ms == 5 and log.config.compact
            for name in ("b1", "b2")
            for log in cluster.brokers[name].logs.logs()
        )

    cluster.wait(everywhere)


@pytest.mark.parametrize(
    ("topic", "operation", "code"),
    [
        ("t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        ("t", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        ("t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        ("t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        ("absent", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_settings_that_are_refused(cluster, topic, operation, code):
    assert change(cluster, topic, operation) == code
    assert settings(cluster, "t") == {}


def test_settings_of_brokers_and_repeated_keys_are_refused(cluster):
    assert change(cluster, "1", ("log.retention.ms", SET, "1"), kind=4) == ErrorCode.INVALID_REQUEST
    twice = [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]
    assert change(cluster, "t", *twice) == ErrorCode.INVALID_REQUEST
    assert change(cluster, "t", twice[0], validate_only=True) == 0
    assert settings(cluster, "t") == {}


def test_all_settings_replaced_at_once(cluster):
    assert change(cluster, "t", ("retention.ms", SET, "5")) == 0
    r = AlterConfigsRequest
    entry = r.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[r.AlterableConfig(name="segment.bytes", value="1000")],
    )
    assert cluster.ask(1, r(resources=[entry]), 2).responses[0].error_code == 0
    assert settings(cluster, "t") == {"segment.bytes": "1000"}


def test_settings_given_at_creation_reach_the_first_log(cluster):
    create(cluster, "small", {0: (1, 2)}, segment_bytes="1234", min_insync_replicas="2")

    def in_force():
        return [
            (log.config.segment_bytes, log.config.min_insync_replicas)
            for name in ("b1", "b2")
            for log in cluster.brokers[name].logs.logs()
            if log.tp.topic == "small"
        ]

    cluster.wait(lambda: len(in_force()) == 2)
    assert in_force() == [(1234, 2)] * 2


def reassign(scene, *moves, broker=1):
    r = AlterPartitionReassignmentsRequest
    entry = r.ReassignableTopic(
        name="t",
        partitions=[r.ReassignablePartition(partition_index=p, replicas=b) for p, b in moves],
    )
    answer = scene.ask(broker, r(topics=[entry]), 0)
    codes = [p.error_code for t in answer.responses for p in t.partitions]
    return answer.error_code, codes


def ongoing(scene):
    answer = scene.ask(1, ListPartitionReassignmentsRequest(), 0)
    return {
        (t.name, p.partition_index): (p.replicas, p.adding_replicas, p.removing_replicas)
        for t in answer.topics
        for p in t.partitions
    }


def test_a_reassignment_runs_and_is_listed_while_it_does(cluster):
    cluster.up(3)
    cluster.wait(lambda: 3 in cluster.brokers["b1"].services.controller.context.brokers)
    cluster.simulation.node("b3").pause()
    assert reassign(cluster, (0, [3, 1]), (1, [2, 1]), (9, [1])) == (
        0,
        [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    )
    assert ongoing(cluster) == {("t", 0): ([3, 1, 2], [3], [2])}
    cluster.simulation.node("b3").resume()
    cluster.wait(lambda: partition(cluster, "t", 0).replicas == (3, 1))
    cluster.wait(lambda: ongoing(cluster) == {})


def test_a_reassignment_cancelled_or_refused(cluster):
    assert reassign(cluster, (0, None)) == (0, [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS])
    assert reassign(cluster, (0, [1, 1])) == (0, [ErrorCode.INVALID_REPLICA_ASSIGNMENT])
    assert reassign(cluster, (0, [1, 8])) == (0, [ErrorCode.INVALID_REPLICA_ASSIGNMENT])
    assert reassign(cluster, (0, [2, 1]), broker=2)[0] == ErrorCode.NOT_CONTROLLER


def test_the_preferred_leader_is_elected_on_request(cluster):
    cluster.stop(2)
    cluster.wait(lambda: partition(cluster, "t", 1).leader == 1)
    cluster.up(2)
    cluster.wait(lambda: partition(cluster, "t", 1).isr == (1, 2))
    answer = cluster.ask(1, ElectLeadersRequest(topic_partitions=None), 2)
    results = {
        (r.topic, p.partition_id): p.error_code
        for r in answer.replica_election_results
        for p in r.partition_result
    }
    assert results == {("t", 1): ErrorCode.NONE}
    assert partition(cluster, "t", 1).leader == 2
    named = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 7])
    answer = cluster.ask(1, ElectLeadersRequest(topic_partitions=[named]), 2)
    codes = [p.error_code for p in answer.replica_election_results[0].partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("all_of_them", [True, False])
def test_an_election_is_refused_partition_by_partition(cluster, all_of_them):
    # Kafka 3.9's response has no error of its own, but one for each partition.
    named = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 1])
    asked = None if all_of_them else [named]
    answer = cluster.ask(2, ElectLeadersRequest(topic_partitions=asked), 2)
    assert answer.error_code == ErrorCode.NONE
    found = [
        (r.topic, p.partition_id, p.error_code, p.error_message)
        for r in answer.replica_election_results
        for p in r.partition_result
    ]
    assert sorted(found) == [("t", p, ErrorCode.NOT_CONTROLLER, None) for p in (0, 1)]


def test_topics_are_deleted_by_name_and_by_id(cluster):
    create(cluster, "u", {0: (1, 2)})
    topic_id = cluster.brokers["b1"].services.metadata.topic_id("u")
    r = DeleteTopicsRequest
    asked = [
        r.DeleteTopicState(name="t"),
        r.DeleteTopicState(topic_id=topic_id),
        r.DeleteTopicState(name="absent"),
        r.DeleteTopicState(topic_id=b"z" * 16),
    ]
    answer = cluster.ask(1, r(topics=asked, timeout_ms=10_000), 6)
    assert [(x.name, x.error_code) for x in answer.responses] == [
        ("t", ErrorCode.NONE),
        ("u", ErrorCode.NONE),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    cluster.wait(lambda: not cluster.brokers["b2"].logs.logs())
    assert cluster.ask(2, r(topic_names=["t"]), 5).responses[0].error_code == (
        ErrorCode.NOT_CONTROLLER
    )


@pytest.mark.parametrize("done", [True, False])
def test_a_deletion_whose_mark_got_no_response_is_waited_for(cluster, done):
    store = cluster.brokers["b1"].services.session.current
    mark = store.topics.request_deletion

    async def lose_the_reply(topic):
        if done:
            await mark(topic)
        raise SessionExpiredError

    store.topics.request_deletion = lose_the_reply
    asked = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000)
    (result,) = cluster.ask(1, asked, 5).responses
    expected = ErrorCode.NONE if done else ErrorCode.REQUEST_TIMED_OUT
    assert result.error_code == expected
    assert cluster.brokers["b1"].services.metadata.contains("t") is not done


def test_a_deletion_that_cannot_even_be_looked_up_is_for_the_next_controller(cluster):
    store = cluster.brokers["b1"].services.session.current

    async def lost(topic):
        raise ConnectionLossError

    store.topics.exists = lost
    asked = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000)
    (result,) = cluster.ask(1, asked, 5).responses
    assert result.error_code == ErrorCode.NOT_CONTROLLER


def test_a_topic_that_is_going_already_is_unknown(cluster):
    """One of its replicas is dead: it stays in ZooKeeper, but is in no metadata any more."""
    cluster.simulation.node("b2").crash()
    cluster.wait(lambda: list(cluster.brokers["b1"].services.metadata.snapshot.brokers) == [1])
    r = DeleteTopicsRequest
    request = r(topics=[r.DeleteTopicState(name="t")], timeout_ms=500)
    codes = [cluster.ask(1, request, 6).responses[0].error_code for _ in range(2)]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.znode("/admin/delete_topics/t") is not None
    assert cluster.znode("/brokers/topics/t") is not None


def delete_records(scene, topic, offset, broker=1, **fields):
    r = DeleteRecordsRequest
    entry = r.DeleteRecordsPartition(partition_index=0, offset=offset)
    fields.setdefault("timeout_ms", 10_000)
    request = r(topics=[r.DeleteRecordsTopic(name=topic, partitions=[entry])], **fields)
    result = scene.ask(broker, request, 2).topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_records_are_deleted_on_every_replica(cluster):
    for _ in range(3):
        cluster.produce("t", 10)
    assert delete_records(cluster, "t", 12) == (ErrorCode.NONE, 12)
    starts = {
        log.log_start_offset
        for name in ("b1", "b2")
        for log in cluster.brokers[name].logs.logs()
        if log.tp.partition == 0
    }
    assert starts == {12}
    assert delete_records(cluster, "t", -1) == (ErrorCode.NONE, 30)


def test_records_that_are_not_deleted(cluster):
    cluster.produce("t", 10)
    assert delete_records(cluster, "t", 11)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(cluster, "t", -2)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(cluster, "t", 1, broker=2)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert delete_records(cluster, "absent", 1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_records(cluster, "__consumer_offsets", 1)[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    create(cluster, "kept", {0: (1, 2)}, cleanup_policy="compact")
    assert delete_records(cluster, "kept", 0)[0] == ErrorCode.POLICY_VIOLATION
    cluster.simulation.node("b2").pause()
    assert delete_records(cluster, "t", 5, timeout_ms=100)[0] == ErrorCode.REQUEST_TIMED_OUT
    cluster.simulation.node("b2").resume()


def test_folders_and_what_lies_in_them(cluster):
    answer = cluster.ask(2, DescribeLogDirsRequest(topics=None), 4)
    (folder,) = answer.results
    assert (folder.error_code, folder.log_dir) == (ErrorCode.NONE, "/data")
    assert [(t.name, sorted(p.partition_index for p in t.partitions)) for t in folder.topics] == [
        ("t", [0, 1])
    ]


def test_a_topic_is_created_by_a_request_for_its_metadata(cluster):
    topics = [MetadataRequest.MetadataRequestTopic(name=n) for n in ("new", "t", "a b")]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    answer = cluster.ask(2, request, 12)
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("new", ErrorCode.LEADER_NOT_AVAILABLE),
        ("t", ErrorCode.NONE),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    cluster.wait(lambda: partition(cluster, "new", 0, broker=2) is not None)
    answer = cluster.ask(2, request, 12)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert len(answer.topics[0].partitions) == 1
