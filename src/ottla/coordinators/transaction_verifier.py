"""Transaction verification: asking the coordinator whether a partition is part of a transaction.

A leader does so before a transaction's first batch in a partition (KIP-890, part 1): a batch that
comes late, after its transaction was aborted, would otherwise hang in the log undecided for ever.
Who may call: handlers of Produce and TxnOffsetCommit. Invariants: whoever asks is answered once;
a coordinator on this broker is asked without the network; for each transactional id at most one
question waits, the one with the newest epoch. Kafka: `AddPartitionsToTxnManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from ottla.coordinators.transaction_channels import Channel
from ottla.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.coordinators.transaction_markers import Leaders
from ottla.coordinators.transactions import ProducerIdAndEpoch
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.model.ports import World
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

logger = logging.getLogger(__name__)

VERSION = 4
FIRST_LEVEL = (3, 5)
"""Brokers of older protocols cannot be asked; then nothing is verified, as in Kafka."""

Verdict = dict[TopicPartition, ErrorCode]
"""The errors of partitions that may not be written to; those left out may."""

Then = Callable[[Verdict], None]


class _Question(NamedTuple):
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Collection[TopicPartition]
    then: Then
    knows_abortable: bool

    def fail(self, error: ErrorCode) -> None:
        self.then(dict.fromkeys(self.partitions, error))

    def answer(self, codes: Verdict) -> None:
        """Pass on what the coordinator says, in words that a producer of old knows."""
        verdict = {}
        for tp, code in codes.items():
            if code is ErrorCode.PRODUCER_FENCED:
                verdict[tp] = ErrorCode.INVALID_PRODUCER_EPOCH
            elif code is ErrorCode.TRANSACTION_ABORTABLE and not self.knows_abortable:
                verdict[tp] = ErrorCode.INVALID_TXN_STATE
            elif code is not ErrorCode.NONE:
                verdict[tp] = code
        self.then(verdict)


class TransactionVerifier:
    """Questions to coordinators, a queue for each."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        leaders: Leaders,
        coordinator: TransactionCoordinator,
    ) -> None:
        self._world = world
        self._config = config
        self._leaders = leaders
        self._coordinator = coordinator
        self._can_ask = config.protocol_level >= FIRST_LEVEL
        self._queues: dict[int, dict[str, _Question]] = {}
        self._channels: dict[int, Channel] = {}
        self._askers: dict[int, asyncio.Task[None]] = {}

    @property
    def enabled(self) -> bool:
        return self._config.flag("transaction.partition.verification.enable")

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        then: Then,
        *,
        knows_abortable: bool,
    ) -> None:
        """Ask about partitions; `then` is called at once if the coordinator is here."""
        question = _Question(transactional_id, producer, partitions, then, knows_abortable)
        log = self._coordinator.log
        index = log.partition_for(transactional_id)
        found = self._leaders.partition(log.topic, index)
        if found is None or found.leader == NO_LEADER:
            question.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif found.leader == self._config.broker_id:
            question.answer(
                self._coordinator.verify_partitions(transactional_id, producer, partitions)
            )
        elif not self._can_ask:
            then({})
        else:
            self._queue(found.leader, question)

    def _queue(self, broker_id: int, question: _Question) -> None:
        queue = self._queues.setdefault(broker_id, {})
        older = queue.get(question.transactional_id)
        if older is not None:
            epoch, older_epoch = question.producer.epoch, older.producer.epoch
            if epoch < older_epoch:
                question.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            # The same epoch: its producer asks once more, so it waits for this one no longer.
            fenced = epoch > older_epoch
            error = ErrorCode.INVALID_PRODUCER_EPOCH if fenced else ErrorCode.NETWORK_EXCEPTION
            older.fail(error)
        queue[question.transactional_id] = question
        if broker_id not in self._askers:
            task = asyncio.get_running_loop().create_task(
                self._ask(broker_id), name=f"verify-{broker_id}"
            )
            self._askers[broker_id] = task

    async def _ask(self, broker_id: int) -> None:
        """Ask one coordinator until no question waits. A loop root."""
        try:
            while questions := self._queues.pop(broker_id, None):
                try:
                    await self._request(broker_id, questions)
                except OttlaError as error:
                    logger.info("transactions not verified broker=%d error=%s", broker_id, error)
                    for question in questions.values():
                        question.fail(ErrorCode.NETWORK_EXCEPTION)
                except Exception:
                    logger.exception("transactions not verified broker=%d", broker_id)
                    for question in questions.values():
                        question.fail(ErrorCode.NETWORK_EXCEPTION)
        finally:
            del self._askers[broker_id]

    async def _request(self, broker_id: int, questions: dict[str, _Question]) -> None:
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = Channel(
                self._world, self._config, "transaction-verifier"
            )
        endpoint = self._leaders.endpoint(broker_id, self._config.inter_broker_listener)
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(question) for question in questions.values()]
        )
        response = await channel.send(endpoint, request, VERSION)
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = ErrorCode.INVALID_TXN_STATE  # not the producer's authorization
            for question in questions.values():
                question.fail(code)
            return
        found = _results(response)
        for name, question in questions.items():
            codes = found.get(name, {})
            question.answer(
                {tp: codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR) for tp in question.partitions}
            )

    async def close(self) -> None:
        """Ask nothing any more."""
        askers = list(self._askers.values())
        for task in askers:
            task.cancel()
        await asyncio.gather(*askers, return_exceptions=True)
        for channel in self._channels.values():
            channel.close()


def _transaction(question: _Question) -> AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        by_topic.setdefault(topic, []).append(index)
    one = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.epoch,
        verify_only=True,
        topics=[one(name=t, partitions=indexes) for t, indexes in by_topic.items()],
    )


def _results(response: AddPartitionsToTxnResponse) -> dict[str, Verdict]:
    return {
        result.transactional_id: {
            TopicPartition(topic.name, p.partition_index): ErrorCode(p.partition_error_code)
            for topic in result.topic_results
            for p in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
