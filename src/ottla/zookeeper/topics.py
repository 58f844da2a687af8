"""Topics: their assignments and ids, and the requests to delete them.

Invariants: an assignment that a broker and the controller may both write is changed by
compare-and-swap; a malformed znode is reported and read as absent, never a crash (F41). Kafka: the
topic part of `KafkaZkClient`.
"""

from collections.abc import Callable, Iterable, Sequence

from ottla.model.cluster import (
    TopicInfo,
)
from ottla.model.steps import yield_to_loop
from ottla.zookeeper import znodes
from ottla.zookeeper.access import ANY_VERSION, Part, present
from ottla.zookeeper.errors import (
    BadVersionError,
    NoNodeError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Set
from ottla.zookeeper.watches import WatchCallback

PARTITIONS_A_SLICE = 200
MAX_CONFLICTS = 20
"""How often a topic's znode is read again because another client wrote it."""


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
