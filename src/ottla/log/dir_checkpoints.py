"""The checkpoint files of log dirs, and the logs that each is written from.

Each file has one writer (`checkpoint_writer`); what it says is taken when the write begins. Kafka:
`LogManager.checkpointLogRecoveryOffsets`, `checkpointLogStartOffsets`,
`ReplicaManager.checkpointHighWatermarks`, `LogCleanerManager`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from ottla.log import checkpoints
from ottla.log.checkpoint_writer import CheckpointWriter, Snapshot
from ottla.log.lives import LIFE_FILE
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
