"""The topic `_schemas`: read to its end before anything is decided, written before it counts.

Invariants: a change is applied when all in-sync replicas have it; one change at a time, so that
two requests never give one id to two schemas. Confluent: `KafkaStore`.
"""

import json
import logging
from typing import Any

from ottla.client.client import Client
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.topics import TopicFacts, create_topic, describe_topic
from ottla.model.errors import ConfigError, ErrorCode, OttlaError, UnknownTopicError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.protocol import ACKS_ALL, EARLIEST, LATEST
from ottla.registry.state import Record, State
from ottla.wire.records import NewRecord
from ottla.wire.records import Record as LogRecord

log = logging.getLogger(__name__)

TOPIC = "_schemas"
MAX_REPLICAS = 3
WRITE_WITHIN_S = 30.0


class Store:
    """The state, as far as the topic was read. Open it before anything else."""

    def __init__(self, client: Client, topic: str = TOPIC) -> None:
        self.state = State()
        self._client = client
        self._partition = TopicPartition(topic, 0)
        self._producer = Producer(client, topic, acks=ACKS_ALL, timeout_s=WRITE_WITHIN_S)
        self._consumer: Consumer | None = None

    async def open(self) -> None:
        """Make the topic if it is not there, and read all of it; OttlaError if that cannot be."""
        topic = self._partition.topic
        brokers = len(await self._client.broker_ids())
        try:
            await create_topic(
                self._client, topic, partitions=1, replication_factor=min(MAX_REPLICAS, brokers),
                settings={"cleanup.policy": "compact"},
            )  # fmt: skip
        except OttlaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        patience = self._client.patience(WRITE_WITHIN_S)
        while True:
            try:
                facts = await describe_topic(self._client, topic, settings=True)
                break
            except UnknownTopicError as error:  # it was made just now
                await patience.wait(error)
        _check(facts)
        found = await self._client.metadata([topic])
        self._consumer = Consumer(self._client, {topic: found.topics[0].topic_id or ZERO_UUID})
        await self._consumer.start_at([self._partition], EARLIEST)
        await self.refresh()
        await self._producer.open(1)

    async def refresh(self) -> None:
        """Take in what was written meanwhile, by us or by another registry."""
        assert self._consumer is not None, "not open"
        end = (await self._consumer.offsets([self._partition], LATEST))[self._partition]
        if self._consumer.positions[self._partition] < end:
            self._consumer.stop_at_offset(self._partition, end)
            await self._consumer.read(self._take, None)

    async def write(self, *records: Record) -> None:
        """Write records and take them in; OttlaError if the brokers do not acknowledge them."""
        await self._producer.send(
            [NewRecord(_bytes(key), None if value is None else _bytes(value), partition=0)
             for key, value in records]
        )  # fmt: skip
        await self.refresh()

    def _take(self, _partition: TopicPartition, record: LogRecord) -> bool:
        try:
            key = json.loads(bytes(record.key or b""))
            value = None if record.value is None else json.loads(bytes(record.value))
            self.state.apply(key, value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s: a record that is none of a registry is left out: %r", TOPIC, error)
        return True


def _bytes(found: dict[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()


def _check(facts: TopicFacts) -> None:
    """Refuse a topic in which schemas would not stay."""
    if len(facts.partitions) != 1:
        raise ConfigError(
            f"topic {facts.name} has {len(facts.partitions)} partitions, a registry's has one: "
            "name another cluster, or delete it"
        )
    policy = (facts.settings or {}).get("cleanup.policy", "delete")
    if policy != "compact":
        raise ConfigError(
            f"topic {facts.name} has cleanup.policy={policy}, which would delete schemas: "
            f"ottla topics alter {facts.name} --config cleanup.policy=compact"
        )
