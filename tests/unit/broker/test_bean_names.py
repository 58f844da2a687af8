"""Names in Prometheus: those that the JMX exporter's usual rules for Kafka make of MBeans."""

import pytest

from ottla.broker.metrics.exposition import label_text, parse_bean, samples_of

# What `kafka-2_0_0.yml` of the JMX exporter, with names in lower case, is known to give: taken from
# boards and alerts that are in use, not from our code.
KNOWN = [
    (
        "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions", "Value",
        "kafka_server_replicamanager_underreplicatedpartitions", "gauge",
    ),
    (
        "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec", "Count",
        "kafka_server_brokertopicmetrics_messagesin_total", "counter",
    ),
    (
        "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t", "Count",
        'kafka_server_brokertopicmetrics_bytesin_total{topic="t"}', "counter",
    ),
    (
        "kafka.controller:type=KafkaController,name=ActiveControllerCount", "Value",
        "kafka_controller_kafkacontroller_activecontrollercount", "gauge",
    ),
    (
        "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce", "99thPercentile",
        'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}', "summary",
    ),
    (
        "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce", "999thPercentile",
        'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.999"}', "summary",
    ),
    (
        "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce", "Count",
        'kafka_network_requestmetrics_totaltimems_count{request="Produce"}', "summary",
    ),
    (
        "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Fetch,version=12", "Count",
        'kafka_network_requestmetrics_requests_total{request="Fetch",version="12"}', "counter",
    ),
    (
        "kafka.log:type=Log,name=Size,topic=t,partition=0", "Value",
        'kafka_log_log_size{topic="t",partition="0"}', "gauge",
    ),
    (
        "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica", "Value",
        'kafka_server_replicafetchermanager_maxlag{clientId="Replica"}', "gauge",
    ),
    (
        "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=c,topic=t,partition=1",
        "Value",
        'kafka_server_fetcherlagmetrics_consumerlag{clientId="c",topic="t",partition="1"}', "gauge",
    ),
    (
        "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs", "Count",
        "kafka_controller_controllerstats_leaderelectionrateandtimems_count", "summary",
    ),
    (
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec", "Count",
        "kafka_controller_controllerstats_uncleanleaderelections_total", "counter",
    ),
    (
        "kafka.controller:type=ControllerChannelManager,name=QueueSize,broker-id=2", "Value",
        'kafka_controller_controllerchannelmanager_queuesize{broker_id="2"}', "gauge",
    ),
    (
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups", "Value",
        "kafka_coordinator_group_groupmetadatamanager_numgroups", "gauge",
    ),
    (
        "kafka.server:type=SessionExpireListener,name=ZooKeeperDisconnectsPerSec", "Count",
        "kafka_server_sessionexpirelistener_zookeeperdisconnects_total", "counter",
    ),
    (
        "kafka.server:type=socket-server-metrics,listener=P,networkProcessor=0",
        "connection-count",
        'kafka_server_socket_server_metrics_connection_count{listener="P",networkProcessor="0"}',
        "gauge",
    ),
    (
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        "OneMinuteRate",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", "gauge",
    ),
    (
        "ottla.log:type=LogManager,name=DamagedLogCount", "Value",
        "ottla_log_logmanager_damagedlogcount", "gauge",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("bean", "attribute", "series", "kind"), KNOWN)
def test_an_attribute_has_the_name_that_boards_look_for(bean, attribute, series, kind):
    (sample, *_) = samples_of(parse_bean(bean), attribute)
    assert f"{sample.family}{sample.suffix}{label_text(sample.labels)}" == series
    assert sample.kind == kind


def test_what_the_rules_leave_out_is_left_out():
    bean = parse_bean("kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce")
    for attribute in ("Mean", "Min", "Max", "StdDev", "OneMinuteRate"):
        assert samples_of(bean, attribute) == ()


def test_a_share_has_both_names_in_use():
    bean = parse_bean("kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent")
    assert [s.family for s in samples_of(bean, "Value")] == [
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidlepercent",
    ]


def test_labels_are_escaped():
    assert label_text((("a", 'x"y\\z\n'),)) == '{a="x\\"y\\\\z\\n"}'
