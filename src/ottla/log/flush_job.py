"""Flush jobs: the files that a worker makes durable before a recovery point may move.

Invariants: a job touches nothing but its own files, even if its log's folder was deleted meanwhile
and a new topic of the same name has a folder of the same name: see `FolderGuard`. `run` raises
OSError at the first failure, and its log is then failed (R12): a failed fsync is never repeated and
believed. Many jobs at once (a stop) are cheaper as `write` of each and one `sync_tree` of their log
dir.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ottla.model.ports import File, Files

TEMPORARY_SUFFIX = ".tmp"
"""The suffix of files that were written but not renamed yet; a start removes them."""


class FolderGuard:
    """Guards a log's folder against workers that write small files into it by name.

    A worker writes a temporary file whose name no other log and no other job has, and renames it
    under the mutex: only while the folder is still this log's, and never over what a later job
    wrote. Nothing blocks under the mutex, so the event loop may take it, too.
    """

    __slots__ = ("gone", "mutex", "number", "written")

    def __init__(self, mutex: AbstractContextManager[object]) -> None:
        self.number = 0
        """unique among the logs of one manager"""
        self.gone = False
        self.mutex = mutex
        self.written: dict[str, int] = {}
        """path -> number of the job that wrote it last, while any job is under way"""

    def leave(self) -> None:
        """Stop all jobs from writing here: the folder is about to be renamed for its deletion."""
        with self.mutex:
            self.gone = True

    def settle(self) -> None:
        """Clear `written`: no job is running."""
        if self.written:
            with self.mutex:
                self.written.clear()


@dataclass(slots=True)
class FlushJob:
    """Files to fsync, small files to write whole, then the folders; all up to one offset."""

    files: Files
    place: FolderGuard
    upto_offset: int
    truncations: int
    number: int
    """counts the jobs of one log; a higher one may have run meanwhile"""
    to_sync: list[File] = field(default_factory=list)
    to_write: list[tuple[str, bytes]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    to_close: list[File] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    """offsets of the producer snapshots among the small files"""
    covers_truncation: bool = False
    """whether a truncation of the log is durable after it"""
    names_topic: bool = False
    """whether the topic id is durable after it"""

    def run(self) -> None:
        """Make it all durable; a worker may call it."""
        try:
            for file in self.to_sync:
                if not getattr(file, "closed", False):  # deleted since: it need not last
                    file.fsync()
            self._write_all(self.files.write_durable)
            for folder in self.folders:
                self.files.fsync_dir(folder)
        except FileNotFoundError:
            if not self.place.gone:
                raise

    def write(self) -> None:
        """Only write the small files; `sync_tree` must make all durable. A worker may call it."""
        try:
            self._write_all(self.files.write)
        except FileNotFoundError:
            if not self.place.gone:
                raise

    def _write_all(self, write: Callable[[str, bytes], None]) -> None:
        for path, data in self.to_write:
            temporary = f"{path}.{self.place.number}-{self.number}{TEMPORARY_SUFFIX}"
            write(temporary, data)
            self._put(temporary, path)

    def _put(self, temporary: str, path: str) -> None:
        place = self.place
        with place.mutex:
            if not place.gone and place.written.get(path, 0) <= self.number:
                self.files.rename(temporary, path)
                place.written[path] = self.number
                return
        with contextlib.suppress(FileNotFoundError):
            self.files.remove(temporary)
