"""Writing in transactions: one transactional id, one batch in flight for each partition.

Invariants: `open` fences the previous producer of the id and waits until its transaction has ended;
after ProducerFencedError nothing more is written; every wait without a success ends after
`patience_s`; a request whose response is lost is sent again as it was, which brokers take once
(sequence numbers; EndTxn twice is the same). Kafka: `TransactionManager`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.client.client import Client
from ottla.client.coordinators import TRANSACTION, Coordinator, code_of_all
from ottla.client.error_texts import failure
from ottla.client.group_member import GroupMember, Seat
from ottla.client.group_resets import offsets_by_topic, worst_code
from ottla.client.producer import Numbers, Sequences, produce
from ottla.model.errors import RETRIABLE, ConfigError, ErrorCode, OttlaError, ProducerFencedError
from ottla.model.ids import TopicPartition, by_topic
from ottla.model.protocol import NO_TIMESTAMP
from ottla.wire import compression
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from ottla.wire.records import frame_batch
from ottla.wire.schema import R, Request

LAST_VERSION_FOR_CLIENTS = 3
"""AddPartitionsToTxn from version 4 on is for brokers."""
TIMEOUT_MS = 60_000
"""Brokers abort a transaction that is open for longer."""

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

    def framed(self, codec: int, numbers: Numbers, *, transactional: bool) -> bytes:
        """Return the batch, with the numbers that `Sequences.take` gave for its records."""
        return frame_batch(
            self.payload,
            count=self.count,
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            codec=codec,
            is_transactional=transactional,
            **numbers,
        )


class TransactionalProducer:
    """Writes to one cluster under one transactional id."""

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        codec: int = compression.NONE,
        *,
        patience_s: float,
        request_timeout_s: float,
        timeout_ms: int = TIMEOUT_MS,
        any_time: bool = False,
    ) -> None:
        """`patience_s`: how long anything is tried again without a success.

        Brokers abort a transaction that is open for longer than `timeout_ms`. `any_time`: topics
        may set the records' timestamps themselves.
        """
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._any_time = any_time
        self._client = client
        self._codec = codec
        self._patience_s = patience_s
        self._request_timeout_s = request_timeout_s
        self._coordinator = Coordinator(
            client, transactional_id, TRANSACTION, patience_s=patience_s
        )
        self._sequences = Sequences()
        self._added: set[TopicPartition | str] = set()
        """Partitions, and groups by their names, that are part of the transaction."""

    async def open(self, *, renew: bool = False) -> None:
        """Take the id: the previous producer can no longer write, and its transaction has ended.

        With `renew` only a new epoch is asked for (KIP-360): it is refused if another has the id.
        """
        known = self._sequences if renew else Sequences()
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
        )
        response = await self._coordinated("InitProducerId", request)
        self._sequences = Sequences(response.producer_id, response.producer_epoch)
        self._added.clear()

    @property
    def identity(self) -> tuple[int, int]:
        """Return the producer id and its epoch, by which `resume` continues elsewhere."""
        return self._sequences.producer_id, self._sequences.producer_epoch

    def resume(self, identity: tuple[int, int]) -> None:
        """Continue as the producer that another process opened and wrote nothing more with."""
        self._sequences = Sequences(*identity)

    async def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Tell the coordinator which partitions the transaction writes to."""
        new = [tp for tp in partitions if tp not in self._added]
        if not new:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._sequences.producer_id,
            v3_and_below_producer_epoch=self._sequences.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in by_topic(new).items()
            ],
        )
        await self._coordinated(
            "AddPartitionsToTxn", request, _worst_code, version=LAST_VERSION_FOR_CLIENTS
        )
        self._added.update(new)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], member: GroupMember, seat: Seat
    ) -> None:
        """Make a group's offsets part of the transaction, as of a member's generation (KIP-447)."""
        if member.group not in self._added:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._sequences.producer_id,
                producer_epoch=self._sequences.producer_epoch,
                group_id=member.group,
            )
            await self._coordinated("AddOffsetsToTxn", request)
            self._added.add(member.group)
        r = TxnOffsetCommitRequest
        commit = r(
            transactional_id=self.transactional_id,
            producer_id=self._sequences.producer_id,
            producer_epoch=self._sequences.producer_epoch,
            group_id=member.group,
            generation_id=seat.generation,
            member_id=seat.member_id,
            group_instance_id=member.instance_id,
            topics=offsets_by_topic(
                r.TxnOffsetCommitRequestTopic, r.TxnOffsetCommitRequestPartition, offsets
            ),
        )
        response = await member.ask(commit, worst_code, again=RETRIABLE)
        self._check("TxnOffsetCommit", worst_code(response))

    async def send(self, tp: TopicPartition, records: Encoded) -> int:
        """Write a batch; return the first offset, -1 where the broker only says it has it.

        ConfigError if the topic sets timestamps itself: those of the records would be lost.
        """
        await self.add([tp])
        numbers = self._sequences.take(tp, records.count)
        batch = records.framed(self._codec, numbers, transactional=True)
        patience = self._client.patience(self._patience_s)
        while True:
            try:
                return await self._deliver(tp, batch, records.max_timestamp)
            except OttlaError as error:
                if error.code in FENCED:
                    raise self._fenced() from None
                await patience.wait(error)
                await self._client.refresh([tp.topic])

    async def commit(self) -> None:
        """End the transaction: all of it is there for readers with read_committed, or nothing."""
        if self._added:
            await self.end(committed=True)

    async def abort(self) -> None:
        """End the transaction, if there is one, as if it had not been."""
        if self._added:
            await self.end(committed=False)

    async def end(self, *, committed: bool) -> None:
        """Commit or abort, whichever process wrote; the same end may be asked for again."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._sequences.producer_id,
            producer_epoch=self._sequences.producer_epoch,
            committed=committed,
        )
        await self._coordinated("EndTxn", request)
        self._added.clear()

    async def _deliver(self, tp: TopicPartition, batch: bytes, max_timestamp: int) -> int:
        leader = await self._client.leader(*tp)
        found = await produce(
            self._client,
            leader,
            tp,
            batch,
            transactional_id=self.transactional_id,
            timeout_s=self._request_timeout_s,
        )
        # Of a batch that it has already, a broker tells the batch's own time here: so Kafka.
        if not self._any_time and found.log_append_time_ms not in {NO_TIMESTAMP, max_timestamp}:
            raise ConfigError(
                f"topic {tp.topic} sets timestamps itself, so those of the records would be lost: "
                "set message.timestamp.type=CreateTime on it"
            )
        return int(found.base_offset)

    async def _coordinated(
        self,
        what: str,
        request: Request[R],
        code_of: Callable[[R], int] = code_of_all,
        *,
        version: int | None = None,
    ) -> R:
        """Return the coordinator's response to a request, `what`, that is not refused."""
        response = await self._ask(request, code_of, again=RETRIABLE, version=version)
        self._check(what, code_of(response))
        return response

    async def _ask(self, request: Request[R], code_of: Callable[[R], int], **how: Any) -> R:
        return await self._coordinator.ask(request, code_of, **how)

    def _check(self, what: str, code: int) -> None:  # noqa: ARG002 - for those who are derived
        """Raise what an error code means; nothing for 0."""
        if code in FENCED:
            raise self._fenced()
        if code:
            raise failure(f"transactional id {self.transactional_id}", code)

    def _fenced(self) -> ProducerFencedError:
        return ProducerFencedError(
            f"{self.transactional_id} was taken over by another attempt of the task or another "
            "run of the job"
        )


def _worst_code(response: AddPartitionsToTxnResponse) -> int:
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
