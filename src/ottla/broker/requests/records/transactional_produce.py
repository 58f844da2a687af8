"""Transactional produce: verify which of a request's partitions may be appended to.

Invariants: a partition where the transaction has data already is not verified again; a result
counts only with the guard of its verification. An error that may pass is answered as
NOT_ENOUGH_REPLICAS, which producers of every version retry without a refresh of their metadata.
Kafka: `ReplicaManager.maybeStartTransactionVerificationForPartitions` (KIP-890, part 1).
"""

from dataclasses import dataclass, field

from ottla.broker.requests.access import Asking
from ottla.broker.services import BrokerServices
from ottla.coordinators.requests import PartitionErrors, ProducerIdAndEpoch
from ottla.log.producers import Guard
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.connection import CloseConnection
from ottla.security.acls import TRANSACTIONAL_ID, WRITE
from ottla.wire.batch_header import (
    FLAGS_AT,
    HEADER_BYTES,
    TRANSACTIONAL_FLAG,
    unpack_producer,
)
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.records import ProduceRequest

RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class UnverifiedError(OttlaError):
    """A batch that the coordinator did not verify; it was not appended."""


@dataclass(slots=True)
class Verified:
    """What may be appended: guards of partitions that were verified, errors of others."""

    guards: dict[TopicPartition, Guard] = field(default_factory=dict)
    errors: dict[TopicPartition, OttlaError] = field(default_factory=dict)

    def guard(self, tp: TopicPartition) -> Guard | None:
        """Return the guard to append with; raises the error of a partition that was refused."""
        error = self.errors.get(tp)
        if error is not None:
            raise error
        return self.guards.get(tp)

    def refuse(self, errors: PartitionErrors) -> None:
        """Note which partitions the coordinator did not find in the transaction, and why."""
        for tp, code in errors.items():
            self.errors[tp] = _as_produce_error(code)


def is_transactional(records: memoryview) -> bool:
    """Whether a batch, whose header is there at least up to its attributes, belongs to one."""
    return bool(records[FLAGS_AT] & TRANSACTIONAL_FLAG)


def check_access(asking: Asking, _header: RequestHeader, request: ProduceRequest) -> None:
    """Raise the error of who may not write in this transaction: batches say that they are of one.

    It is the batch that counts, not the id that the request names (CVE-2018-17196).
    """
    if not _has_transactional(request):
        return
    name = request.transactional_id
    if name is None or not asking.may(WRITE, TRANSACTIONAL_ID, name):
        if request.acks == 0:
            raise CloseConnection("not authorized to write in a transaction")
        raise OttlaError("", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _has_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for item in topic.partition_data:
            records = item.records
            if records is not None and len(records) > FLAGS_AT and is_transactional(records):
                return True
    return False


def begin(
    server: BrokerServices, request: ProduceRequest
) -> tuple[Verified, ProducerIdAndEpoch | None]:
    """Return what is to be verified, by its guards, and whose transaction that is.

    No producer: none of the batches belongs to a transaction.
    """
    found = Verified()
    producers: dict[tuple[int, int], None] = {}
    batches: dict[TopicPartition, int] = {}
    for topic in request.topic_data:
        for item in topic.partition_data:
            records = item.records
            if records is None or len(records) < HEADER_BYTES or not is_transactional(records):
                continue
            producer_id, epoch, sequence = unpack_producer(records)
            if producer_id < 0:
                # Marked as transactional, but without a producer: Kafka appends it unverified.
                continue
            producers[producer_id, epoch] = None
            batches[TopicPartition(topic.name, item.index)] = sequence
    if not batches:
        return found, None
    if len(producers) > 1:
        raise OttlaError(
            "Transactional records contained more than one producer ID",
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )
    producer = ProducerIdAndEpoch(*next(iter(producers)))
    now_ms = server.world.clock.wall_ms()
    for tp, sequence in batches.items():
        try:
            log = server.replicas.hosted(*tp).local_log(leader_only=True)
        except OttlaError as error:
            found.errors[tp] = error
            continue
        guard = log.producers.begin_verification(*producer, sequence, now_ms)
        if guard is not None:
            found.guards[tp] = guard
    return found, producer


def _as_produce_error(code: ErrorCode) -> UnverifiedError:
    """Return the producer's error; only translated ones have a message, as in Kafka."""
    if code in RETRIED:
        return UnverifiedError(
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{code.name}",
            ErrorCode.NOT_ENOUGH_REPLICAS,
        )
    if code is ErrorCode.INVALID_TXN_STATE:
        return UnverifiedError("Partition was not added to the transaction", code)
    return UnverifiedError("", code)
