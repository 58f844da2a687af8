"""Folder rules: a log's folder belongs to one topic, and goes only when that topic is deleted.

F26: what was begun for a deleted topic must not end in the folder of its successor of the same
name. F51: replicas of topics that ZooKeeper forgot, as it was restored from an older state, are
kept; they may be set aside. Looked at from outside: files only.
"""

from collections.abc import Container, Sequence
from functools import partial
from typing import NamedTuple

from ottla.sim.files import SimDisk
from ottla.sim.world import Node

NAME = "partition.metadata"
FIELD = b"topic_id:"
ID_LENGTH = 22
"""128 bits in base 64."""


class _Forgotten(NamedTuple):
    """A segment of a topic that was not deleted and that ZooKeeper does not know."""

    node: int
    topic_id: str
    path: str
    data: bytes
    losses: tuple[int, int]
    """how often the disk had been replaced, and its machine had lost power"""


class FolderRules:
    """Judges what is written into logs' folders. `found`: what was wrong, one line each."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._forgotten: list[_Forgotten] = []

    def watch(self, broker: str, disk: SimDisk) -> None:
        disk.on_replaced = partial(self._replaced, broker)

    def note_forgotten(
        self,
        nodes: Sequence[Node],
        topic_ids: Container[str],
        deleted: Container[str],
    ) -> None:
        """Note what there is of topics but those of `topic_ids` and those being `deleted`.

        A later restore may know a forgotten topic again: then it may be deleted as any other.
        """
        self._forgotten = [one for one in self._forgotten if one.topic_id not in topic_ids]
        for number, node in enumerate(nodes):
            disk = node.disk
            for path, inode in sorted(disk.inodes.items()):
                folder, _, name = path.rpartition("/")
                topic, _, partition = folder.rpartition("/")[2].rpartition("-")
                metadata = disk.inodes.get(f"{folder}/{NAME}")
                if (
                    not name.endswith(".log")
                    or not partition.isdigit()
                    or topic in deleted
                    or metadata is None
                    or not inode.data
                ):
                    continue
                topic_id = _topic_id(bytes(metadata.data))
                if topic_id is not None and topic_id not in topic_ids:
                    data, losses = bytes(inode.data), (disk.replaced, disk.power_losses)
                    self._forgotten.append(_Forgotten(number, topic_id, path, data, losses))

    def deleted(self, nodes: Sequence[Node]) -> list[str]:
        """Return what is not there any more of that, in any folder of its disk."""
        return [
            f"{nodes[one.node].name}:{one.path}, {len(one.data)} bytes"
            for one in self._forgotten
            if (disk := nodes[one.node].disk)
            and (disk.replaced, disk.power_losses) == one.losses
            and not any(
                inode.data.startswith(one.data)
                for path, inode in disk.inodes.items()
                if not path.rpartition("/")[0].endswith("-delete")
            )
        ]

    def _replaced(self, broker: str, path: str, before: bytes, after: bytes) -> None:
        folder, _, name = path.rpartition("/")
        if name != NAME:
            return
        old, new = _topic_id(before), _topic_id(after)
        if old is not None and new is not None and old != new:
            self.found.append(f"{broker}:{folder} was topic {old}'s, and is reported as {new}'s")


def _topic_id(data: bytes) -> str | None:
    """Return the id that a file names; None where a power loss has left a part of it."""
    for line in data.splitlines():
        topic_id = line.removeprefix(FIELD).strip()
        if line.startswith(FIELD) and len(topic_id) == ID_LENGTH:
            return topic_id.decode()
    return None
