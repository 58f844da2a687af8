"""The contents of a log dir's checkpoint files: offsets of its logs, as they are now.

Who may call: `manager`. Kafka: `LogManager.checkpointRecoveryOffsetsInDir`,
`checkpointLogStartOffsetsInDir` and `ReplicaManager.checkpointHighWatermarks`.
"""

from collections.abc import Iterable, Sequence

from ottla.log.checkpoint_writer import Snapshot
from ottla.log.log import Log
from ottla.log.log_dir import LogDir


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
                log.recovery_point_pending = False
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
