"""Brokers of ours and one of Apache Kafka 3.9 in one cluster, all of it over TLS.

What each registers and what each tells its clients, by listener, is compared; the controller is of
either kind, and one that is killed is followed by another.
"""

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.log.files import OsFiles
from ottla.model.errors import OttlaError
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world, run
from ottla.security.client import ClientSecurity
from ottla.security.client_properties import client_tls
from ottla.wire.messages.cluster import DescribeClusterRequest, MetadataRequest
from support import kafka_tools
from support.certificates import Authority
from support.clients import create_topics
from support.secured import HOST, SecuredCluster, SecuredKafka, consume, produce
from support.seen import Znodes
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]
JVM = 10
TOPIC = "secured"
SETTINGS = {
    "default_replication_factor": "3",
    "min_insync_replicas": "2",
    "offsets_topic_replication_factor": "3",
    # A JVM broker that started before the topic was there goes by its own setting ever after.
    "offsets_topic_num_partitions": "3",
    "auto_leader_rebalance_enable": "false",
}


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "certificates")


@pytest.fixture
def clusters(tmp_path, authority):
    with SecuredCluster(
        tmp_path / "ours",
        authority,
        2,
        zookeeper_server="java",
        session_timeout_ms=4000,
        **SETTINGS,
    ) as ours:
        kafka = SecuredKafka(
            tmp_path / "kafka", authority, [JVM], zookeeper=ours.zookeeper, heap_mb=320,
            session_timeout_ms=4000, **SETTINGS,
        )  # fmt: skip
        with kafka:
            yield ours, kafka


def asked(authority, port, identity, request, version):
    properties = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.pem),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity.pem),
    }

    async def ask():
        peer = await PeerConnection.open(
            real_world(OsFiles()), HOST, port, "t", timeout_s=10,
            security=ClientSecurity(tls=client_tls(properties)),
        )  # fmt: skip
        try:
            return await peer.send(request, version, 10)
        finally:
            peer.close()

    return run(ask)


def test_one_cluster(clusters, authority):
    ours, kafka = clusters
    alice = authority.issue("alice", "alice", common_name="alice")
    both = ",".join((ours.tls.addresses(mtls=True), kafka.tls.addresses(mtls=True)))
    client = ours.tls.client(alice, log_level=2) | {"bootstrap.servers": both}
    with Znodes(ours.zookeeper) as znodes:
        registrations_are_alike(znodes)
        each_listener_is_told_its_addresses(ours, kafka, authority, alice)
        admin = AdminClient(client)
        create_topics(admin, NewTopic(TOPIC, 6, 3))
        until(lambda: znodes.full(TOPIC), 60, "all replicas are in sync")
        leaders = {state.leader for state in znodes.states(TOPIC).values()}
        assert JVM in leaders
        assert leaders & {0, 1}
        values = [b"%d" % i for i in range(6000)]
        produce(client, TOPIC, values[:2000])
        # The JVM broker becomes the controller, then one of ours again.
        until(lambda: moved_controller(znodes, JVM), 60, "Kafka's broker is the controller")
        produce(client, TOPIC, values[2000:4000])
        until(lambda: znodes.full(TOPIC), 60, "all replicas are in sync")
        kafka.kill(JVM)
        until(lambda: znodes.controller() in (0, 1), 60, "one of ours is the controller")
        produce(client | {"log_level": 0}, TOPIC, values[4000:])
        kafka.start_broker(JVM)
        until(lambda: znodes.full(TOPIC), 90, "Kafka's broker has caught up")
        assert sorted(consume(client, TOPIC, 6000, 60)) == sorted(values)


def registrations_are_alike(znodes):
    """The same keys, the same kinds of values; ports and time aside the same text."""
    found = {b: znodes.read(f"/brokers/ids/{b}") for b in (0, JVM)}
    ours, kafka = found[0], found[JVM]
    assert set(ours) == set(kafka)
    for key in set(kafka) - {"timestamp", "endpoints", "port"}:
        assert ours[key] == kafka[key], key
    assert [e.rpartition(":")[0] for e in ours["endpoints"]] == [
        e.rpartition(":")[0] for e in kafka["endpoints"]
    ]


def each_listener_is_told_its_addresses(ours, kafka, authority, alice):
    """Metadata and DescribeCluster, over each listener, are the same from both kinds."""
    ports = {
        "ssl": (ours.tls.ssl_ports, kafka.tls.ssl_ports),
        "mtls": (ours.tls.mtls_ports, kafka.tls.mtls_ports),
    }
    for ours_by_id, kafka_by_id in ports.values():
        expected = {(b, HOST, port) for b, port in (ours_by_id | kafka_by_id).items()}
        for port in (ours_by_id[0], kafka_by_id[JVM]):

            def told(request, version, port=port):
                answer = asked(authority, port, alice, request, version)
                return {
                    (getattr(b, "node_id", getattr(b, "broker_id", None)), b.host, b.port)
                    for b in answer.brokers
                }

            until(
                lambda told=told, expected=expected: (
                    told(MetadataRequest(topics=[]), 9) == expected
                ),
                30,
                f"all addresses of a listener: {expected}",
                despite=(OttlaError,),
            )
            assert told(DescribeClusterRequest(), 0) == expected


def moved_controller(znodes, wanted):
    if znodes.controller() == wanted:
        return True
    znodes.delete_controller()
    return False
