"""Brokers of ours that speak TLS to a real ZooKeeper, which wants their certificate."""

import socket
import ssl

import pytest

from support import kafka_tools
from support.certificates import Authority
from support.clients import admin_client
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]


class SecuredZooKeeper(Kafka39Cluster):
    """No broker at all; only a ZooKeeper that is reached by TLS alone."""

    def __init__(self, folder, authority):
        super().__init__(folder, 1)
        self.ids = []
        self.authority = authority
        self.identity = authority.issue("zookeeper")

    def start_zookeeper(self, port):
        return self.start_kafkas_zookeeper(port)  # with options for Java

    def java(self, log, jvm, main, *arguments):
        """Put TLS in the place of the client port."""
        config = self.folder / "zookeeper.properties"
        text = config.read_text().replace("clientPort=", "secureClientPort=")
        text = text.replace("clientPortAddress", "secureClientPortAddress")
        text += (
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={self.identity.pem}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self.authority.pem}\nssl.trustStore.type=PEM\n"
            "ssl.clientAuth=need\n"
        )
        config.write_text(text)
        return super().java(log, jvm, main, *arguments)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "certificates")


@pytest.fixture
def zookeeper(tmp_path, authority):
    with SecuredZooKeeper(tmp_path / "zookeeper", authority) as running:
        # The first handshake of a JVM takes long: brokers that give up soon are not to meet it.
        until(lambda: handshake(running), 60, "TLS is spoken", despite=(OSError,))
        yield running.zookeeper


def handshake(zookeeper):
    """Return True once a handshake with a certificate of ours has succeeded."""
    context = ssl.create_default_context(cafile=str(zookeeper.authority.pem))
    context.load_cert_chain(str(zookeeper.identity.chain), str(zookeeper.identity.key))
    host, _, port = zookeeper.zookeeper.partition(":")
    with socket.create_connection((host, int(port)), 20) as plain:
        context.wrap_socket(plain, server_hostname=host).close()
    return True


def settings(authority, identity, ca=None):
    return {
        "zookeeper_ssl_client_enable": "true",
        "zookeeper_ssl_truststore_location": str(ca or authority.pem),
        "zookeeper_ssl_keystore_location": str(identity.pem),
    }


def test_brokers_live_over_tls(tmp_path, zookeeper, authority):
    more = settings(authority, authority.issue("broker"))
    with OttlaCluster(tmp_path / "ours", 2, zookeeper=zookeeper, **more) as cluster:
        admin = admin_client(cluster.bootstrap)
        until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, 30, "two brokers")
        cluster.kill(0)
        cluster.start_broker(0)
        until(lambda: cluster.known_to(1) == {0, 1}, 30, "it is back")


@pytest.mark.parametrize(
    ("own", "trusts", "words"),
    [
        ("stranger", "ours", "certificate"),
        ("ours", "stranger", "is not trusted"),
    ],
)
def test_a_broker_that_is_not_trusted_or_does_not_trust_never_starts(
    tmp_path, zookeeper, authority, own, trusts, words
):
    stranger = Authority(tmp_path / "stranger", "stranger")
    by = {"ours": authority, "stranger": stranger}
    more = settings(authority, by[own].issue("broker"), by[trusts].pem)
    cluster = OttlaCluster(
        tmp_path / "ours", 1, zookeeper=zookeeper, zookeeper_connection_timeout_ms="8000", **more
    )
    with pytest.raises(RuntimeError):
        cluster.__enter__()
    log = cluster.log(0).read_text()
    assert words in log
    assert "Traceback" not in log
