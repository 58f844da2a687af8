"""Topics: new ones get their leaders, grown ones their new partitions.

A decider. Invariants: a topic is known to the context with its id before any of its partitions
changes its state. Kafka: `processTopicChange`, `processPartitionModifications` and
`onNewPartitionCreation`.
"""

import logging
from collections.abc import Sequence

from ottla.controller import topic_ids
from ottla.controller.elections import ElectionKind
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.cluster import ReplicaAssignment, TopicInfo
from ottla.model.ids import TopicPartition, topic_name_problem, uuid_to_text
from ottla.model.steps import slices, yield_to_loop

logger = logging.getLogger(__name__)

READ_SLICE = 1000
"""Topics that are read together; what was read is one line of the journal."""


async def on_topics_changed(changes: StateChanges) -> None:
    """Take topics that are new, and forget those that are gone."""
    context = changes.context
    names, gone = await changes.cluster.read_topic_changes(context.assignments.keys())
    new = await read(changes, names)
    for topic in gone:
        context.remove_topic(topic)
    changes.outbox.record(
        journaled.TopicsChanged(
            new={i.name: {p: a.replicas for p, a in i.assignment.items()} for i in new},
            gone=list(gone),
            ids={i.name: uuid_to_text(i.topic_id) for i in new if i.topic_id is not None},
        )
    )
    if gone or new:
        logger.info("topics changed new=%s deleted=%s", _some([i.name for i in new]), _some(gone))
    for some in slices(new):
        for info in some:
            context.add_topic(info)
        await yield_to_loop()
    partitions = [TopicPartition(info.name, p) for info in new for p in info.assignment]
    await _bring_online(changes, partitions)
    await topic_ids.write_notes(changes)


async def on_partitions_modified(changes: StateChanges, topic: str) -> None:
    """Take a topic's znode that another client has written."""
    if topic in changes.context.assignments:
        for found in await read(changes, [topic]):
            await _take_partitions(changes, topic, found)
        await topic_ids.write_notes(changes)


async def _take_partitions(changes: StateChanges, topic: str, found: TopicInfo) -> None:
    """Take partitions that were added to a topic; undo them if the topic is being deleted."""
    context = changes.context
    known = context.assignments[topic]
    added: dict[int, ReplicaAssignment] = {
        p: a for p, a in found.assignment.items() if p not in known
    }
    if not added:
        return
    replicas = {p: a.replicas for p, a in added.items()}
    changes.outbox.record(journaled.PartitionsModified(topic=topic, added=replicas))
    if topic in context.deleting:
        logger.warning(
            "new partitions undone topic=%s partitions=%d reason=the topic is being deleted",
            topic,
            len(added),
        )
        await changes.cluster.write_topic(context.topic_info(topic))
        return
    for partition, assignment in added.items():
        context.set_assignment(TopicPartition(topic, partition), assignment)
    await _bring_online(changes, [TopicPartition(topic, p) for p in added])


async def _bring_online(changes: StateChanges, partitions: Sequence[TopicPartition]) -> None:
    """Lead new partitions through NewPartition and NewReplica to their first leader."""
    if not partitions:
        return
    replicas = changes.context.replicas_of(partitions)
    await changes.partitions(partitions, PartitionState.NEW)
    await changes.replicas(replicas, ReplicaState.NEW)
    await changes.partitions(partitions, PartitionState.ONLINE, ElectionKind.OFFLINE)
    await changes.replicas(replicas, ReplicaState.ONLINE)


async def read(
    changes: StateChanges, names: Sequence[str], *, elected: bool = False
) -> list[TopicInfo]:
    """Read topics, pipelined, each with a watch on its data, and with the ids they are known by."""
    legal = []
    for topic in names:
        problem = topic_name_problem(topic)
        if problem is None:
            legal.append(topic)
        else:  # its replicas could have no folders, and a broker would take its disk for broken
            changes.cluster.ignore_topic(topic, problem)
    found: list[TopicInfo] = []
    for some in slices(legal, READ_SLICE):
        topics = await changes.cluster.read_topics(some)
        found += await topic_ids.settle(changes, topics, elected=elected)
    return found


def _some(names: Sequence[str]) -> str:
    return ",".join(names[:5]) + (f",... ({len(names)})" if len(names) > 5 else "") or "none"
