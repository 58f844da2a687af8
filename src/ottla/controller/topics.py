"""Topics: new ones get their leaders, grown ones their new partitions.

A decider. Invariants: a topic is known to the context with its id before any of its partitions
changes its state. Kafka: `processTopicChange`, `processPartitionModifications` and
`onNewPartitionCreation`.

A topic keeps the id that the cluster knows it by, whatever is written to its znode. Tools from
before Kafka 2.8 write a topic's znode without `topic_id` (KAFKA-14190), others copy it from
elsewhere. Brokers refuse a replica whose `partition.metadata` names another id, so the known one is
written back. It is, in this order: that of the context (the controller knows the topic); that of
the note in `/ottla/topic_ids`, which any controller of ours wrote; the one on this broker's disks
or in its metadata cache. Only a topic without any gets a new one (KIP-516; Kafka always draws one).
Invariants: an id is written before it is believed; a znode that was created again (another czxid)
with an id is another topic, and its id counts.
"""

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from ottla.controller.elections import ElectionKind
from ottla.controller.found import FoundTopic
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.cluster import ReplicaAssignment, TopicIdNote, TopicInfo
from ottla.model.ids import TopicPartition, topic_name_problem, uuid_to_text
from ottla.model.steps import slices, yield_to_loop


async def settle(
    changes: StateChanges, found: Sequence[FoundTopic], *, elected: bool
) -> list[TopicInfo]:
    """Return topics, each with its id, and write ids back. `write_notes` is to be called soon.

    `elected`: they were there before this controller was. Disks are asked about those alone: what
    they have of the name of a new topic is a former topic's (R15).
    """
    context, cluster = changes.context, changes.cluster
    unread = [f.info.name for f in found if f.info.name not in context.assignments]
    for name in unread:
        context.topic_id_notes.pop(name, None)
    if unread:
        context.topic_id_notes |= await cluster.read_topic_id_notes(unread)
    settled = []
    here: Mapping[str, AbstractSet[bytes]] | None = None
    for topic in found:
        info = topic.info
        note = context.topic_id_notes.get(info.name)
        same_znode = note is not None and note.czxid == topic.czxid
        known = context.topic_ids.get(info.name)
        if known is None and note is not None and (same_znode or info.topic_id is None):
            known = note.topic_id
        elif known is not None and info.topic_id is not None and not same_znode:
            known = None  # created again meanwhile
        topic_id = info.topic_id
        if topic_id is None or (known is not None and known != topic_id):
            if here is None and elected:
                here = await cluster.read_topic_ids_here([f.info.name for f in found])
            on_disk = (here or {}).get(info.name, frozenset())
            topic_id = await _id_of(changes, info, known, on_disk)
        if topic_id != info.topic_id:
            written = replace(info, topic_id=topic_id)
            if not await cluster.write_topic_id(written, topic.version):
                continue
            by_creation = same_znode and note is not None and note.by_creation
        else:
            by_creation = topic.version == 0
        settled.append(replace(info, topic_id=topic_id))
        if not same_znode or note is None or note.topic_id != topic_id:
            assert topic_id is not None
            context.topic_id_notes[info.name] = TopicIdNote(topic_id, topic.czxid, by_creation)
            context.unwritten_topic_id_notes[info.name] = None
    return settled


async def write_notes(changes: StateChanges) -> None:
    """Write the notes that are new: after what clients wait for."""
    context = changes.context
    new, context.unwritten_topic_id_notes = context.unwritten_topic_id_notes, {}
    notes = {name: context.topic_id_notes[name] for name in new if name in context.topic_id_notes}
    if notes:
        await changes.cluster.write_topic_id_notes(notes)


async def _id_of(
    changes: StateChanges, info: TopicInfo, known: bytes | None, on_disk: AbstractSet[bytes]
) -> bytes:
    """Return the id of a topic whose znode has none, or another one than is known."""
    name = info.name
    if known is None:
        if len(on_disk) == 1:
            return next(iter(on_disk))
        topic_id = await changes.cluster.draw_topic_id()
        logger.info("topic got an id topic=%s", name)
        return topic_id
    if (
        info.topic_id is not None
        and name not in changes.context.topic_ids
        and on_disk == {info.topic_id}
    ):
        # Another controller gave it since, and the replica here has taken it: it is the id now.
        return info.topic_id
    logger.error(
        "topic id restored topic=%s topic_id=%s found=%s reason=another client wrote the znode",
        name,
        uuid_to_text(known),
        "none" if info.topic_id is None else uuid_to_text(info.topic_id),
    )
    return known


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
    await write_notes(changes)


async def on_partitions_modified(changes: StateChanges, topic: str) -> None:
    """Take a topic's znode that another client has written."""
    if topic in changes.context.assignments:
        for found in await read(changes, [topic]):
            await _take_partitions(changes, topic, found)
        await write_notes(changes)


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
        found += await settle(changes, topics, elected=elected)
    return found


def _some(names: Sequence[str]) -> str:
    return ",".join(names[:5]) + (f",... ({len(names)})" if len(names) > 5 else "") or "none"
