"""Topics: new ones get their leaders, grown ones their new partitions.

A decider. Who may call: `handlers`. Invariants: a topic is known to the context with its id before
any of its partitions changes its state. Kafka: `processTopicChange`,
`processPartitionModifications` and `onNewPartitionCreation`.
"""

from collections.abc import Sequence

from ottla.controller.effects import YIELD, Logger, Record, Steps, WriteTopic
from ottla.controller.elections import ElectionKind
from ottla.controller.state_changes import StateChanges, slices
from ottla.controller.states import PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.cluster import ReplicaAssignment, TopicInfo
from ottla.model.ids import TopicPartition, uuid_to_text

_log = Logger("topics")


def on_topics_changed(
    changes: StateChanges, new: Sequence[TopicInfo], gone: Sequence[str]
) -> Steps[None]:
    """Take topics that are new, and forget those that are gone."""
    context = changes.context
    for topic in gone:
        context.remove_topic(topic)
    yield Record(
        journaled.TopicsChanged(
            new={i.name: {p: a.replicas for p, a in i.assignment.items()} for i in new},
            gone=list(gone),
            ids={i.name: uuid_to_text(i.topic_id) for i in new if i.topic_id is not None},
        )
    )
    if gone or new:
        yield _log.info(
            "topics changed new=%s deleted=%s", _some([i.name for i in new]), _some(gone)
        )
    for some in slices(new):
        for info in some:
            context.add_topic(info)
        yield YIELD
    partitions = [TopicPartition(info.name, p) for info in new for p in info.assignment]
    yield from _bring_online(changes, partitions)


def on_partitions_modified(changes: StateChanges, topic: str, found: TopicInfo) -> Steps[None]:
    """Take partitions that were added to a topic; undo them if the topic is being deleted."""
    context = changes.context
    known = context.assignments[topic]
    added: dict[int, ReplicaAssignment] = {
        p: a for p, a in found.assignment.items() if p not in known
    }
    if not added:
        return
    replicas = {p: a.replicas for p, a in added.items()}
    yield Record(journaled.PartitionsModified(topic=topic, added=replicas))
    if topic in context.deleting:
        yield _log.warning(
            "new partitions undone topic=%s partitions=%d reason=the topic is being deleted",
            topic,
            len(added),
        )
        yield WriteTopic(context.topic_info(topic))
        return
    for partition, assignment in added.items():
        context.set_assignment(TopicPartition(topic, partition), assignment)
    yield from _bring_online(changes, [TopicPartition(topic, p) for p in added])


def _bring_online(changes: StateChanges, partitions: Sequence[TopicPartition]) -> Steps[None]:
    """Lead new partitions through NewPartition and NewReplica to their first leader."""
    if not partitions:
        return
    replicas = changes.context.replicas_of(partitions)
    yield from changes.partitions(partitions, PartitionState.NEW)
    yield from changes.replicas(replicas, ReplicaState.NEW)
    yield from changes.partitions(partitions, PartitionState.ONLINE, ElectionKind.OFFLINE)
    yield from changes.replicas(replicas, ReplicaState.ONLINE)


def _some(names: Sequence[str]) -> str:
    return ",".join(names[:5]) + (f",... ({len(names)})" if len(names) > 5 else "") or "none"
