"""Topics: their assignments and ids, and the requests to delete them.

Invariants: an assignment that a broker and the controller may both write is changed by
compare-and-swap; a malformed znode is reported and read as absent, never a crash (F41). Kafka: the
topic part of `KafkaZkClient`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ottla.model.cluster import (
    TopicIdNote,
    TopicInfo,
)
from ottla.model.ids import uuid_from_text, uuid_to_text
from ottla.model.steps import yield_to_loop
from ottla.zookeeper import znodes
from ottla.zookeeper.access import ANY_VERSION, Part, Write, present
from ottla.zookeeper.errors import (
    BadVersionError,
    MalformedZnodeError,
    NoNodeError,
    ZooKeeperError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Create, Set
from ottla.zookeeper.statements import ROOT
from ottla.zookeeper.watches import WatchCallback

PARTITIONS_A_SLICE = 200
MAX_CONFLICTS = 20
"""How often a topic's znode is read again because another client wrote it."""


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
    """The notes, by topic.

    A tool from before Kafka 2.8 writes `/brokers/topics/T` without the id (KAFKA-14190); Kafka's
    next controller gives the topic another id, and every replica is refused. `/ottla/topic_ids/T`
    still has it. Invariants: a note names the life of the znode that it is about (its czxid), so
    that a topic that was deleted and created again is another one; only a controller writes notes,
    with the check of its epoch; one that cannot be read counts as none (F41). Kafka has no
    counterpart.
    """

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


class Topics(Part):
    """/brokers/topics and /admin/delete_topics, by name."""

    # --- topics -----------------------------------------------------------------------------

    async def get_names(self, watch: WatchCallback | None = None) -> list[str]:
        """Return all topic names, sorted. `watch`: on the list."""
        return await self._zk.get_children(znodes.TOPICS, watch)

    async def exists(self, topic: str) -> bool:
        return await self._zk.path_exists(znodes.topic_path(topic))

    async def get_many(self, names: Sequence[str]) -> dict[str, TopicInfo | None]:
        """Return each topic; None where it is gone or its znode is malformed (and reported)."""
        replies = await self._zk.get_many([znodes.topic_path(name) for name in names])
        return {
            name: reply and self._zk.decoded(znodes.decode_topic, name, reply[0])
            for name, reply in zip(names, replies, strict=True)
        }

    async def get(self, name: str, watch: WatchCallback | None = None) -> TopicInfo | None:
        """Return one topic. `watch`: on its data."""
        found = await self._zk.get_data_and_stat(znodes.topic_path(name), watch)
        return found and self._zk.decoded(znodes.decode_topic, name, found[0])

    async def set(self, info: TopicInfo, version: int = ANY_VERSION) -> None:
        """Replace a topic's assignment (and id); NoNodeError if the topic is gone.

        BadVersionError if its znode is not of this version.
        """
        op = Set(znodes.topic_path(info.name), znodes.encode_topic(info), version)
        await self._zk.write(op)

    async def update(self, topic: str, change: Callable[[TopicInfo | None], TopicInfo]) -> None:
        """Change a topic's assignment as it stands (None: malformed); NoNodeError if it is gone.

        Controller and brokers both write it: what came in between is read again, not lost.
        """
        path = znodes.topic_path(topic)
        for left in reversed(range(MAX_CONFLICTS)):
            found = await self._zk.get_data_and_stat(path)
            if found is None:
                raise NoNodeError(path=path)
            info = self._zk.decoded(znodes.decode_topic, topic, found[0])
            op = Set(path, znodes.encode_topic(change(info)), found[1].version)
            try:
                await self._zk.write(op)
            except BadVersionError:
                if not left:
                    raise
            else:
                return

    async def create(self, info: TopicInfo) -> None:
        """Create a topic's znode; NodeExistsError if there is one that is not ours."""
        await self._zk.create_recursive(znodes.topic_path(info.name), znodes.encode_topic(info))

    async def get_and_watch(
        self, names: Sequence[str], watch_of: Callable[[str], WatchCallback]
    ) -> list[tuple[TopicInfo, Stat]]:
        """Read topics, pipelined, each with a watch on its znode.

        Those that are gone are left out, and malformed ones, which are reported.
        """
        by_path = {znodes.topic_path(topic): topic for topic in names}
        replies = await self._zk.read_all(
            lambda path: self._zk.session.get(path, watch_of(by_path[path])), list(by_path)
        )
        found = []
        parsed = 0
        for topic, one in zip(by_path.values(), replies, strict=True):
            reply = present(one)
            info = reply and self._zk.decoded(znodes.decode_topic, topic, reply[0])
            if reply is None or info is None:
                continue
            found.append((info, reply[1]))
            parsed += len(info.assignment)
            if parsed >= PARTITIONS_A_SLICE:
                parsed = 0
                await yield_to_loop()
        return found

    # --- deletion ---------------------------------------------------------------------------

    async def get_deletions(self, watch: WatchCallback | None = None) -> list[str]:
        """Return the topics to be deleted, sorted. `watch`: on the list."""
        return await self._zk.get_children(znodes.DELETE_TOPICS, watch)

    async def request_deletion(self, topic: str) -> None:
        """Ask for a topic's deletion; NodeExistsError if it was asked already."""
        await self._zk.create_recursive(znodes.delete_topic_path(topic), None)

    async def is_deletion_requested(self, topic: str) -> bool:
        return await self._zk.path_exists(znodes.delete_topic_path(topic))

    async def delete_deletions(self, topics: Iterable[str]) -> None:
        paths = [znodes.delete_topic_path(topic) for topic in topics]
        await self._zk.delete_paths(paths)

    async def delete(self, topic: str) -> None:
        path = znodes.topic_path(topic)
        await self._zk.delete_recursive(path)
