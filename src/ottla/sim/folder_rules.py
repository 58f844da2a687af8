"""Folder rules: a log's folder belongs to one topic, from its first day to its last.

Who may call: `cluster`, with every file that is put in the place of another on a simulated disk.
F26: what was begun for a deleted topic must not end in the folder of its successor of the same
name. Looked at from outside: files only.
"""

from functools import partial

from ottla.sim.files import SimDisk

NAME = "partition.metadata"
FIELD = b"topic_id:"
ID_LENGTH = 22
"""128 bits in base 64."""


class FolderRules:
    """Judges what is written into logs' folders. `found`: what was wrong, one line each."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def watch(self, broker: str, disk: SimDisk) -> None:
        disk.on_replaced = partial(self._replaced, broker)

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
