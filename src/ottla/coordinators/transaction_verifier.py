"""Transaction verification: ask the coordinator whether a partition is part of a transaction.

A leader does so before a transaction's first batch in a partition (KIP-890, part 1): a batch that
comes after its transaction was aborted would otherwise stay in the log without a marker (a hanging
transaction). Invariants: each request is answered once; a coordinator on this broker is asked
without the network; for each transactional id at most one verification waits, the one with the
newest epoch. Kafka: `AddPartitionsToTxnManager`.
"""

import logging
from collections.abc import Collection
from typing import NamedTuple

from ottla.coordinators.requests import AwaitsVerification, PartitionErrors, ProducerIdAndEpoch
from ottla.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.coordinators.transaction_markers import Leaders, TransactionChannels
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.model.ports import World
from ottla.security.client import ClientSecurity
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

logger = logging.getLogger(__name__)

VERSION = 4
FIRST_LEVEL = (3, 5)
"""Brokers of older protocols cannot verify; then nothing is verified, as in Kafka."""


class _Verification(NamedTuple):
    """A question that waits for another broker's response."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Collection[TopicPartition]
    request: AwaitsVerification
    knows_abortable: bool

    def fail(self, error: ErrorCode) -> None:
        self.request.on_verified(dict.fromkeys(self.partitions, error))

    def respond(self, codes: PartitionErrors) -> None:
        self.request.on_verified(self.known(codes))

    def known(self, codes: PartitionErrors) -> PartitionErrors:
        """Return the coordinator's errors, as errors that older producers know."""
        errors = {}
        for tp, code in codes.items():
            if code is ErrorCode.PRODUCER_FENCED:
                errors[tp] = ErrorCode.INVALID_PRODUCER_EPOCH
            elif code is ErrorCode.TRANSACTION_ABORTABLE and not self.knows_abortable:
                errors[tp] = ErrorCode.INVALID_TXN_STATE
            elif code is not ErrorCode.NONE:
                errors[tp] = code
        return errors


class TransactionVerifier:
    """Verifications to send, a queue for each coordinator."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        leaders: Leaders,
        coordinator: TransactionCoordinator,
        security: ClientSecurity | None = None,
    ) -> None:
        self._channels = TransactionChannels(
            world, config, leaders, "transaction-verifier", self._send_queued, security
        )
        self._config = config
        self._leaders = leaders
        self._coordinator = coordinator
        self._can_verify = config.protocol_level >= FIRST_LEVEL
        self._queues: dict[int, dict[str, _Verification]] = {}

    @property
    def enabled(self) -> bool:
        return self._config.flag("transaction.partition.verification.enable")

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        request: AwaitsVerification,
        *,
        knows_abortable: bool,
    ) -> PartitionErrors | None:
        """Return the partitions that are not part of the transaction, with the reasons.

        None if another broker gets a request: `request` gets its result later.
        """
        verification = _Verification(
            transactional_id, producer, partitions, request, knows_abortable
        )
        log = self._coordinator.log
        index = log.partition_for(transactional_id)
        found = self._leaders.partition(log.topic, index)
        if found is None or found.leader == NO_LEADER:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if found.leader == self._config.broker_id:
            codes = self._coordinator.verify_partitions(transactional_id, producer, partitions)
            return verification.known(codes)
        if not self._can_verify:
            return {}
        if not self._queue(found.leader, verification):
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_EPOCH)
        return None

    def _queue(self, broker_id: int, verification: _Verification) -> bool:
        """Have a verification sent; return False if one with a newer epoch waits already."""
        queue = self._queues.setdefault(broker_id, {})
        older = queue.get(verification.transactional_id)
        if older is not None:
            epoch, older_epoch = verification.producer.epoch, older.producer.epoch
            if epoch < older_epoch:
                return False
            # The same epoch: its producer has sent a new request and does not wait for the old.
            fenced = epoch > older_epoch
            error = ErrorCode.INVALID_PRODUCER_EPOCH if fenced else ErrorCode.NETWORK_EXCEPTION
            older.fail(error)
        queue[verification.transactional_id] = verification
        self._channels.start(broker_id)
        return True

    async def _send_queued(self, broker_id: int) -> None:
        """Send to one coordinator until no verification waits. A loop root."""
        try:
            while verifications := self._queues.pop(broker_id, None):
                try:
                    await self._request(broker_id, verifications)
                except OttlaError as error:
                    logger.info("transactions not verified broker=%d error=%s", broker_id, error)
                    for verification in verifications.values():
                        verification.fail(ErrorCode.NETWORK_EXCEPTION)
                except Exception:
                    logger.exception("transactions not verified broker=%d", broker_id)
                    for verification in verifications.values():
                        verification.fail(ErrorCode.NETWORK_EXCEPTION)
        finally:
            self._channels.ended(broker_id)

    async def _request(self, broker_id: int, verifications: dict[str, _Verification]) -> None:
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(verification) for verification in verifications.values()]
        )
        response = await self._channels.send(broker_id, request, VERSION)
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = ErrorCode.INVALID_TXN_STATE  # not the producer's authorization
            for verification in verifications.values():
                verification.fail(code)
            return
        found = _results(response)
        for name, verification in verifications.items():
            codes = found.get(name, {})
            verification.respond(
                {
                    tp: codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
                    for tp in verification.partitions
                }
            )

    async def close(self) -> None:
        """Stop sending."""
        await self._channels.close()


def _transaction(
    verification: _Verification,
) -> AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for topic, index in verification.partitions:
        by_topic.setdefault(topic, []).append(index)
    one = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=verification.transactional_id,
        producer_id=verification.producer.producer_id,
        producer_epoch=verification.producer.epoch,
        verify_only=True,
        topics=[one(name=t, partitions=indexes) for t, indexes in by_topic.items()],
    )


def _results(response: AddPartitionsToTxnResponse) -> dict[str, PartitionErrors]:
    return {
        result.transactional_id: {
            TopicPartition(topic.name, p.partition_index): ErrorCode(p.partition_error_code)
            for topic in result.topic_results
            for p in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
