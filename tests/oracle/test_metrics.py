"""Metrics beside those of Apache Kafka 3.9.1: names, units and, after the same requests, values.

One broker of each; the same script of requests goes to both. Kafka's MBeans are read as JMX shows
them, ours over HTTP, in Prometheus's format, by its own parser. What Kafka has and we have not is
named in `NOT_HERE` with the reason: the list is whole, or the test fails.
"""

import asyncio
import http.client
import re
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metrics.bean_names import label_text, parse_bean, samples_of
from ottla.broker.metrics.catalogue import beans
from ottla.log.files import OsFiles
from ottla.model.errors import ErrorCode
from ottla.net import runtime
from ottla.net.client import PeerConnection
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.records import Record, build_batch
from support import kafka_tools
from support.cluster import OttlaCluster, free_ports
from support.kafka_mbeans import KafkaWithMBeans

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.timeout(170),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]

WITHIN_S = 60

# Kafka's MBeans that have no counterpart here, with the reason.
NOT_HERE = {
    r"kafka:type=kafka\.Log4jController.*": "loggers of Java",
    r"kafka\.server:type=app-info.*": "version of Java's build",
    r".*type=kafka-metrics-count.*|.*name=yammer-metrics-count": "a count of Java's metrics",
    r".*name=linux-disk-(read|write)-bytes": "of the process in /proc, for node exporters",
    r"kafka\.server:type=KafkaServer,name=ClusterId": "a text",
    r"kafka\.server:type=SessionExpireListener,name=SessionState": (
        "a text; ottla_server_zookeepersession_state"
    ),
    r"kafka\.server:type=SessionExpireListener,name=ZooKeeper(AuthFailures|ReadOnlyConnects|"
    r"SaslAuthentications)PerSec": "no SASL with ZooKeeper, no read-only servers",
    r"kafka\.network:type=(Acceptor|Processor),.*": "there are no such threads",
    r"kafka\.network:type=SocketServer,name=(ControlPlane.*|ExpiredConnectionsKilledCount)": (
        "one loop for all listeners"
    ),
    r"kafka\.network:type=RequestChannel,name=ControlPlane.*": "the same",
    r"kafka\.network:type=RequestMetrics,name=(ResponseQueueTimeMs|"
    r"ThrottleTimeMs|RequestBytes|TemporaryMemoryBytes|"
    r"MessageConversionsTimeMs),.*": "not measured",
    r"kafka\.server:type=BrokerTopicMetrics,name=(Remote.*|BuildRemoteLogAuxState.*)": (
        "no tiered storage"
    ),
    r"kafka\.server:type=BrokerTopicMetrics,name=(Fetch|Produce)MessageConversionsPerSec.*": (
        "no old record formats"
    ),
    r"kafka\.server:type=BrokerTopicMetrics,name=(Invalid.*|NoKeyCompacted.*|Reassignment.*)": (
        "not counted"
    ),
    r"kafka\.server:type=(DelayedFetchMetrics|DelayedRemoteFetchMetrics|FetcherStats),.*": (
        "not counted"
    ),
    r"kafka\.server:type=Replica(Fetcher|AlterLogDirs)Manager,name=(DeadThreadCount|MinFetchRate|"
    r"MaxLag|FailedPartitionsCount),.*": "a fetcher is a task; moves: not shown",
    r"kafka\.server:type=ReplicaManager,name=(ProducerIdCount|PartitionsWithLateTrans.*)": (
        "not shown"
    ),
    r"kafka\.server:type=(AddPartitionsToTxnManager|DelayedOperation|TransferQueue|"
    r"ZkMigration.*|BrokerFeatures|MetadataLoader|raft.*|node-metrics).*": "inside of Kafka's",
    r"kafka\.server:type=[a-zA-Z-]+-metrics.*": "of Kafka's own clients",
    r"kafka\.server:type=(ControllerMutation|LeaderReplication|"
    r"FollowerReplication|AlterLogDirsReplication|group-.*|txn-.*|Throttle.*|replica-.*)(,.*)?": (
        "quotas: not shown"
    ),
    r"kafka\.controller:type=ControllerChannelManager,name=RequestRateAndQueueTimeMs,.*": (
        "not measured"
    ),
    r"kafka\.controller:type=ControllerEventManager,name=EventQueueTimeMs": "not measured",
    r"kafka\.controller:type=KafkaController,name=(ControllerState|FencedBrokerCount|"
    r"ReplicasToDeleteCount|(Replicas|Topics)IneligibleToDeleteCount|.*Migration.*|"
    r"ActiveBrokerCount)": "not shown",
    r"kafka\.controller:type=ControllerStats,name=(ControllerShutdown|UncleanLeaderElectionEnable|"
    r"UpdateFeatures|.*)RateAndTimeMs": "tests/oracle/test_controller_metrics.py has the reasons",
    r"kafka\.coordinator\.group:type=GroupMetadataManager,name=NumGroupsDead": "they are gone",
    r"kafka\.coordinator\.(group|transaction):type=.*": "not shown",
    r"kafka\.log:type=LogCleaner,name=(DeadThreadCount|max-compaction-delay-secs)": "not shown",
    r"kafka\.log:type=LogManager,name=remaining.*": "not shown",
    r"kafka\.log\.remote:.*|org\.apache.*": "no tiered storage",
    r"kafka\.utils:.*": "threads of Java's pools",
}


async def script(address):
    """Send the same to whoever listens at an address."""
    host, _, port = address.rpartition(":")
    world = runtime.real_world(OsFiles())
    peer = await PeerConnection.open(world, host, int(port), "script", timeout_s=WITHIN_S)
    r = CreateTopicsRequest
    topic = r.CreatableTopic(
        name="t", num_partitions=2, replication_factor=1,
        configs=[r.CreatableTopicConfig(name="max.message.bytes", value="5000")],
    )  # fmt: skip
    await peer.send(r(topics=[topic], timeout_ms=30_000), 5, WITHIN_S)
    for _ in range(1200):
        found = await peer.send(MetadataRequest(topics=None), 9, WITHIN_S)
        known = [p for t in found.topics for p in t.partitions if p.leader_id >= 0]
        if len(known) == 2:
            break
        await asyncio.sleep(0.05)
    for size, count, acks in ((10, 5, -1), (200, 3, 1), (6000, 1, 1), (50, 20, -1)):
        await produce(peer, "t", size, count, acks)
    await produce(peer, "t", 10, 1, 1, partitions=1)  # the usual request has a response of its own
    await produce(peer, "missing", 10, 1, 1)
    for _ in range(3):
        await fetch(peer)
    for _ in range(4):
        await peer.send(MetadataRequest(topics=[]), 8, WITHIN_S)
    request = ApiVersionsRequest(client_software_name="s", client_software_version="1")
    await peer.send(request, 2, WITHIN_S)
    peer.close()


async def metadata_script(address):
    """Ask for topics that are there and for some that are not."""
    host, _, port = address.rpartition(":")
    world = runtime.real_world(OsFiles())
    peer = await PeerConnection.open(world, host, int(port), "script", timeout_s=WITHIN_S)
    t = MetadataRequest.MetadataRequestTopic
    for name in ("t", "missing", "not a name", "t"):
        topics = [t(name=name), t(name="u")]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        await peer.send(request, 8, WITHIN_S)
        await peer.send(request, 12, WITHIN_S)
    peer.close()


async def produce(peer, topic, size, count, acks, partitions=2):
    r = ProduceRequest
    records = [Record(value=bytes(size)) for _ in range(count)]
    data = [
        r.PartitionProduceData(index=index, records=build_batch(records))
        for index in range(partitions)
    ]
    request = r(
        acks=acks, timeout_ms=30_000,
        topic_data=[r.TopicProduceData(name=topic, partition_data=data)],
    )  # fmt: skip
    answer = await peer.send(request, 9, WITHIN_S)
    codes = {p.error_code for t in answer.responses for p in t.partition_responses}
    wanted = ErrorCode.MESSAGE_TOO_LARGE if size > 5000 else ErrorCode.NONE
    if topic != "t":
        wanted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {wanted}


async def fetch(peer):
    r = FetchRequest
    partitions = [
        r.FetchPartition(
            partition=index, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1,
            log_start_offset=-1, partition_max_bytes=1_000_000,
        )
        for index in range(2)
    ]  # fmt: skip
    request = r(
        replica_id=-1, max_wait_ms=20_000, min_bytes=1, max_bytes=1_000_000, isolation_level=0,
        session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[r.FetchTopic(topic="t", partitions=partitions)],
    )  # fmt: skip
    answer = await peer.send(request, 11, WITHIN_S)
    assert sum(len(p.records or b"") for t in answer.responses for p in t.partitions) > 0


def page(port):
    """Return the values of a page by name and labels."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    client.request("GET", "/metrics")
    text = client.getresponse().read().decode()
    client.close()
    return {
        f"{s.name}{label_text(tuple(sorted(s.labels.items())))}": s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def translated(mbeans):
    """Return Kafka's values by the names that the exporter's rules give, in the same form."""
    found = {}
    for name, attributes in mbeans.items():
        for attribute, text in attributes.items():
            try:
                value = float(text)
            except ValueError:
                continue
            for s in samples_of(parse_bean(name), attribute):
                found[f"{s.family}{s.suffix}{label_text(tuple(sorted(s.labels)))}"] = value
    return found


def agreed(kafka, port, enough):
    """Return both brokers' metrics, and Kafka's MBeans, once they are the same or it is too late.

    A page is made once a second, and Kafka counts a request after it has answered it.
    """
    give_up_s = time.monotonic() + WITHIN_S / 2
    while True:
        time.sleep(1.1)
        mbeans = kafka.mbeans(0)
        found = translated(mbeans), page(port)
        if enough(found) or time.monotonic() > give_up_s:
            return found, mbeans


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Both brokers' metrics before and after the script, Kafka's MBeans, metrics after more."""
    folder = tmp_path_factory.mktemp("metrics")
    few = {"auto_create_topics_enable": "false", "offsets_topic_replication_factor": "1"}
    (port,) = free_ports(1)
    ours = {"ottla_metrics_listener": f"127.0.0.1:{port}", "ottla_metrics_detail": "partition"}
    with (
        KafkaWithMBeans(folder / "kafka", 1, **few) as kafka,
        OttlaCluster(
            folder / "ours", 1, zookeeper=f"{kafka.zookeeper}/ours", **few, **ours
        ) as ottla,
    ):
        before = translated(kafka.mbeans(0)), page(port)
        asyncio.run(script(kafka.address(0)))
        asyncio.run(script(ottla.address(0)))
        after, mbeans = agreed(kafka, port, lambda after: not differing(counted(before, after)))
        asyncio.run(metadata_script(kafka.address(0)))
        asyncio.run(metadata_script(ottla.address(0)))
        metadata, _ = agreed(kafka, port, lambda later: same(metadata_errors(after, later)))
        yield before, after, mbeans, metadata


def shape(bean):
    """Return an MBean's domain, type, name and the names of its tags."""
    parsed = parse_bean(bean)
    tags = frozenset(key for key, _ in parsed.tags)
    return parsed.domain, parsed.type, parsed.name, tags


def test_what_kafka_has_is_here_by_the_same_name_or_is_listed_as_missing(pair):
    _, _, mbeans, _ = pair
    ours = {
        (parse_bean(one.name).domain, parse_bean(one.name).type, parse_bean(one.name).name)
        for one in beans()
    }
    kafkas = {shape(bean)[:3] for bean in mbeans}
    invented = {bean for bean in ours if bean[0].startswith("kafka")} - kafkas
    # Only there once something has happened, or on a broker that follows.
    rare = {("kafka.server", "FetcherLagMetrics", "ConsumerLag")}
    assert not {b for b in invented if b not in rare and b[1] != "ControllerChannelManager"}
    missing = {
        bean
        for bean in mbeans
        if shape(bean)[:3] not in ours
        and not any(re.fullmatch(pattern, bean) for pattern in NOT_HERE)
    }
    assert not missing, "\n".join(sorted(missing))


def test_attributes_and_units_are_kafka_s(pair):
    """A meter's `EventType` and a timer's `LatencyUnit` say what Kafka counts."""
    _, _, mbeans, _ = pair
    by_name = {}
    for bean, attributes in mbeans.items():
        by_name.setdefault(shape(bean)[:3], attributes)
    wanted = {"gauge": {"Value"}, "meter": {"Count", "OneMinuteRate"}, "share": set(),
              "times": {"Count", "99thPercentile"}, "timer": {"Count", "99thPercentile"},
              "attributes": set()}  # fmt: skip
    checked = 0
    for one in beans():
        parsed = parse_bean(one.name)
        theirs = by_name.get((parsed.domain, parsed.type, parsed.name))
        if theirs is None:
            continue
        assert wanted[one.kind] <= theirs.keys(), one
        if one.kind == "meter":
            assert (one.unit == "bytes") == (theirs["EventType"] == "bytes"), one
            assert theirs["RateUnit"] == "SECONDS", one
        if one.kind == "timer":
            assert (one.unit, theirs["LatencyUnit"]) == ("ms", "MILLISECONDS"), one
        checked += 1
    assert checked > 50


# Counters whose value depends on other things than the script, with the reason.
OTHER_COUNTS = {
    "kafka_controller_": "how many events the same work is, is each controller's own affair",
    "kafka_server_sessionexpirelistener_zookeepersyncconnects": "Kafka's client connects once more",
    "kafka_server_socket_server_metrics_": "the controller's connections to brokers",
    "kafka_server_kafkarequesthandlerpool_": "time",
    "kafka_log_logflushstats_": "each flushes when it will",
    "kafka_server_zookeeperclientmetrics_": "each asks ZooKeeper in its own way",
}
SENT = ("ApiVersions", "CreateTopics", "Produce", "Fetch", "FetchConsumer")


def is_comparable(series):
    if "requestmetrics" in series:
        # Metadata is asked until the topic has leaders; the rest are requests between brokers.
        return 'version="8"' in series or any(f'request="{api}"' in series for api in SENT)
    return not series.startswith(tuple(OTHER_COUNTS))


def counted(before, after):
    """Return by how much each counter grew, of Kafka's and of ours."""
    (kafka_before, ours_before), (kafka, ours) = before, after
    compared = {}
    for series, value in ours.items():
        name = series.partition("{")[0]
        if not name.endswith(("_total", "_count")) or not name.startswith("kafka"):
            continue
        theirs = kafka.get(series)
        if is_comparable(series):
            grew = 0.0 if theirs is None else theirs - kafka_before.get(series, 0.0)
            compared[series] = grew, value - ours_before.get(series, 0.0)
    for series, value in kafka.items():  # an error that we do not count would be no series of ours
        if "requestmetrics_errors_total" in series and is_comparable(series):
            compared.setdefault(series, (value - kafka_before.get(series, 0.0), 0.0))
    return compared


def differing(compared):
    return {series: pair for series, pair in compared.items() if pair[0] != pair[1]}


def test_counters_say_the_same_after_the_same_requests(pair):
    before, after, _, _ = pair
    compared = counted(before, after)
    different = differing(compared)
    assert not different, "Kafka's, ours:\n" + "\n".join(f"{k} {v}" for k, v in different.items())
    moved = {series.partition("{")[0] for series, pair in compared.items() if pair[0]}
    assert moved >= {
        f"kafka_server_brokertopicmetrics_{name}_total"
        for name in ("messagesin", "bytesin", "bytesout", "bytesrejected", "totalproducerequests",
                     "totalfetchrequests")
    } | {"kafka_network_requestmetrics_requests_total",
         "kafka_network_requestmetrics_totaltimems_count"}  # fmt: skip


def metadata_errors(before, later):
    """Return by how much each count of errors in Metadata grew: of Kafka's, of ours."""
    grew = []
    for earlier, now in zip(before, later, strict=True):
        errors = {
            series: value - earlier.get(series, 0.0)
            for series, value in now.items()
            if series.startswith("kafka_network_requestmetrics_errors_total")
            and 'request="Metadata"' in series
        }
        grew.append({series: count for series, count in errors.items() if count})
    return grew


def same(grew):
    return grew[0] == grew[1]


def test_errors_in_metadata_are_counted_by_topic_and_partition(pair):
    _, after, _, later = pair
    grew = metadata_errors(after, later)
    assert same(grew)
    assert len(grew[0]) == 3, "NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION"


# Gauges that are each server's own affair, with the reason.
OTHER_GAUGES = {
    "kafka_log_logcleanermanager_time_since": "time",
    "kafka_network_socketserver_memorypool": "Kafka has no bound by default",
    "kafka_log_logmanager_logdirectoryoffline": "each has folders of its own",
    "kafka_server_socket_server_metrics_connection_count": "whether the client has left yet",
    "kafka_server_delayedoperationpurgatory_purgatorysize": "Kafka sweeps now and then",
    "kafka_controller_controllerchannelmanager_": "what is on its way at the moment",
    "kafka_network_socketserver_networkprocessor": "time",
    "kafka_server_kafkarequesthandlerpool_": "time",
}


def test_gauges_say_the_same_of_the_same_cluster(pair):
    _, (kafka, ours), _, _ = pair
    compared = {
        series: (kafka[series], value)
        for series, value in ours.items()
        if series in kafka and "quantile" not in series
        and not series.partition("{")[0].endswith(("_total", "_count"))
        and not series.startswith(tuple(OTHER_GAUGES))
    }  # fmt: skip
    different = {series: pair for series, pair in compared.items() if pair[0] != pair[1]}
    assert not different, "Kafka's, ours:\n" + "\n".join(f"{k} {v}" for k, v in different.items())
    assert compared['kafka_log_log_size{partition="0",topic="t"}'][0] > 1000
    assert compared["kafka_server_replicamanager_leadercount"] == (2, 2)
    assert len(compared) > 40
