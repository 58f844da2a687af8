"""Transactions as an operator asks for them: list, describe, and abort one that hangs.

Invariants: speaks the wire alone, so a real Kafka responds as well; an abort is written only where
the partition's leader still shows that very transaction, with the epochs it shows. Kafka:
`TransactionsCommand` (KIP-664).
"""

from collections.abc import Iterable, Sequence

import msgspec

from ottla.client.client import Client, partitions_of
from ottla.client.coordinators import TRANSACTION, at_coordinator, at_each_broker, at_each_leader
from ottla.client.error_texts import failure
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import Partition, TopicPartition, by_topic
from ottla.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)

NONE = -1
AT_ONCE = 500
"""Partitions in one DescribeProducers: leaders are not to be overwhelmed."""


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
    partitions: list[Partition]


class ProducerFacts(msgspec.Struct, frozen=True):
    """A producer as a partition's leader knows it; None where a value is unknown."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


def _checked(what: str, code: int) -> None:
    if code:
        raise failure(what, code)


async def list_transactions(
    client: Client, states: list[str], problems: list[str] | None = None
) -> list[TransactionRow]:
    """Ask every broker for the ids it coordinates; OttlaError names an unknown state.

    What a broker does not tell becomes a line of `problems`; OttlaError for None.
    """
    rows = []
    request = ListTransactionsRequest(state_filters=states, producer_id_filters=[])
    for broker, response in await at_each_broker(
        client, request, "transactions of broker", problems
    ):
        if response.unknown_state_filters:
            raise OttlaError(f"there is no state {', '.join(response.unknown_state_filters)}")
        rows += [
            TransactionRow(t.transactional_id, t.transaction_state, t.producer_id, broker)
            for t in response.transaction_states
        ]
    return sorted(rows, key=lambda row: row.transactional_id)


async def describe(client: Client, transactional_id: str) -> TransactionFacts:
    """Ask an id's coordinator, waiting a while for one that is not there yet."""
    node, response = await at_coordinator(
        client,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        lambda a: a.transaction_states[0].error_code,
        kind=TRANSACTION,
    )
    found = response.transaction_states[0]
    _checked(f"transactional id {transactional_id}", found.error_code)
    return TransactionFacts(
        found.transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        node,
        found.transaction_timeout_ms,
        None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
        [Partition(t.topic, p) for t in found.topics for p in t.partitions],
    )


async def producers(client: Client, topic: str, partition: int) -> list[ProducerFacts]:
    """Ask a partition's leader for the producers it knows."""
    leader = await client.leader(topic, partition, refresh=True)
    response = await client.call(_producers_request([TopicPartition(topic, partition)]), leader)
    found = response.topics[0].partitions[0]
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


def _producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    r = DescribeProducersRequest
    topics = by_topic(partitions).items()
    return r(topics=[r.TopicRequest(name=n, partition_indexes=ps) for n, ps in topics])


class Hanging(Partition, frozen=True):
    """An open transaction that does not end; `last_timestamp` is its last record's."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp: int


async def hanging(
    client: Client,
    topics: Sequence[str] | None,
    older_than_ms: int,
    now_ms: int,
    problems: list[str] | None = None,
) -> list[Hanging]:
    """Find what is open in these topics, in all for None, and unknown to its coordinator.

    A leader or a partition that does not tell becomes a line of `problems`; OttlaError for None.

    Younger ones than `older_than_ms` are passed over: their coordinator may still be notified of
    them.
    """
    found = [
        h
        for h in await _open(client, topics, problems)
        if now_ms - h.last_timestamp >= older_than_ms
    ]
    if not found:
        return []
    owners = {t.producer_id: t.transactional_id for t in await list_transactions(client, [])}
    known: dict[int, list[Partition]] = {}
    for producer_id in {h.producer_id for h in found}.intersection(owners):
        try:
            facts = await describe(client, owners[producer_id])
        except OttlaError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue
        known[producer_id] = facts.partitions
    return [h for h in found if Partition(h.topic, h.partition) not in known.get(h.producer_id, ())]


async def _open(
    client: Client, topics: Sequence[str] | None, problems: list[str] | None
) -> list[Hanging]:
    """Ask all leaders for the open transactions in their partitions."""
    metadata = await client.metadata(None if topics is None else list(topics))
    for topic in metadata.topics:
        _checked(f"topic {topic.name}", topic.error_code)
    partitions = [tp for tp, _ in partitions_of(metadata)]
    asked = await at_each_leader(client, partitions, _producers_request, at_once=AT_ONCE)
    asked.note("producers", problems)
    found = [
        opened
        for response in asked.responses
        for topic in response.topics
        for partition in topic.partitions
        for opened in _open_in(topic.name, partition, problems)
    ]
    return sorted(found, key=lambda h: (h.topic, h.partition, h.start_offset))


def _open_in(
    topic: str,
    partition: DescribeProducersResponse.PartitionResponse,
    problems: list[str] | None,
) -> list[Hanging]:
    if partition.error_code:
        refused = failure(f"{topic}-{partition.partition_index}", partition.error_code)
        if problems is None:
            raise refused
        problems.append(str(refused))
    return [
        Hanging(
            topic,
            partition.partition_index,
            p.producer_id,
            p.producer_epoch,
            p.current_txn_start_offset,
            p.last_timestamp,
        )
        for p in partition.active_producers
        if p.current_txn_start_offset != NONE
    ]


async def abort(
    client: Client, topic: str, partition: int, start_offset: int, *, dry_run: bool = False
) -> ProducerFacts:
    """Write an abort marker for the transaction that began at an offset; return whose it was.

    For what hangs: its coordinator knows nothing of it any more, or the partition would be marked.
    """
    for producer in await producers(client, topic, partition):
        if producer.transaction_start_offset == start_offset:
            break
    else:
        raise OttlaError(
            f"{topic}-{partition}: no open transaction began at {start_offset}; "
            f"`ottla txn producers {topic} {partition}` shows where they do"
        )
    if dry_run:
        return producer
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
    response = await client.call(r(markers=[marker]), leader)
    _checked(f"{topic}-{partition}", response.markers[0].topics[0].partitions[0].error_code)
    return producer
