"""Nothing is changed without a preview: each route that changes something, on a whole cluster."""

import re

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient

from ottla.admin.local import processes
from ottla.admin.local.cluster_dir import ClusterDir, LocalBroker, LocalCluster, LocalZooKeeper
from ottla.admin.operations import acls, configs, reassign, scram_users
from ottla.admin.session import connected
from ottla.console.application import POSTS
from ottla.console.chaos import DEEDS
from ottla.model import ids
from ottla.model.throttle_settings import LOG_DIRS_RATE
from ottla.security.acls import Acl, Entry, Pattern
from ottla.security.sasl.scram import BY_NAME
from ottla.testing.sync_cluster import SyncCluster
from support.console import console_on, form_token, of_preview, until_text
from support.waiting import until

pytestmark = pytest.mark.processes

PLAN = "/reassign/plan"
PREVIEWS = {
    "/produce": [{"topic": "moved", "value": "new"}],
    "/settings/alter": [
        {"kind": "topic", "name": "moved", "key": "retention.ms", "value": "1"},
        {"kind": "broker", "name": "", "key": "log.cleaner.threads", "value": "2"},
    ],
    "/group/reset": [{"name": "new", "to": "latest", "topic": "moved"}],
    PLAN: [{"topics": "kept", "factor": "2"}],
    "/reassign/execute": [
        {"plan": '{"version":1,"partitions":[{"topic":"kept","partition":0,"replicas":[1]}]}'}
    ],
    "/reassign/cancel": [{}],
    "/reassign/throttles": [{}],
    "/transactions/abort": [{"topic": "kept", "partition": "0", "offset": "0"}],
    "/acls/change": [
        {"deed": deed, "principal": "User:alice", "resource": "Topic", "name": "t"}
        for deed in ("add", "remove")
    ],
    "/users/put": [{"name": "bob", "password": "p", "again": "p"}],
    "/users/remove": [{"name": "alice"}],
    "/chaos/do": [{"deed": deed, "broker": "1"} for deed in DEEDS],
    "/chaos/probe": [{"topic": "console-probe"}, {"topic": "kept"}],
}
"""What asks for each change, without the agreement that its preview sends."""
NO_CHANGES = {"/leave"}
"""What changes nothing of a cluster."""


@pytest.fixture(scope="module")
def cluster():
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with SyncCluster(3, settings=settings) as found:
        fill(found)
        yield found


@pytest.fixture(scope="module")
def http(cluster):
    """Return a console that takes the cluster for one of `ottla up`: chaos, too."""
    folder = ClusterDir(cluster.dir)
    brokers = [
        LocalBroker(
            b, int(cluster.address(b).rpartition(":")[2]), processes.identify(cluster.pid(b))
        )
        for b in cluster.broker_ids
    ]
    folder.save(LocalCluster(LocalZooKeeper(cluster.zookeeper, external=True), brokers))
    with console_on(cluster.bootstrap, folder) as found:
        yield found


def fill(cluster):
    """Have something there for each change: moves, throttles, a rule, a user, a transaction."""
    for topic in ("moved", "kept"):
        cluster.create_topic(topic, replicas=1)
    source = cluster.leader_of("moved-0")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(20):
        producer.produce("moved", b"x" * 100_000)
    assert producer.flush(30) == 0
    transactional = {"transactional.id": "open", "transaction.timeout.ms": 600_000}
    cluster.open_one = Producer({"bootstrap.servers": cluster.bootstrap, **transactional})
    cluster.open_one.init_transactions(30)
    cluster.open_one.begin_transaction()
    cluster.open_one.produce("kept", b"open")
    assert cluster.open_one.flush(30) == 0
    throttle = {"leader.replication.throttled.rate": "1000"}

    async def prepare(client):
        await configs.alter(client, configs.BROKER, str(source), throttle)
        await configs.wait_in_force(client, source, throttle)
        await configs.alter(client, configs.BROKER, str(source % 3 + 1), {LOG_DIRS_RATE: "1000"})
        key = "leader.replication.throttled.replicas"
        await configs.alter(client, configs.TOPIC, "moved", {key: "*"})
        await scram_users.put(client, "alice", "secret", [BY_NAME["SCRAM-SHA-256"]], 4096)
        await acls.add(client, [Acl(Pattern(2, "t", 3), Entry("User:alice", "*", 2, 3))])
        to = {ids.TopicPartition("moved", 0): [source % 3 + 1]}
        prepared = await reassign.prepare(client, to, "", additional=False, throttle=None)
        await reassign.execute(client, prepared, None)

    connected(cluster.bootstrap, prepare)


def everything(cluster, zookeeper):
    """Return all that a change could touch, as others than the console have it.

    Znodes with their versions, the ends of all logs, and processes with their states.
    """
    found = {}

    def walk(path):
        data, stat = zookeeper.get(path)
        found[path] = data, stat.version
        for child in zookeeper.get_children(path):
            walk(f"{path.rstrip('/')}/{child}")

    walk("/")
    client = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "watching"})
    for topic in client.list_topics(timeout=20).topics.values():
        for partition in topic.partitions:
            place = TopicPartition(topic.topic, partition)
            found[topic.topic, partition] = client.get_watermark_offsets(place, 20)
    client.close()
    for broker in cluster.broker_ids:
        running = cluster.running(broker)
        found["process", broker] = cluster.pid(broker), running, cluster.paused(broker)
    return found


def at_rest(cluster, zookeeper):
    """Return everything once it does not change by itself any more."""

    def twice():
        found = everything(cluster, zookeeper)
        return found if everything(cluster, zookeeper) == found else None

    return until(twice, 40, "the cluster is at rest")


def post(http, path, fields):
    response = http.post(path, data={"form_token": form_token(http), **fields})
    return response.status_code, response.text


def test_nothing_is_changed_without_its_preview(cluster, http):
    """Each route is asked for its change without agreement; nothing of the cluster differs."""
    assert PREVIEWS.keys() | NO_CHANGES == POSTS.keys(), "each route has its line above"
    until_text(lambda path: http.get(path).text, "1 partition being moved", "/reassign")
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(30)
    before = at_rest(cluster, zookeeper)
    for path in (p for p in PREVIEWS if p != PLAN):  # there is none while replicas are moved
        ask(cluster, http, zookeeper, path, before)
    action, agreed = of_preview(post(http, "/reassign/cancel", {})[1])
    assert http.post(action, data=agreed).is_success
    after = at_rest(cluster, zookeeper)
    changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
    assert "/brokers/topics/moved" in changed, "what is agreed to is seen"
    ask(cluster, http, zookeeper, PLAN, after)
    zookeeper.stop()
    zookeeper.close()
    cluster.open_one.abort_transaction(30)


def ask(cluster, http, zookeeper, path, before):
    """Ask a route for its changes; there is a preview of each, and everything is as before."""
    for fields in PREVIEWS[path]:
        status, text = post(http, path, fields)
        assert everything(cluster, zookeeper) == before, (path, fields)
        assert not http.console.probe.running
        assert not http.console.chaos.doing
        if path == "/reassign/execute":
            assert status == 400
            assert "nothing is begun without its preview" in text
            continue
        assert status == 200, (path, fields, re.findall('role="alert">(.*?)</p>', text))
        assert re.search("This is a preview|This would be written", text), (path, text)
        assert 'name="do" value="1"' in text, (path, fields)
