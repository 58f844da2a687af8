"""The checkpoint files of log dirs, and the logs that each is written from.

Each file has one writer (`checkpoint_writer`); what it says is taken when the write begins. Kafka:
`LogManager.checkpointLogRecoveryOffsets`, `checkpointLogStartOffsets`,
`ReplicaManager.checkpointHighWatermarks`, `LogCleanerManager`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ottla.log import checkpoints
from ottla.log.checkpoint_writer import CheckpointWriter, Snapshot, Take
from ottla.log.log import Log
from ottla.log.log_dir import LogDir
from ottla.model.ports import Files, Workers


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

    async def cleaner_offsets(self, workers: Workers, log_dirs: Iterable[LogDir]) -> None:
        """Have a worker write how far the cleaner was, where it was in any log."""
        for log_dir in log_dirs:
            if log_dir.offline is None and self._was_cleaned(log_dir):
                take = partial(self._cleaner_offsets, log_dir)
                await self.write(workers, log_dir, checkpoints.CLEANER_OFFSETS, take)

    def _was_cleaned(self, log_dir: LogDir) -> bool:
        return bool(log_dir.cleaned or self._cleaner_offsets(log_dir).offsets)

    def _recovery_points(self, log_dir: LogDir) -> Snapshot:
        return recovery_points(log_dir, self._logs_in(log_dir))

    def _log_starts(self, log_dir: LogDir) -> Snapshot:
        return log_starts(self._logs_in(log_dir))

    def _cleaner_offsets(self, log_dir: LogDir) -> Snapshot:
        return cleaner_offsets(self._current_in(log_dir))
