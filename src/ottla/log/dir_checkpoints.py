"""The checkpoint files of log dirs, and the logs that each is written from.

Each file has one writer (`CheckpointWriter`); what it says is taken when the write begins. Kafka:
`LogManager.checkpointLogRecoveryOffsets`, `checkpointLogStartOffsets`,
`ReplicaManager.checkpointHighWatermarks`, `LogCleanerManager`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import msgspec

from ottla.log import checkpoints
from ottla.log.lives import LIFE_FILE
from ottla.log.log import Log
from ottla.log.log_dir import LogDir
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
    """Writes the checkpoints of one log manager.

    Many tasks ask for the same file: the timer of the high watermarks, moves between log dirs, the
    cleaner, a clean stop. Invariants:
    - at most one worker writes a file at a time; tasks that ask meanwhile wait for one further
      write, which takes the state of that moment for all of them
    - a write goes on when its caller is cancelled; `drain` waits for all that are under way
    - states are numbered when they are taken, on the event loop; one that is older than what is in
      place is never put in place, so `write_now` may come between: it has a name of its own

    Kafka: `OffsetCheckpointFile` and the lock that `CheckpointFile.write` holds.
    """

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


def high_watermarks(logs: Iterable[Log]) -> Snapshot:
    """Return the logs' high watermarks."""
    return Snapshot({log.tp: log.high_watermark for log in logs})


def recovery_points(log_dir: LogDir, logs: Sequence[Log]) -> Snapshot:
    """Return the recovery points; once they are on disk, no log has a pending one."""
    points = {log.tp: log.recovery_point for log in logs}
    deletions = log_dir.deletions

    def on_disk() -> None:
        for log in logs:
            # Unless it was truncated even further back meanwhile.
            if log.recovery_point >= points[log.tp]:
                log.flush_state.recovery_point_pending = False
        for tp in [t for t, number in log_dir.forgotten.items() if number <= deletions]:
            del log_dir.forgotten[tp]

    return Snapshot(points, on_disk)


def log_starts(logs: Iterable[Log]) -> Snapshot:
    """Return the log start offsets that differ from the first segment's base offset."""
    return Snapshot(
        {
            log.tp: log.log_start_offset
            for log in logs
            if log.log_start_offset > log.segments[0].base_offset
        }
    )


def cleaner_offsets(logs: Iterable[Log]) -> Snapshot:
    """Return how far the cleaner was in each log it was in."""
    return Snapshot({log.tp: log.cleaned_offset for log in logs if log.cleaned_offset >= 0})


LogsOf = Callable[[LogDir], list[Log]]


class DirCheckpoints:
    """Writes the checkpoints of log dirs.

    `logs_in` returns all logs of a dir, `current_in` those that are no future logs.
    """

    def __init__(
        self,
        files: Files,
        failed: Callable[[str, OSError], None],
        logs_in: LogsOf,
        current_in: LogsOf,
    ) -> None:
        self._writer = CheckpointWriter(files, failed)
        self._contents: dict[str, Callable[[LogDir], Snapshot]] = {
            checkpoints.RECOVERY_POINTS: lambda log_dir: recovery_points(log_dir, logs_in(log_dir)),
            checkpoints.LOG_STARTS: lambda log_dir: log_starts(logs_in(log_dir)),
            checkpoints.HIGH_WATERMARKS: lambda log_dir: high_watermarks(logs_in(log_dir)),
            checkpoints.CLEANER_OFFSETS: lambda log_dir: cleaner_offsets(current_in(log_dir)),
            LIFE_FILE: lambda log_dir: Snapshot(msgspec.json.encode(log_dir.life)),
        }

    async def write(self, workers: Workers, log_dirs: Iterable[LogDir], *names: str) -> None:
        """Have a worker write these files of each dir that is not offline.

        Cleaner offsets: unless there is no file, and the cleaner was in none of its logs.
        """
        for log_dir in log_dirs:
            for name in names:
                take = partial(self._contents[name], log_dir)
                unneeded = name == checkpoints.CLEANER_OFFSETS and not (
                    log_dir.cleaned or take().offsets
                )
                if log_dir.offline is None and not unneeded:
                    await self._writer.write(workers, log_dir.file(name), take)

    def write_now(self, log_dir: LogDir, name: str) -> None:
        """Write a file here and now."""
        self._writer.write_now(log_dir.file(name), partial(self._contents[name], log_dir))

    async def drain(self) -> None:
        """Wait for all writes that are under way."""
        await self._writer.drain()
