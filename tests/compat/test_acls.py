"""ACLs in real clusters: shared with a JVM broker in both directions; who only says it is a broker.

Clients are told apart by the address they come from (`support.guarded`).
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.model.errors import ErrorCode
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.control import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from ottla.wire.messages.records import FetchRequest, ListOffsetsRequest, ProduceRequest
from ottla.wire.messages.transactions import WriteTxnMarkersRequest
from ottla.wire.records import Record, build_batch
from support import kafka_tools
from support.command_line import found, ok
from support.guarded import ACCESS, ANONYMOUS, GuardedKafka, GuardedOttla, Stranger
from support.seen import Znodes, ask
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]
NEEDS_KAFKA = pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or "")
ACL_COMMAND = "kafka.admin.AclCommand"
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
STRANGER = Stranger("127.0.0.2")


def topic_error(address, topic, client=STRANGER):
    """Return what Metadata says of a topic to a client without permissions for anything else."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    (found,) = client.ask(address, request, 9).topics
    return found.error_code


@NEEDS_KAFKA
def test_acls_are_shared_with_a_jvm_broker_in_both_directions(tmp_path):
    settings = {"auto_create_topics_enable": "false", **ACCESS}
    with (
        GuardedOttla(tmp_path / "ours", 1, **settings) as ours,
        GuardedKafka(
            tmp_path / "theirs", ids=[10], zookeeper=ours.zookeeper, heap_mb=320, **settings
        ) as theirs,
    ):
        addresses = {"ours": ours.address(0), "theirs": theirs.address(10)}

        def seen():
            return {name: topic_error(a, "orders") for name, a in addresses.items()}

        def both_say(error):
            until(lambda: set(seen().values()) == {error}, 60, lambda: f"{error}: {seen()}")

        def kafka_acls(address, *arguments):
            return kafka_tools.run(ACL_COMMAND, "--bootstrap-server", address, *arguments)

        allowing = ("--allow-principal", ANONYMOUS, "--allow-host", "127.0.0.2")
        denying = ("--deny-principal", ANONYMOUS, "--deny-host", "127.0.0.2")
        both_say(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        # Kafka's tool to our broker; both obey it, and both list it alike.
        describe = ("--operation", "Describe", "--topic")
        kafka_acls(addresses["ours"], "--add", *allowing, *describe, "orders")
        both_say(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        lists = {n: sorted(kafka_acls(a, "--list").split("\n")) for n, a in addresses.items()}
        assert lists["ours"] == lists["theirs"]
        assert any("host=127.0.0.2, operation=DESCRIBE" in line for line in lists["ours"])
        # Removed by our tool at the JVM broker.
        mine = ("--host", "127.0.0.2", "--topic", "orders")
        removed = found(theirs, "acls", "remove", *mine, "--yes")
        assert [a["operation"] for a in removed["acls"]] == ["Describe"]
        both_say(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        # A prefix from the JVM broker, then a denial of one name from ours.
        prefixed = ("--resource-pattern-type", "prefixed")
        kafka_acls(addresses["theirs"], "--add", *allowing, *describe, "ord", *prefixed)
        both_say(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        kafka_acls(addresses["ours"], "--add", *denying, *describe, "orders")
        both_say(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        # A broker of ours that comes later has read all of it before it serves anyone.
        ours.terminate(0)
        kafka_acls(addresses["theirs"], "--remove", "--force", *denying, *describe, "orders")
        ours.start_broker(0)
        assert topic_error(addresses["ours"], "orders") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        check = ("acls", "check", ANONYMOUS, "Read", *mine)
        answer = found(ours, *check)
        assert not answer["allowed"]
        assert answer["nearest"]["name"] == "ord"
        assert answer["differs"] == ["operation"]
        ok(ours, *answer["command"].split()[1:])
        until(lambda: found(theirs, *check)["allowed"], 60, "the JVM broker knows of it")
        assert topic_error(addresses["theirs"], "orders") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def high_watermark(address):
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="held", partitions=[part])
    response = ask(address, ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
    return response.topics[0].partitions[0].offset


def test_who_only_says_it_is_a_broker_changes_nothing(tmp_path):
    """F36, CVE-2018-1288: a follower's fetches and a controller's orders from a client."""
    # The follower that is stopped stays registered, and in the ISR, until all has been asked.
    lasting = {"session_timeout_ms": 60_000, "replica_lag_time_max_ms": "60000"}
    with GuardedOttla(tmp_path, 2, **ACCESS, **lasting) as cluster:
        ok(cluster, "topics", "create", "held", "--partitions", "1", "--replication-factor", "2")
        with Znodes(cluster.zookeeper) as znodes:
            path = "/brokers/topics/held/partitions/0/state"
            state = znodes.read(path)
            leader, follower = state["leader"], 1 - state["leader"]
            address = cluster.address(leader)
            # The other one fetches nothing any more, so the high watermark waits for it.
            cluster.pause(follower)
            records = build_batch([Record(timestamp=1, key=None, value=v) for v in (b"1", b"2")])
            part = ProduceRequest.PartitionProduceData(index=0, records=records)
            data = [ProduceRequest.TopicProduceData(name="held", partition_data=[part])]
            produced = ask(address, ProduceRequest(acks=1, timeout_ms=9000, topic_data=data), 8)
            assert produced.responses[0].partition_responses[0].error_code == 0
            assert high_watermark(address) == 0
            before = znodes.read(path)
            for replica in (follower, leader, 7):
                for offset in (0, 2):
                    assert_fetches_nothing(address, replica, offset)
            for request, version, error in orders(state, leader, follower):
                found = STRANGER.ask(address, request, version)
                assert error(found) == DENIED, type(request).__name__
            assert high_watermark(address) == 0
            assert znodes.read(path) == before
            cluster.resume(follower)
            until(lambda: high_watermark(address) == 2, 30, "the follower has the records")
            log = cluster.log(leader).read_text()
            assert "denied principal=User:ANONYMOUS operation=ClusterAction host=127.0.0.2" in log


def assert_fetches_nothing(address, replica, offset):
    part = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1000, current_leader_epoch=0
    )
    for version in (4, 11, 12):
        topics = [FetchRequest.FetchTopic(topic="held", partitions=[part])]
        found = STRANGER.ask(
            address, FetchRequest(replica_id=replica, max_wait_ms=0, topics=topics), version
        )
        (one,) = found.responses[0].partitions
        assert one.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not one.records


def orders(state, leader, follower):
    """What a controller or another broker would send, with epochs that are right."""
    epoch = state["controller_epoch"]
    led = {
        "topic_name": "held", "partition_index": 0, "controller_epoch": epoch, "leader": follower,
        "leader_epoch": state["leader_epoch"] + 1, "isr": [follower], "partition_epoch": 9,
        "replicas": [follower],
    }  # fmt: skip
    whole = {"controller_id": leader, "controller_epoch": epoch}
    lead = LeaderAndIsrRequest
    yield (
        lead(ungrouped_partition_states=[lead.LeaderAndIsrPartitionState(**led)], **whole),
        0,
        lambda r: r.error_code,
    )
    stop = StopReplicaRequest
    gone = stop.StopReplicaPartitionV0(topic_name="held", partition_index=0)
    yield (
        stop(ungrouped_partitions=[gone], delete_partitions=True, **whole),
        0,
        lambda r: r.error_code,
    )
    yield UpdateMetadataRequest(**whole), 0, lambda r: r.error_code
    change = AlterPartitionRequest
    topic = change.TopicData(
        topic_name="held",
        partitions=[change.PartitionData(partition_index=0, leader_epoch=0, new_isr=[follower])],
    )
    yield change(broker_id=leader, topics=[topic]), 0, lambda r: r.error_code
    yield ControlledShutdownRequest(broker_id=follower), 1, lambda r: r.error_code
    marks = WriteTxnMarkersRequest
    marked = marks.WritableTxnMarkerTopic(name="held", partition_indexes=[0])
    marker = marks.WritableTxnMarker(producer_id=1, producer_epoch=0, topics=[marked])
    yield (
        marks(markers=[marker]),
        0,
        lambda r: r.markers[0].topics[0].partitions[0].error_code,
    )
