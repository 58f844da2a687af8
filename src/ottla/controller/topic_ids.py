"""Topic ids: a topic keeps the id that the cluster knows it by, whatever is written to its znode.

Who may call: `handlers`. Tools from before Kafka 2.8 write a topic's znode without `topic_id`
(KAFKA-14190), others copy it from elsewhere. Brokers refuse a replica whose `partition.metadata`
names another id, so the known one is written back. It is, in this order: that of the context (the
controller knows the topic); that of the note in `/ottla/topic_ids`, which any controller of ours
wrote; the one on this broker's disks or in its metadata cache. Only a topic without any gets a new
one (KIP-516). Invariants: an id is written before it is believed; a znode that was created again
(another czxid) with an id is another topic, and its id counts.
Kafka: `KafkaController.processTopicIds`, which always draws a new one.
"""

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ottla.model.cluster import TopicInfo
from ottla.model.ids import is_usable_uuid, uuid_to_text
from ottla.zookeeper.errors import BadVersionError, NoNodeError
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.topic_ids import TopicIdNote

if TYPE_CHECKING:
    from ottla.controller.term import ControllerTerm

logger = logging.getLogger(__name__)


class FoundTopic(NamedTuple):
    """A topic's znode."""

    info: TopicInfo
    stat: Stat


async def settle(
    term: "ControllerTerm", found: Sequence[FoundTopic], *, elected: bool
) -> list[TopicInfo]:
    """Return topics, each with its id, and write ids back. `write_notes` is to be called soon.

    `elected`: they were there before this controller was. Disks are asked about those alone: what
    they have of the name of a new topic is a former topic's (R15).
    """
    context = term.context
    unread = [f.info.name for f in found if f.info.name not in context.assignments]
    for name in unread:
        term.topic_id_notes.pop(name, None)
    term.topic_id_notes |= await term.store.get_topic_id_notes(unread) if unread else {}
    settled = []
    on_disk: Mapping[str, AbstractSet[bytes]] | None = None
    for info, stat in found:
        note = term.topic_id_notes.get(info.name)
        same_znode = note is not None and note.czxid == stat.czxid
        known = context.topic_ids.get(info.name)
        if known is None and note is not None and (same_znode or info.topic_id is None):
            known = note.topic_id
        elif known is not None and info.topic_id is not None and not same_znode:
            known = None  # created again meanwhile
        topic_id = info.topic_id
        if topic_id is None or (known is not None and known != topic_id):
            if on_disk is None:
                on_disk = term.known_topic_ids() if elected else {}
            topic_id = _id_of(term, info, known, on_disk.get(info.name, frozenset()))
        if topic_id != info.topic_id:
            if not await _write_back(term, replace(info, topic_id=topic_id), stat.version):
                continue
            by_creation = same_znode and note is not None and note.by_creation
        else:
            by_creation = stat.version == 0
        settled.append(replace(info, topic_id=topic_id))
        if not same_znode or note is None or note.topic_id != topic_id:
            assert topic_id is not None
            term.topic_id_notes[info.name] = TopicIdNote(topic_id, stat.czxid, by_creation)
            term.unwritten_topic_id_notes[info.name] = None
    return settled


async def write_notes(term: "ControllerTerm") -> None:
    """Write the notes that are new: after what clients wait for."""
    new, term.unwritten_topic_id_notes = term.unwritten_topic_id_notes, {}
    notes = {name: term.topic_id_notes[name] for name in new if name in term.topic_id_notes}
    if notes:
        await term.store.set_topic_id_notes(notes, term.fence)


def _id_of(
    term: "ControllerTerm", info: TopicInfo, known: bytes | None, on_disk: AbstractSet[bytes]
) -> bytes:
    """Return the id of a topic whose znode has none, or another one than is known."""
    name = info.name
    if known is None:
        if len(on_disk) == 1:
            return next(iter(on_disk))
        topic_id = term.world.random.randbytes(16)
        while not is_usable_uuid(topic_id):
            topic_id = term.world.random.randbytes(16)
        logger.info("topic got an id topic=%s", name)
        return topic_id
    if (
        info.topic_id is not None
        and name not in term.context.topic_ids
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


async def _write_back(term: "ControllerTerm", info: TopicInfo, version: int) -> bool:
    """Write a topic with its id over what was read; False if it is gone.

    Where another client wrote it meanwhile, the watch that was left with the read brings us back.
    """
    try:
        await term.store.set_topic_assignment(info.name, info, term.fence, version)
    except NoNodeError:
        return False
    except BadVersionError:
        logger.info("topic id not written topic=%s reason=written by another client", info.name)
    return True
