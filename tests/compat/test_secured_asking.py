"""What Spark jobs ask before Spark starts, on a cluster with SASL_SSL and ACLs: by our own client.

With Spark it is in tests/pipelines/test_secured_jobs.py. ZooKeeper is our own server: a second, and
no Java.
"""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.model.errors import OttlaError
from ottla.pipelines.config import Cluster
from ottla.pipelines.declarative.cluster_offsets import Held, held_offsets
from ottla.pipelines.lake import asking
from ottla.pipelines.lake import command as lake
from ottla.zookeeper.embedded import start_own_zookeeper
from support.certificates import Authority
from support.sasl_ssl import OPERATOR, SaslSslOttla

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
USERS = {"reader": "planted-reader-password", "guest": "planted-guest-password"}
TOPIC = "orders"


class Small(SaslSslOttla):
    def start_zookeeper(self, port):
        return start_own_zookeeper(self.folder / "zookeeper", port)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asked")
    with Small(folder / "c", Authority(folder / "ca"), 1, USERS) as running:
        admin = AdminClient(running.client(OPERATOR))
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        producer = Producer(running.client(OPERATOR))
        for n in range(100):
            producer.produce(TOPIC, b"%d" % n)
        assert producer.flush(30) == 0
        running.allow("reader", ("Read", "--topic", TOPIC))
        yield running
        assert running.leaks(folder=folder) == []


def settings(cluster, name):
    file = cluster.client_properties(name)
    return Cluster(bootstrap_servers=cluster.secure_bootstrap, properties=str(file))


def test_offsets_for_the_lake_and_the_declarative_project(cluster):
    reader = settings(cluster, "reader")
    with asking.reached(reader, "read_committed") as asked:
        topic = asking.described(asked, TOPIC)
        assert {p: (s.start, s.end) for p, s in asking.held(asked, topic).items()} == {0: (0, 100)}
    where = cluster.secure_bootstrap
    assert held_offsets(where, TOPIC, properties=reader.properties) == [Held(TOPIC, 0, 0, 100)]


def test_who_has_no_right_is_told_in_one_line(cluster, tmp_path, capsys):
    file = cluster.client_properties("guest")
    sets = [
        f"cluster.bootstrap_servers={cluster.secure_bootstrap}", f'cluster.properties="{file}"',
        f'lake.path="{tmp_path}"', f'lake.topics=["{TOPIC}"]',
    ]  # fmt: skip
    assert lake.main([part for one in sets for part in ("--set", one)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in said
    wrong = cluster.client_properties("reader", "planted-wrong-password")
    with pytest.raises(OttlaError, match="Authentication failed") as found:
        held_offsets(cluster.secure_bootstrap, TOPIC, properties=str(wrong))
    assert "planted" not in str(found.value)
    cluster.client_properties("reader")
