"""Stray folders: logs that are no topic's any more, kept for a while instead of being deleted.

A folder is named as Kafka names strays, `<topic>-<partition>.<unique>-stray`: a JVM broker loads it
and does not use it. A note in it says since when it is one. Invariants (R21): a stray is never
loaded as a log; it is removed only `ottla.stray.retention.ms` after the time in its note: one
without a note, as a JVM broker or a person leaves it, is never removed. Kafka 3.9 removes no stray
by itself.
"""

import logging
from typing import NamedTuple

from ottla.log.log_dir import parse_folder
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_text, uuid_to_text
from ottla.model.ports import Files

_logger = logging.getLogger(__name__)

STRAY_NOTE = ".ottla-stray"
"""In a stray's folder. In any other folder it means nothing: a stray was put back."""

NEVER = -1


class StrayNote(NamedTuple):
    """Whose log it was, and since when it is a stray, in ms since 1970."""

    tp: TopicPartition
    topic_id: bytes
    since_ms: int

    def encode(self) -> bytes:
        """Return the contents of the file."""
        topic_id = uuid_to_text(self.topic_id)
        return f"partition={self.tp}\ntopic_id={topic_id}\nsince_ms={self.since_ms}\n".encode()


def decode(data: bytes) -> StrayNote | None:
    """Read a note; None where it is not whole."""
    fields = dict(line.partition("=")[::2] for line in data.decode("utf-8", "replace").splitlines())
    tp = parse_folder(fields.get("partition", ""))
    try:
        topic_id = uuid_from_text(fields["topic_id"])
        since_ms = int(fields["since_ms"])
    except (KeyError, ValueError):
        return None
    return StrayNote(tp, topic_id, since_ms) if tp is not None and data.endswith(b"\n") else None


class StrayFolders:
    """The strays in the log dirs of one broker: each folder's note, None if there is none."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.folders: dict[str, StrayNote | None] = {}

    def recognize(self, folder: str) -> None:
        """Note a stray that was found at the start."""
        try:
            note = decode(self._files.read_bytes(f"{folder}/{STRAY_NOTE}"))
        except FileNotFoundError:
            note = None
        self.folders[folder] = note
        _logger.warning(
            "stray folder=%s topic_id=%s since_ms=%s",
            folder,
            uuid_to_text(note.topic_id if note is not None else ZERO_UUID),
            note.since_ms if note is not None else "unknown",
        )

    def take_expired(self, now_ms: int, retention_ms: int) -> list[tuple[str, StrayNote]]:
        """Forget and return the folders whose time is over."""
        if retention_ms == NEVER:
            return []
        expired = [
            (folder, note)
            for folder, note in self.folders.items()
            if note is not None and now_ms - note.since_ms >= retention_ms
        ]
        for folder, _ in expired:
            del self.folders[folder]
        return expired
