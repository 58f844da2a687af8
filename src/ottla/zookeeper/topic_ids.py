"""Topic ids: what the controller remembers of each topic's id, beside the topic's own znode.

A tool from before Kafka 2.8 writes `/brokers/topics/T` without the id (KAFKA-14190); Kafka's next
controller gives the topic another id, and every replica is refused. Here `/ottla/topic_ids/T` has
it still. Invariants: a note names the life of the znode that it is about (its czxid), so that a
topic that was deleted and created again is another one; only a controller writes notes, with the
check of its epoch; one that cannot be read counts as none (F41). Kafka has no counterpart.
"""

from collections.abc import Mapping, Sequence

import msgspec

from ottla.model.cluster import TopicIdNote
from ottla.model.ids import uuid_from_text, uuid_to_text
from ottla.zookeeper import znodes
from ottla.zookeeper.access import Part, Write
from ottla.zookeeper.errors import MalformedZnodeError, NoNodeError, ZooKeeperError
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Create, Set
from ottla.zookeeper.statements import ROOT

TOPIC_IDS = f"{ROOT}/topic_ids"


class _Note(msgspec.Struct):
    version: int
    topic_id: str
    czxid: int
    by_creation: bool


def note_path(topic: str) -> str:
    return f"{TOPIC_IDS}/{topic}"


def _encode(note: TopicIdNote) -> bytes:
    return msgspec.json.encode(_Note(1, uuid_to_text(note.topic_id), note.czxid, note.by_creation))


def _decode(path: str, data: bytes) -> TopicIdNote:
    found = znodes.decode_json(_Note, path, data)
    try:
        return TopicIdNote(uuid_from_text(found.topic_id), found.czxid, found.by_creation)
    except ValueError as error:
        raise MalformedZnodeError(path, str(error)) from None


class TopicIds(Part):
    """The notes, by topic."""

    async def get(self, topics: Sequence[str]) -> dict[str, TopicIdNote]:
        """Return the notes there are of these topics."""
        paths = [note_path(topic) for topic in topics]
        notes: dict[str, TopicIdNote] = {}

        def take(start: int, replies: list[tuple[bytes, Stat] | ZooKeeperError]) -> None:
            for index, reply in enumerate(replies, start):
                if isinstance(reply, NoNodeError):
                    continue
                if isinstance(reply, ZooKeeperError):
                    raise reply
                note = self._zk.decoded(_decode, paths[index], reply[0])
                if note is not None:
                    notes[topics[index]] = note

        await self._zk.get_data_in_slices(paths, take)
        return notes

    async def set(self, notes: Mapping[str, TopicIdNote]) -> None:
        """Write notes, and the parents they lack."""
        paths = [ROOT, TOPIC_IDS, *map(note_path, notes)]
        found = await self._zk.read_all(self._zk.session.exists, paths)
        there = {path for path, stat in zip(paths, found, strict=True) if isinstance(stat, Stat)}
        writes = [Write(path, Create(path, None)) for path in paths[:2] if path not in there]
        for topic, note in notes.items():
            path, data = note_path(topic), _encode(note)
            writes.append(Write(path, Set(path, data) if path in there else Create(path, data)))
        results = await self._zk.write_all(writes)
        for path in map(note_path, notes):
            if isinstance(results.get(path), ZooKeeperError):
                raise results[path]

    async def delete(self, topic: str) -> None:
        """Delete a topic's note; one that is gone already is fine."""
        await self._zk.delete_paths([note_path(topic)])

    async def was_created_as(self, topic: str, topic_id: bytes) -> bool:
        """Return whether a topic has this id, and had it from its creation on.

        Its znode was not written since (by version), or a controller of ours saw it then.
        """
        path = znodes.topic_path(topic)
        found, note = await self._zk.get_many([path, note_path(topic)])
        if found is None:
            return False
        data, stat = found
        try:
            if znodes.decode_topic(topic, data).topic_id != topic_id:
                return False
            if stat.version == 0:
                return True
            return note is not None and _decode(note_path(topic), note[0]) == TopicIdNote(
                topic_id, stat.czxid, by_creation=True
            )
        except MalformedZnodeError as error:
            self._zk.ignore(error)
            return False
