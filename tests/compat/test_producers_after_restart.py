"""An idempotent producer and a cluster whose brokers all stop in order and start again.

Where a response was lost with the connection, the client sends each of up to five batches in flight
again. Which of them the restarted leader knows decides whether the producer may go on.
"""

import threading
import time

import pytest
from confluent_kafka import KafkaException, Producer

from ottla.model.errors import ErrorCode
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.records import Record, build_batch
from support import kafka_tools
from support.clients import admin_client, create_topic
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.replayed import read_all
from support.seen import all_know, ask
from support.waiting import until

BATCHES = 7
KEPT = 5

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
kafka = pytest.param(
    Kafka39Cluster,
    id="kafka",
    marks=[
        pytest.mark.java,
        pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
    ],
)


@pytest.mark.parametrize("kind", [pytest.param(OttlaCluster, id="ours"), kafka])
def test_batches_that_are_sent_again_after_a_clean_stop(tmp_path, kind):
    """Ours knows the last five of a producer, Kafka the last one (COMPATIBILITY)."""
    with kind(tmp_path, brokers=1) as cluster:
        [broker] = cluster.ids
        address = cluster.address(broker)
        topic = create_topic(admin_client(cluster.bootstrap), 1, 1)
        now_ms = int(time.time() * 1000)  # producers expire by the time of their records

        def send(number):
            batch = build_batch(
                [Record(timestamp=now_ms, value=b"%d.%d" % (number, i)) for i in range(2)],
                producer_id=4711,
                producer_epoch=0,
                base_sequence=2 * number,
            )
            part = ProduceRequest.PartitionProduceData(index=0, records=batch)
            data = [ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)
            [answer] = ask(address, request, 9).responses[0].partition_responses
            return ErrorCode(answer.error_code), answer.base_offset

        first = [send(n) for n in range(BATCHES)]
        assert first == [(ErrorCode.NONE, 2 * n) for n in range(BATCHES)]
        known = range(BATCHES - KEPT, BATCHES)
        assert [send(n) for n in known] == first[-KEPT:]
        assert cluster.terminate(broker) in (0, 143)
        cluster.start_broker(broker)
        until(lambda: all_know([address], topic, 1), 30, "the partition has a leader")
        refused = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        again = [send(n) for n in known]
        if kind is OttlaCluster:
            assert again == first[-KEPT:]
        else:
            assert again == [refused] * (KEPT - 1) + first[-1:]
        assert send(BATCHES - KEPT - 1) == refused
        assert send(BATCHES) == (ErrorCode.NONE, 2 * BATCHES)


def test_a_producer_goes_on_while_the_cluster_stops_and_starts(tmp_path):
    acknowledged = {}
    fatal = []
    over = threading.Event()

    def note(error, message):
        if error is None:
            acknowledged[message.partition(), message.offset()] = message.value()

    def produce(producer, topic):
        number = 0
        while not over.is_set():
            try:
                producer.produce(topic, b"%d" % number, on_delivery=note)
                number += 1
            except BufferError:
                pass
            except KafkaException as error:
                fatal.append(str(error))
                return
            producer.poll(0)
            time.sleep(0.0004)  # so that most batches have one record, and several are in flight

    with OttlaCluster(tmp_path, brokers=3, min_insync_replicas="2") as cluster:
        topic = create_topic(admin_client(cluster.bootstrap), 12, 3)
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        sender = threading.Thread(target=produce, args=(producer, topic), daemon=True)
        sender.start()
        try:
            for _ in range(3):
                before = len(acknowledged)
                _until_more(acknowledged, before + 500, fatal)
                stops = [threading.Thread(target=cluster.terminate, args=(b,)) for b in cluster.ids]
                for stop in stops:
                    stop.start()
                for stop in stops:
                    stop.join(60)
                for broker in cluster.ids:
                    cluster.start_broker(broker, wait=False)
                for broker in cluster.ids:
                    cluster.wait(broker)
            _until_more(acknowledged, len(acknowledged) + 500, fatal)
        finally:
            over.set()
            sender.join(20)
        assert producer.flush(60) == 0
        assert fatal == []
        found = {(r.partition, r.offset): r.value for r in read_all(cluster.bootstrap, topic)}
        assert {key: found.get(key) for key in acknowledged} == acknowledged
        assert len(set(found.values())) == len(found), "a record is there twice"


def _until_more(acknowledged, count, fatal):
    until(lambda: len(acknowledged) >= count or fatal, 60, "records are acknowledged")
    assert fatal == []
