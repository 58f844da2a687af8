"""The checkpoint files of log dirs, and the logs that each is written from.

Who may call: `manager`. Each file has one writer (`checkpoint_writer`); what it says is taken when
the write begins (`checkpoint_contents`). Kafka: `LogManager.checkpointLogRecoveryOffsets`,
`checkpointLogStartOffsets`, `ReplicaManager.checkpointHighWatermarks`, `LogCleanerManager`.
"""

from collections.abc import Callable, Iterable
from functools import partial

from ottla.log import checkpoint_contents, checkpoints
from ottla.log.checkpoint_writer import CheckpointWriter, Snapshot, Take
from ottla.log.log import Log
from ottla.log.log_dir import LogDir
from ottla.model.ports import Files, Workers

LogsOf = Callable[[LogDir], list[Log]]


class DirCheckpoints:
    """Writes the checkpoints of log dirs, here and now or by a worker.

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
        self._logs_in = logs_in
        self._current_in = current_in

    async def drain(self) -> None:
        """Wait for all writes that are under way."""
        await self._writer.drain()

    def write_now(self, log_dir: LogDir, name: str, take: Take) -> None:
        self._writer.write_now(log_dir.file(name), take)

    async def write(self, workers: Workers, log_dir: LogDir, name: str, take: Take) -> None:
        await self._writer.write(workers, log_dir.file(name), take)

    def recovery_now(self, log_dirs: Iterable[LogDir]) -> None:
        """Write recovery points and log starts."""
        for log_dir in log_dirs:
            for name, take in self._recovery_files(log_dir):
                self.write_now(log_dir, name, take)

    async def recovery(self, workers: Workers, log_dirs: Iterable[LogDir]) -> None:
        """Have a worker write recovery points and log starts."""
        for log_dir in log_dirs:
            for name, take in self._recovery_files(log_dir):
                await self.write(workers, log_dir, name, take)

    def _recovery_files(self, log_dir: LogDir) -> tuple[tuple[str, Take], ...]:
        return (
            (checkpoints.RECOVERY_POINTS, partial(self._recovery_points, log_dir)),
            (checkpoints.LOG_STARTS, partial(self._log_starts, log_dir)),
        )

    def recovery_points_now(self, log_dir: LogDir) -> None:
        """Write the recovery points alone."""
        self.write_now(
            log_dir, checkpoints.RECOVERY_POINTS, partial(self._recovery_points, log_dir)
        )

    async def recovery_points(self, workers: Workers, log_dir: LogDir) -> None:
        """Have a worker write the recovery points alone."""
        take = partial(self._recovery_points, log_dir)
        await self.write(workers, log_dir, checkpoints.RECOVERY_POINTS, take)

    def cleaner_offsets_now(self, log_dirs: Iterable[LogDir]) -> None:
        """Write how far the cleaner was, where it was in any log."""
        for log_dir in log_dirs:
            if self._was_cleaned(log_dir):
                take = partial(self._cleaner_offsets, log_dir)
                self.write_now(log_dir, checkpoints.CLEANER_OFFSETS, take)

    async def cleaner_offsets(self, workers: Workers, log_dirs: Iterable[LogDir]) -> None:
        """Have a worker write how far the cleaner was, where it was in any log."""
        for log_dir in log_dirs:
            if log_dir.offline is None and self._was_cleaned(log_dir):
                take = partial(self._cleaner_offsets, log_dir)
                await self.write(workers, log_dir, checkpoints.CLEANER_OFFSETS, take)

    def _was_cleaned(self, log_dir: LogDir) -> bool:
        return bool(log_dir.cleaned or self._cleaner_offsets(log_dir).offsets)

    def _recovery_points(self, log_dir: LogDir) -> Snapshot:
        return checkpoint_contents.recovery_points(log_dir, self._logs_in(log_dir))

    def _log_starts(self, log_dir: LogDir) -> Snapshot:
        return checkpoint_contents.log_starts(self._logs_in(log_dir))

    def _cleaner_offsets(self, log_dir: LogDir) -> Snapshot:
        return checkpoint_contents.cleaner_offsets(self._current_in(log_dir))
