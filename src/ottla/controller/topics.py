"""Topics: new ones get their leaders, grown ones their new partitions.

Who may call: `loop`, `failover`. Invariants: a topic is known to the context with its id before
any of its partitions moves; a topic without an id gets one, written before it is believed.
Kafka: `processTopicChange`, `processPartitionModifications`, `processTopicIds` and
`onNewPartitionCreation`.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from ottla.controller.elections import ElectionKind
from ottla.controller.events import PartitionsModified, TopicsChanged
from ottla.controller.moves import SLICE, slices, yield_to_loop
from ottla.controller.states import PartitionState, ReplicaState
from ottla.controller.term import ControllerTerm
from ottla.model.cluster import TopicInfo
from ottla.model.ids import TopicPartition, is_usable_uuid, topic_name_problem, uuid_to_text
from ottla.zookeeper import znodes
from ottla.zookeeper.errors import MalformedZnodeError, NoNodeError, ZooKeeperError
from ottla.zookeeper.watches import WatchType

logger = logging.getLogger(__name__)


async def topics_changed(term: ControllerTerm) -> None:
    """Compare the topics there are with those known."""
    context, store = term.context, term.store
    present = await store.get_all_topics_in_cluster(term.watcher(TopicsChanged()))
    known = set(context.assignments)
    new = [topic for topic in present if topic not in known]
    gone = sorted(known.difference(present))
    for topic in gone:
        context.remove_topic(topic)
    infos = await read_and_watch(term, new)
    ids = {i.name: uuid_to_text(i.topic_id) for i in infos if i.topic_id is not None}
    inputs = {"new": {i.name: _facts(i) for i in infos}, "gone": gone, "ids": ids}
    term.journal.event(term.cause, "TopicsChanged", inputs)
    if gone or infos:
        logger.info("topics new=%s gone=%s", _some([i.name for i in infos]), _some(gone))
    for some in slices(infos, SLICE):
        for info in some:
            context.add_topic(info)
        await yield_to_loop()
    await bring_up(term, [TopicPartition(info.name, p) for info in infos for p in info.assignment])


async def partitions_modified(term: ControllerTerm, topic: str) -> None:
    """Take partitions that were added to a topic; take them back if the topic is being deleted."""
    context = term.context
    if topic not in context.assignments:
        return
    infos = await read_and_watch(term, [topic])
    if not infos:
        return
    added = {p: a for p, a in infos[0].assignment.items() if p not in context.assignments[topic]}
    if not added:
        return
    inputs = {"topic": topic, "added": {str(p): a.replicas for p, a in added.items()}}
    term.journal.event(term.cause, "PartitionsModified", inputs)
    if topic in context.deleting:
        logger.warning("topic=%s is being deleted: %d new partitions undone", topic, len(added))
        await term.store.set_topic_assignment(topic, context.topic_info(topic), term.fence)
        return
    for partition, assignment in added.items():
        context.set_assignment(TopicPartition(topic, partition), assignment)
    await bring_up(term, [TopicPartition(topic, p) for p in added])


async def bring_up(term: ControllerTerm, partitions: Sequence[TopicPartition]) -> None:
    """Lead new partitions through NewPartition and NewReplica to their first leader."""
    if not partitions:
        return
    moves = term.moves
    replicas = term.context.replicas_of(partitions)
    await moves.partitions(partitions, PartitionState.NEW)
    await moves.replicas(replicas, ReplicaState.NEW)
    await moves.partitions(partitions, PartitionState.ONLINE, ElectionKind.OFFLINE)
    await moves.replicas(replicas, ReplicaState.ONLINE)


async def read_and_watch(term: ControllerTerm, topics: Sequence[str]) -> list[TopicInfo]:
    """Read topics, pipelined, each with a watch on its data; give ids to those without."""
    store = term.store
    legal = []
    for topic in topics:
        problem = topic_name_problem(topic)
        if problem is None:
            legal.append(topic)
        else:  # its replicas could have no folders, and a broker would take its disk for broken
            store.ignore(MalformedZnodeError(znodes.topic_path(topic)[:300], problem[-200:]))
    by_path = {znodes.topic_path(topic): topic for topic in legal}
    answers = await store.read_all(
        lambda path: store.session.get(
            path, term.watcher(PartitionsModified(by_path[path]), WatchType.DATA_CHANGED)
        ),
        list(by_path),
    )
    infos: list[TopicInfo] = []
    parsed = 0
    for topic, answer in zip(by_path.values(), answers, strict=True):
        if isinstance(answer, NoNodeError):
            continue
        if isinstance(answer, ZooKeeperError):
            raise answer
        try:
            infos.append(znodes.decode_topic(topic, answer[0]))
        except MalformedZnodeError as error:
            store.ignore(error)
            continue
        parsed += len(infos[-1].assignment)
        if parsed >= SLICE:
            parsed = 0
            await yield_to_loop()
    return [info if info.topic_id is not None else await _give_id(term, info) for info in infos]


async def _give_id(term: ControllerTerm, info: TopicInfo) -> TopicInfo:
    """Give a topic of an older version its id (KIP-516)."""
    topic_id = term.world.random.randbytes(16)
    while not is_usable_uuid(topic_id):
        topic_id = term.world.random.randbytes(16)
    named = replace(info, topic_id=topic_id)
    await term.store.set_topic_assignment(info.name, named, term.fence)
    logger.info("topic=%s got an id", info.name)
    return named


def _facts(info: TopicInfo) -> dict[str, tuple[int, ...]]:
    return {str(p): a.replicas for p, a in info.assignment.items()}


def _some(names: Sequence[str]) -> str:
    return ",".join(names[:5]) + (f",... ({len(names)})" if len(names) > 5 else "") or "none"
