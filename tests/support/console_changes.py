"""A cluster in which there is something to change for each change of the console."""

from contextlib import contextmanager

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from ottla.admin.session import connected
from ottla.client import acls, configs, reassignments, scram_users
from ottla.console.chaos import DEEDS
from ottla.local import processes
from ottla.local.cluster_dir import ClusterDir, LocalBroker, LocalCluster, LocalZooKeeper
from ottla.model.ids import TopicPartition
from ottla.model.throttle_settings import LOG_DIRS_RATE
from ottla.security.acls import Acl, Entry, Pattern
from ottla.security.sasl.scram import BY_NAME
from ottla.testing.sync_cluster import SyncCluster

PLAN = "/reassign/plan"
PREVIEWS = {
    "/topics/create": [{"name": "new"}, {"name": "larger", "partitions": "3", "replicas": "2"}],
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


@contextmanager
def filled():
    """Yield three brokers, which a console takes for those of `ottla up`."""
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "replica.fetch.max.bytes": "10000",  # a throttle lets a fetch pass as a whole
        "transaction.partition.verification.enable": "false",  # so that one may hang
    }
    with SyncCluster(3, settings=settings) as cluster:
        fill(cluster)
        brokers = [
            LocalBroker(b, port_of(cluster.address(b)), processes.identify(cluster.pid(b)))
            for b in cluster.broker_ids
        ]
        zookeeper = LocalZooKeeper(cluster.zookeeper, external=True)
        ClusterDir(cluster.dir).save(LocalCluster(zookeeper, brokers))
        yield cluster


def port_of(address):
    return int(address.rpartition(":")[2])


def fill(cluster):
    """Have something there for each change: moves, throttles, a rule, a user, a transaction."""
    for topic in ("moved", "kept"):
        cluster.create_topic(topic, replicas=1)
    # The topic of offsets is created by the first client that asks for a coordinator.
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "first"})
    consumer.committed([Place("moved", 0)], 30)
    consumer.close()
    source = cluster.leader_of("moved-0")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 5_000})
    for _ in range(2_000):
        producer.produce("moved", b"x" * 1_000)
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
        to = {TopicPartition("moved", 0): [source % 3 + 1]}
        prepared = await reassignments.prepare(client, to, "", additional=False, throttle=None)
        await reassignments.execute(client, prepared, None)

    connected(cluster.bootstrap, prepare)
