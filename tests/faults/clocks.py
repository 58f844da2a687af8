"""Faults of clocks: the wall clock jumps (F23)."""

import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic

from faults.proof import TOPIC, Proof
from support.clients import create_topics, fresh
from support.waiting import until

HOUR_MS = 3_600_000
WAIT_S = 4
"""Brokers look for transactions that have lasted too long each second."""


class Reader:
    """One member of a group, in a thread; counts what it reads and how often it was assigned."""

    def __init__(self, bootstrap: str) -> None:
        self.read = 0
        self.assigned = 0
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": fresh("clock"),
                "auto.offset.reset": "latest",
                "session.timeout.ms": 30_000,  # so only a clock that jumps could end it
                "log_level": 2,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_assign(self, _consumer: object, _partitions: object) -> None:
        self.assigned += 1

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            self.read += message is not None and message.error() is None

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)
        self._consumer.close()


def acked_since(proof: Proof, moment: float) -> int:
    return sum(moment < a.at for a in proof.writer.acks)


def f23(proof: Proof) -> dict[str, Any]:
    """The wall clocks of all brokers jump an hour ahead, two hours back, and are right again."""
    cluster, znodes = proof.cluster, proof.znodes
    shims = [cluster.shim(b) for b in cluster.ids]
    jumps = (HOUR_MS, -HOUR_MS, 0)
    topic = fresh("clock")
    create_topics(proof.admin, NewTopic(topic, 1, 3))
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": fresh("clock"),
            "transaction.timeout.ms": 30_000,
            "log_level": 2,
        }
    )
    producer.init_transactions(60)
    reader = Reader(cluster.bootstrap)
    try:
        until(lambda: reader.read, 30, "the group reads")
        assigned, epoch = reader.assigned, znodes.controller_epoch()
        sessions = {b: znodes.client.exists(f"/brokers/ids/{b}").czxid for b in cluster.ids}
        acked = []
        for number, by_ms in enumerate(jumps):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number)
            assert producer.flush(30) == 0
            began = time.monotonic()
            for shim in shims:
                shim.set(wall_offset_ms=by_ms)
            time.sleep(WAIT_S / 2 if proof.quick else WAIT_S)
            until(lambda since=began: acked_since(proof, since) > 100, 30, "producing goes on")
            acked.append(acked_since(proof, began))
            producer.commit_transaction(30)
        read = reader.read
        until(lambda: reader.read > read, 30, "the group goes on reading")
        assert reader.assigned == assigned, "the group was rebalanced"
        assert znodes.controller_epoch() == epoch, "the controller was replaced"
        now = {b: znodes.client.exists(f"/brokers/ids/{b}").czxid for b in cluster.ids}
        assert now == sessions, "a broker lost its session"
    finally:
        for shim in shims:
            shim.set(wall_offset_ms=0)
        reader.close()
    proof.settle()
    return {"acked_after_each_jump": acked, "transactions_committed": len(jumps)}
