"""Starts: which procedure an event's first line belongs to, and with which inputs.

A decider. Invariant: inputs come from the line alone, or from the context that was followed up to
it; a line that begins no procedure is none's. An event from a watch begins with what was read for
it, a request or response with its own line.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ottla.controller import (
    brokers,
    deletion,
    reassignment,
    requested_elections,
    requests,
    topics,
)
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.isr_changes import EPOCHS_FROM, TOPIC_IDS_FROM
from ottla.controller.state_changes import StateChanges
from ottla.explain.lines import Entry
from ottla.model import journal_schema as journaled
from ottla.model.cluster import LeaderAndIsr
from ottla.model.journal_schema import partition_of
from ottla.model.protocol import UNKNOWN_BROKER_EPOCH
from ottla.wire.messages.control import AlterPartitionRequest

Procedure = Callable[[StateChanges], Awaitable[Any]]

_BY_READ: Mapping[str, Procedure] = {
    "ReadBrokers": brokers.on_brokers_changed,
    "ReadIsrChanges": requests.on_isr_changes,
    "ReadLogDirEvents": brokers.on_log_dirs_failed,
    "ReadPreferredElection": requested_elections.on_znode,
    "ReadReassignments": reassignment.on_znode_changed,
    "ReadTopicDeletions": deletion.on_requests,
    "ReadTopicChanges": topics.on_topics_changed,
}


def start_of(context: Context, entry: Entry) -> Procedure | None:
    """Return the procedure that a line begins, or None."""
    facts = entry.facts
    if isinstance(facts, journaled.EffectPerformed):
        return _start_by_read(facts)
    return _start_by_request(context, facts) or _start_by_response(context, facts)


def _start_by_read(facts: journaled.EffectPerformed) -> Procedure | None:
    match facts.effect:
        case "ReadBroker":
            return lambda c: brokers.take_modified(c, facts.arguments["broker"])
        case "ReadTopics":
            return lambda c: topics.on_partitions_modified(c, facts.arguments["topics"][0])
        case "AllocateProducerIds":
            return lambda c: c.cluster.allocate_producer_ids(facts.arguments["broker"])
    return _BY_READ.get(facts.effect)


def _start_by_request(context: Context, facts: object) -> Procedure | None:
    match facts:
        case journaled.PartitionChangeAsked():
            request = _alter_partition(context, facts)
            return lambda c: requests.alter_partition(c, request, lambda _response: None)
        case journaled.ShutdownAsked(broker=broker):
            return lambda c: requests.shut_down(c, broker)
        case journaled.ReassignmentsAsked(targets=targets):
            wanted = {partition_of(tp): target for tp, target in targets.items()}
            return lambda c: reassignment.on_request(c, wanted)
        case journaled.ElectionsAsked(kind=kind, partitions=names):
            chosen = list(map(partition_of, names))
            return lambda c: requested_elections.on_request(c, ElectionKind(kind), chosen)
        case journaled.LeaderBalanceDue(limit=limit):
            return lambda c: requested_elections.on_balance_due(c, limit)
        case journaled.UncleanElectionEnabled(topic=topic):
            name = None if topic == journaled.EVERY_TOPIC else topic
            return lambda c: brokers.on_unclean_elections_enabled(c, name)
    return None


def _start_by_response(context: Context, facts: object) -> Procedure | None:
    match facts:
        case journaled.ProcessGone(broker=gone, evidence=evidence) if gone in context.brokers:
            registered = context.brokers[gone]
            return lambda c: brokers.remove_registration(c, registered, evidence)
        case journaled.LeaderAndIsrAnswered(broker=broker, offline=offline, online=online):
            failed, returned = list(map(partition_of, offline)), list(map(partition_of, online))
            return lambda c: brokers.on_replicas_hosted(c, broker, failed, returned)
        case journaled.ReplicasReturned(broker=broker, online=online):
            again = list(map(partition_of, online))
            return lambda c: brokers.on_replicas_hosted(c, broker, [], again)
        case journaled.StopReplicaResponse(broker=broker, deleted=deleted, failed=failed):
            done, not_done = list(map(partition_of, deleted)), list(map(partition_of, failed))
            return lambda c: deletion.on_replicas_deleted(c, broker, done, not_done)
        case journaled.BrokerFellBehind(broker=broker):
            return lambda c: brokers.full_resync(c, broker)
    return None


def _alter_partition(
    context: Context, facts: journaled.PartitionChangeAsked
) -> AlterPartitionRequest:
    """Return the request whose line this is."""
    by_topic: dict[str, AlterPartitionRequest.TopicData] = {}
    for text, proposed in facts.partitions.items():
        tp, epochs = partition_of(text), facts.epochs.get(text, {})
        if tp.topic not in by_topic:
            topic_id = context.topic_id(tp.topic)
            by_topic[tp.topic] = topic_data(tp.topic, topic_id, facts.version)
        partition = partition_data(tp.partition, proposed, epochs, facts.version)
        by_topic[tp.topic].partitions.append(partition)
    return AlterPartitionRequest(
        broker_id=facts.broker, broker_epoch=facts.broker_epoch, topics=list(by_topic.values())
    )


def topic_data(name: str, topic_id: bytes, version: int) -> AlterPartitionRequest.TopicData:
    """Return a topic of AlterPartition, by its id or, in older versions, by its name."""
    if version >= TOPIC_IDS_FROM:
        return AlterPartitionRequest.TopicData(topic_id=topic_id)
    return AlterPartitionRequest.TopicData(topic_name=name)


def partition_data(
    number: int, proposed: LeaderAndIsr, epochs: Mapping[int, int], version: int
) -> AlterPartitionRequest.PartitionData:
    """Return a partition of AlterPartition; `epochs`: those of ISR members that are named."""
    partition = AlterPartitionRequest.PartitionData(
        partition_index=number,
        leader_epoch=proposed.leader_epoch,
        partition_epoch=proposed.partition_epoch,
        leader_recovery_state=proposed.recovery_state,
    )
    if version >= EPOCHS_FROM:
        partition.new_isr_with_epochs = [
            AlterPartitionRequest.BrokerState(
                broker_id=b, broker_epoch=epochs.get(b, UNKNOWN_BROKER_EPOCH)
            )
            for b in proposed.isr
        ]
    else:
        partition.new_isr = list(proposed.isr)
    return partition
