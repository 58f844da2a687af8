"""The one writer of each checkpoint file of a log dir.

Many tasks ask for the same file: the timer of the high watermarks, moves between log dirs, the
cleaner, a clean stop. Invariants:
- at most one worker writes a file at a time; whoever asks meanwhile waits for one further write,
  which takes the state of then for all who asked (the latest state wins)
- a write goes on when who asked is cancelled; `drain` waits for all that are under way
- states are numbered when they are taken, on the event loop; one that is older than what is in
  place is never put in place, so `write_now` may come between: it uses a name of its own until then
Kafka: `OffsetCheckpointFile` and the lock that Kafka's `CheckpointFile.write` holds.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ottla.log import checkpoints
from ottla.model.ids import TopicPartition
from ottla.model.ports import Files, Workers


@dataclass(slots=True)
class Snapshot:
    """The offsets to write, or a content that is encoded already.

    `on_disk` is called, on the event loop, when they are in place.
    """

    offsets: Mapping[TopicPartition, int] | bytes
    on_disk: Callable[[], None] | None = None


Take = Callable[[], Snapshot]


@dataclass(slots=True)
class _File:
    """One checkpoint file."""

    take: Take
    mutex: AbstractContextManager[object]
    """held while a file is put in place, never while a disk is waited for"""
    requested: int = 0
    written: int = 0
    """requests up to this number were answered by a write that began after them"""
    task: asyncio.Task[None] | None = None
    in_place: int = 0
    """number of the state on disk; under the mutex"""


class CheckpointWriter:
    """Writes the checkpoints of one log manager."""

    def __init__(self, files: Files, failed: Callable[[str, OSError], None]) -> None:
        self._files = files
        self._failed = failed
        """called with the path that could not be written, and the error"""
        self._known: dict[str, _File] = {}
        self._states = 0

    async def write(self, workers: Workers, path: str, take: Take) -> None:
        """Let a worker write what `take` returns when the write begins; return when it is done.

        A failure is passed to `failed`, once, and not raised.
        """
        file = self._file(path, take)
        file.requested += 1
        mine = file.requested
        while file.written < mine:
            if file.task is None:
                file.task = asyncio.get_running_loop().create_task(
                    self._run(workers, path, file), name="checkpoint"
                )
            await asyncio.shield(file.task)

    async def _run(self, workers: Workers, path: str, file: _File) -> None:
        try:
            asked = file.requested
            snapshot = file.take()
            number = self._number()
            try:
                await workers.run(self._put, path, path + ".tmp", file, number, snapshot.offsets)
            except OSError as error:
                self._failed(path, error)
            else:
                self._tell(file, number, snapshot)
            file.written = asked
        finally:
            file.task = None

    def write_now(self, path: str, take: Take) -> None:
        """Write it on this thread, also while a worker is writing an older state of it."""
        file = self._file(path, take)
        snapshot, number = take(), self._number()
        try:
            self._put(path, path + ".now.tmp", file, number, snapshot.offsets)
        except OSError as error:
            self._failed(path, error)
        else:
            self._tell(file, number, snapshot)

    async def drain(self) -> None:
        """Wait until nothing is being written."""
        while tasks := [file.task for file in self._known.values() if file.task is not None]:
            await asyncio.wait(tasks)

    @staticmethod
    def _tell(file: _File, number: int, snapshot: Snapshot) -> None:
        if snapshot.on_disk is not None and file.in_place == number:  # else newer is there
            snapshot.on_disk()

    def _file(self, path: str, take: Take) -> _File:
        file = self._known.get(path)
        if file is None:
            file = self._known[path] = _File(take, self._files.mutex())
        file.take = take
        return file

    def _number(self) -> int:
        self._states += 1
        return self._states

    def _put(
        self,
        path: str,
        draft: str,
        file: _File,
        number: int,
        offsets: Mapping[TopicPartition, int] | bytes,
    ) -> None:
        """Write the draft, then put it in place unless newer is there; a worker may call it."""
        self._files.write_durable(draft, checkpoints.encode_offsets(offsets))
        with file.mutex:
            if number < file.in_place:
                return  # newer came between; the draft is written over by the next one
            self._files.rename(draft, path)
            file.in_place = number
        self._files.fsync_dir(path.rpartition("/")[0])
