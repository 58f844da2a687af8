"""A late EndTxn, delivered when its producer has begun the next transaction: refused here.

A broker of Kafka 3.9 answers the same requests with success, and commits half of the second
transaction (KIP-890 part 2 would tell the two apart; Jepsen, Bufstream 0.1.0).
"""

import asyncio

import pytest
from confluent_kafka.admin import NewTopic

from ottla.model.errors import ErrorCode as E
from ottla.net.runtime import real_world
from support.clients import admin_client, create_topics, read_ended
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.transactional_producer import TransactionalProducer

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(180)]


async def play(address):
    host, _, port = address.rpartition(":")
    producer = TransactionalProducer(real_world(None), host, int(port))
    a, b = await producer.connect(), await producer.connect()
    await producer.init(b)
    assert await producer.served(producer.add, b) == E.NONE
    assert await producer.produce(b, b"first") == E.NONE
    assert await producer.served(producer.end, b) == E.NONE  # sent on A before, and held up there
    assert await producer.served(producer.add, b) == E.NONE
    assert await producer.produce(b, b"second") == E.NONE
    late = await producer.end(a)
    await asyncio.sleep(0.5)
    end = await producer.served(lambda: producer.end(b, committed=False))
    a.close()
    b.close()
    return late, end


@pytest.mark.parametrize(
    ("cluster_of", "answers", "committed"),
    [
        (OttlaCluster, (E.COORDINATOR_NOT_AVAILABLE, E.NONE), [b"first"]),
        (Kafka39Cluster, (E.NONE, E.INVALID_TXN_STATE), [b"first", b"second"]),
    ],
)
def test_what_becomes_of_the_next_transaction(cluster_of, answers, committed, tmp_path):
    settings = {
        "offsets_topic_replication_factor": "1",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
    }
    with cluster_of(tmp_path, 1, **settings) as cluster:
        create_topics(admin_client(cluster.bootstrap), NewTopic("t", 1, 1))
        assert asyncio.run(play(cluster.address(0))) == answers
        assert sorted(read_ended(cluster.bootstrap, "t", 1)) == committed
