"""Writing in transactions: one transactional id, one batch in flight for each partition.

Invariants: `open` fences whoever had the id before and waits until its transaction has ended; after
ProducerFencedError nothing more is written; every wait ends after `kafka.default.api.timeout.ms`
without a success; a request whose response is lost is sent again as it was, which brokers take once
(sequence numbers; EndTxn twice is the same). Kafka: `TransactionManager` and, in little, `Sender`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.model.errors import ConfigError, ErrorCode, OttlaError, ProducerFencedError, error_name
from ottla.model.ids import TopicPartition
from ottla.model.protocol import ACKS_ALL
from ottla.pipelines.replaying.coordinator import TRANSACTION, Coordinator
from ottla.pipelines.source.cluster import Cluster
from ottla.wire import compression
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from ottla.wire.records import frame_batch

LAST_VERSION_FOR_CLIENTS = 3
"""AddPartitionsToTxn from version 4 on is for brokers."""
TIMEOUT_MS = 60_000
"""After so long without an end brokers abort a transaction."""
MAX_SEQUENCE = 0x7FFFFFFF
NOT_SET = -1

FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


@dataclass(slots=True)
class Encoded:
    """Records of one partition as bytes, with what a batch's header says of them."""

    payload: bytearray
    count: int
    base_timestamp: int
    max_timestamp: int


class TransactionalWriter:
    """Writes to one cluster under one transactional id."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, codec: int = compression.NONE
    ) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._codec = codec
        self._coordinator = Coordinator(cluster, transactional_id, TRANSACTION)
        self._producer = (NOT_SET, NOT_SET)
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    async def open(self) -> None:
        """Take the id: whoever had it before can write no more, and its transaction has ended."""
        response = await self._coordinated(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=NOT_SET,
                producer_epoch=NOT_SET,
            ),
            lambda response: int(response.error_code),
        )
        self._producer = (response.producer_id, response.producer_epoch)
        self._sequences.clear()
        self._added.clear()

    async def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Tell the coordinator which partitions the transaction writes to."""
        new = [tp for tp in partitions if tp not in self._added]
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for tp in new:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in topics.items()
            ],
        )
        await self._coordinated(request, _worst_code, version=LAST_VERSION_FOR_CLIENTS)
        self._added.update(new)

    async def send(self, tp: TopicPartition, records: Encoded) -> int:
        """Write a batch; return the first offset, -1 where the broker only says it has it."""
        await self.add([tp])
        sequence = self._sequences.get(tp, 0)
        batch = frame_batch(
            records.payload,
            count=records.count,
            last_offset_delta=records.count - 1,
            base_timestamp=records.base_timestamp,
            max_timestamp=records.max_timestamp,
            codec=self._codec,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        self._sequences[tp] = _after(sequence, records.count)
        request = self._produce_request(tp, batch)
        patience = self._cluster.patience()
        while True:
            try:
                return await self._deliver(tp, request, records.max_timestamp)
            except OttlaError as error:
                await patience.wait(error)
                await self._refresh(tp.topic)

    async def commit(self) -> None:
        """End the transaction: all of it is there for readers with read_committed, or nothing."""
        if not self._added:
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=True,
        )
        await self._coordinated(request, lambda response: int(response.error_code))
        self._added.clear()

    # -- one request -----------------------------------------------------------------------------

    async def _deliver(self, tp: TopicPartition, request: Any, max_timestamp: int) -> int:
        client = self._cluster.client
        leader = await client.leader(*tp)
        response = await client.call(request, leader)
        item = response.responses[0].partition_responses[0]
        code = ErrorCode(item.error_code)
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return NOT_SET
        if code:
            if code in FENCED:
                raise self._fenced()
            more = f": {item.error_message}" if item.error_message else ""
            raise OttlaError(f"{tp} refused records: {error_name(code)}{more}", code)
        # Of a batch that it has already, a broker tells the batch's own time here: so Kafka.
        if item.log_append_time_ms not in {NOT_SET, max_timestamp}:
            raise ConfigError(
                f"topic {tp.topic} sets timestamps itself, so those of the source would be lost: "
                "set message.timestamp.type=CreateTime on it"
            )
        return int(item.base_offset)

    async def _coordinated(
        self, request: Any, code_of: Callable[[Any], int], *, version: int | None = None
    ) -> Any:
        try:
            return await self._coordinator.ask(request, code_of, version=version)
        except OttlaError as error:
            if error.code in FENCED:
                raise self._fenced() from None
            raise

    async def _refresh(self, topic: str) -> None:
        """Ask who leads now; the next attempt tells if no broker responds."""
        try:
            await self._cluster.client.metadata([topic])
        except OttlaError as error:
            if not error.retriable:
                raise

    def _fenced(self) -> ProducerFencedError:
        return ProducerFencedError(
            f"{self.transactional_id} was taken over by another attempt of the task or another "
            "run of the job"
        )

    def _produce_request(self, tp: TopicPartition, batch: bytes) -> Any:
        data = ProduceRequest.PartitionProduceData(index=tp.partition, records=batch)
        topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[data])
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=self._cluster.options.request_timeout_ms,
            topic_data=[topic],
        )


def _after(sequence: int, count: int) -> int:
    return (sequence + count) & MAX_SEQUENCE


def _worst_code(response: Any) -> int:
    """Return the code that matters of a response to AddPartitionsToTxn.

    Partitions that are fine are OPERATION_NOT_ATTEMPTED where another one is not.
    """
    codes = [
        int(one.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]
    wrong = [code for code in codes if code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    return next(iter(wrong), 0)
