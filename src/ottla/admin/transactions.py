"""Transactions as an operator asks for them: list, describe, and abort one that hangs.

Who may call: `transactions_command`. Invariants: speaks the wire alone, so a real Kafka answers as
well; an abort is written only where the partition's leader still shows that very transaction, with
the epochs it shows. Answers to Kafka's `TransactionsCommand` (KIP-664).
"""

import msgspec

from ottla.admin.coordinators import TRANSACTION, at_coordinator, at_each_broker
from ottla.admin.session import failure
from ottla.model.errors import OttlaError
from ottla.net.client import Client
from ottla.wire.messages.describe_producers import DescribeProducersRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest

NONE = -1


class TransactionRow(msgspec.Struct, frozen=True):
    """A transactional id in a list."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class TransactionFacts(msgspec.Struct, frozen=True):
    """A transactional id and its transaction; the start is milliseconds since 1970, or None."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    coordinator: int
    timeout_ms: int
    start_ms: int | None
    partitions: list[str]


class ProducerFacts(msgspec.Struct, frozen=True):
    """A producer as a partition's leader knows it; None where there is nothing to tell."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


def _checked(what: str, code: int) -> None:
    if code:
        raise failure(what, code)


async def list_transactions(client: Client, states: list[str]) -> list[TransactionRow]:
    """Ask every broker for the ids it coordinates; OttlaError names a state that is none."""
    rows = []
    request = ListTransactionsRequest(state_filters=states, producer_id_filters=[])
    for broker, answer in await at_each_broker(client, request, "transactions of broker"):
        if answer.unknown_state_filters:
            raise OttlaError(f"there is no state {', '.join(answer.unknown_state_filters)}")
        rows += [
            TransactionRow(t.transactional_id, t.transaction_state, t.producer_id, broker)
            for t in answer.transaction_states
        ]
    return sorted(rows, key=lambda row: row.transactional_id)


async def describe(client: Client, transactional_id: str) -> TransactionFacts:
    """Ask an id's coordinator, waiting a while for one that is not there yet."""
    node, answer = await at_coordinator(
        client,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        lambda a: a.transaction_states[0].error_code,
        kind=TRANSACTION,
    )
    found = answer.transaction_states[0]
    _checked(f"transactional id {transactional_id}", found.error_code)
    return TransactionFacts(
        found.transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        node,
        found.transaction_timeout_ms,
        None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
        [f"{t.topic}-{p}" for t in found.topics for p in t.partitions],
    )


async def producers(client: Client, topic: str, partition: int) -> list[ProducerFacts]:
    """Ask a partition's leader for the producers it knows."""
    leader = await client.leader(topic, partition, refresh=True)
    one = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
    answer = await client.call(DescribeProducersRequest(topics=[one]), leader)
    found = answer.topics[0].partitions[0]
    _checked(f"{topic}-{partition}", found.error_code)
    return [
        ProducerFacts(
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            None if p.current_txn_start_offset == NONE else p.current_txn_start_offset,
        )
        for p in found.active_producers
    ]


async def abort(client: Client, topic: str, partition: int, start_offset: int) -> ProducerFacts:
    """Write an abort marker for the transaction that began at an offset; return whose it was.

    For what hangs: its coordinator knows nothing of it any more, or the partition would be marked.
    """
    for producer in await producers(client, topic, partition):
        if producer.transaction_start_offset == start_offset:
            break
    else:
        raise OttlaError(f"{topic}-{partition}: no open transaction began at {start_offset}")
    leader = await client.leader(topic, partition)
    r = WriteTxnMarkersRequest
    marker = r.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        # A transaction that no coordinator has ended yet has none; any will do then.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
        transaction_result=False,
        topics=[r.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
    )
    answer = await client.call(r(markers=[marker]), leader)
    _checked(f"{topic}-{partition}", answer.markers[0].topics[0].partitions[0].error_code)
    return producer
