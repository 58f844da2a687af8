"""Starts: which procedure an event's first line belongs to, and with which inputs.

A decider. Who may call: `procedures`, `followed`. Invariant: inputs come from the line alone, or
from the context that was followed up to it; a line that begins no procedure is none's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ottla.controller import (
    brokers,
    deletion,
    reassignment,
    requested_elections,
    requests,
    topics,
)
from ottla.controller.context import Context
from ottla.controller.effects import Steps
from ottla.controller.elections import ElectionKind
from ottla.controller.isr_changes import EPOCHS_FROM, TOPIC_IDS_FROM
from ottla.controller.state_changes import StateChanges
from ottla.explain.lines import Entry
from ottla.model import journal_schema as journaled
from ottla.model.cluster import (
    BrokerInfo,
    Endpoint,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.ids import TopicPartition, uuid_from_text
from ottla.model.journal_schema import partition_of
from ottla.model.protocol import UNKNOWN_BROKER_EPOCH
from ottla.wire.messages.alter_partition import AlterPartitionRequest

Procedure = Callable[[StateChanges], Steps[Any]]


def start_of(context: Context, entry: Entry) -> Procedure | None:
    """Return the procedure that a line begins, or None."""
    facts = entry.facts
    return (
        _start_by_request(context, facts)
        or _start_by_cluster(context, facts)
        or _start_by_response(facts)
    )


def start_of_failover(
    procedure: Callable[[StateChanges, Mapping[TopicPartition, int], Sequence[str]], Steps[None]],
    written_at: Mapping[TopicPartition, int],
    lines: Sequence[Entry],
) -> Procedure:
    """Return the procedure of a controller failover; deletions are in its first line, if at all."""
    deletions: Sequence[str] = ()
    first = lines[0].facts if lines else None
    if isinstance(first, journaled.TopicDeletionsRequested):
        deletions = first.topics
    elif isinstance(first, journaled.EffectPerformed) and first.effect == "DeleteTopicDeletions":
        deletions = first.arguments["topics"]
    return lambda c: procedure(c, written_at, deletions)


def _start_by_request(context: Context, facts: object) -> Procedure | None:
    match facts:
        case journaled.PartitionChangeAsked():
            request = _alter_partition(context, facts)
            return lambda c: requests.alter_partition(c, request)
        case journaled.ShutdownAsked(broker=broker):
            return lambda c: requests.shut_down(c, broker)
        case journaled.ReassignmentsAsked(targets=targets):
            wanted = {partition_of(tp): target for tp, target in targets.items()}
            return lambda c: reassignment.on_request(c, wanted)
        case journaled.EffectPerformed(effect="ReadReassignments"):
            return reassignment.on_znode_changed
        case journaled.TopicDeletionsRequested(topics=names):
            return lambda c: deletion.on_requests(c, names)
        case journaled.PreferredElectionRequested(partitions=names):
            chosen = list(map(partition_of, names))
            return lambda c: requested_elections.on_znode(c, chosen)
        case journaled.ElectionsAsked(kind=kind, partitions=names):
            chosen = list(map(partition_of, names))
            return lambda c: requested_elections.on_request(c, ElectionKind(kind), chosen)
        case journaled.LeaderBalanceDue(limit=limit):
            return lambda c: requested_elections.on_balance_due(c, limit)
        case journaled.UncleanElectionEnabled(topic=topic):
            name = None if topic == journaled.EVERY_TOPIC else topic
            return lambda c: brokers.on_unclean_elections_enabled(c, name)
    return None


def _start_by_cluster(context: Context, facts: object) -> Procedure | None:
    match facts:
        case journaled.BrokersChanged(present=present):
            infos = list(map(broker_of, present))
            return lambda c: brokers.on_brokers_changed(c, infos)
        case journaled.ProcessGone(broker=gone, broker_epoch=epoch, evidence=evidence):
            registered = BrokerInfo(gone, (), epoch=epoch)
            return lambda _c: brokers.on_process_gone(registered, evidence)
        case journaled.BrokerModified(broker=broker, endpoints=endpoints):
            known = context.brokers.get(broker, BrokerInfo(broker, ()))
            new = replace(known, endpoints=tuple(map(_endpoint, endpoints)))
            return lambda c: brokers.on_broker_modified(c, new)
        case journaled.TopicsChanged(gone=gone):
            found = [_topic(facts, name) for name in facts.new]
            return lambda c: topics.on_topics_changed(c, found, gone)
        case journaled.PartitionsModified(topic=topic, added=added):
            if topic not in context.assignments:
                return None
            news = {number: ReplicaAssignment(replicas) for number, replicas in added.items()}
            info = context.topic_info(topic)
            grown = replace(info, assignment={**info.assignment, **news})
            return lambda c: topics.on_partitions_modified(c, topic, grown)
        case journaled.IsrChangesNotified(partitions=names):
            states = {
                partition_of(tp): LeaderIsrAndControllerEpoch(state, context.epoch)
                for tp, state in facts.states.items()
            }
            return lambda c: requests.on_isr_changes(c, list(map(partition_of, names)), states)
        case journaled.LogDirsFailed(brokers=failed):
            return lambda c: brokers.on_log_dirs_failed(c, failed)
    return None


def _start_by_response(facts: object) -> Procedure | None:
    match facts:
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


def broker_of(registration: journaled.Registration) -> BrokerInfo:
    """Return a registration as far as a journal holds it: without endpoints."""
    broker, epoch, rack = registration
    return BrokerInfo(broker, (), rack, epoch)


def _endpoint(text: str) -> Endpoint:
    """Read `LISTENER://host:port`."""
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port), listener)


def _topic(facts: journaled.TopicsChanged, name: str) -> TopicInfo:
    topic_id = uuid_from_text(facts.ids[name]) if name in facts.ids else None
    assignment = {number: ReplicaAssignment(r) for number, r in facts.new[name].items()}
    return TopicInfo(name, topic_id, assignment)


def _alter_partition(
    context: Context, facts: journaled.PartitionChangeAsked
) -> AlterPartitionRequest:
    """Return the request whose line this is."""
    by_topic: dict[str, AlterPartitionRequest.TopicData] = {}
    for text, proposed in facts.partitions.items():
        tp = partition_of(text)
        topic = by_topic.get(tp.topic)
        if topic is None:
            topic = by_topic[tp.topic] = AlterPartitionRequest.TopicData()
            if facts.version >= TOPIC_IDS_FROM:
                topic.topic_id = context.topic_id(tp.topic)
            else:
                topic.topic_name = tp.topic
        partition = AlterPartitionRequest.PartitionData(
            partition_index=tp.partition,
            leader_epoch=proposed.leader_epoch,
            partition_epoch=proposed.partition_epoch,
            leader_recovery_state=proposed.recovery_state,
        )
        if facts.version >= EPOCHS_FROM:
            epochs = facts.epochs.get(text, {})
            partition.new_isr_with_epochs = [
                AlterPartitionRequest.BrokerState(
                    broker_id=b, broker_epoch=epochs.get(b, UNKNOWN_BROKER_EPOCH)
                )
                for b in proposed.isr
            ]
        else:
            partition.new_isr = list(proposed.isr)
        topic.partitions.append(partition)
    return AlterPartitionRequest(
        broker_id=facts.broker, broker_epoch=facts.broker_epoch, topics=list(by_topic.values())
    )
