"""The files of a log dir itself: lock, meta.properties, clean shutdown marker, checkpoints.

Invariants:
- the clean shutdown marker is removed, durably, before anything in the dir is loaded; it is written
  again only when everything in the dir is durable
- R18: a log that may lack records at its end has an unclean mark in its own folder before the clean
  shutdown marker is written. The mark moves with the folder and is deleted with it. Kafka ignores
  the file; a mark that stays too long delays a leadership and loses nothing
Kafka: `LogManager.lockLogDirs`, `BrokerMetadataCheckpoint` and
`CleanShutdownFileHandler`.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator

from ottla.log import checkpoints
from ottla.log.checkpoints import CheckpointError, MetaProperties
from ottla.log.log import Log
from ottla.log.log_dir import REPLACED_BY, LogDir
from ottla.log.recovery import UNCLEAN_MARK
from ottla.log.slices import Steps
from ottla.model.errors import StartupError
from ottla.model.ids import TopicPartition
from ottla.model.ports import Files

_logger = logging.getLogger(__name__)

UNCLEAN_TEXT = b"After a crash this log may lack acknowledged records at its end.\n"


def lock(files: Files, log_dir: LogDir) -> None:
    """Create the dir if need be and lock it; StartupError if another process has it."""
    files.make_dirs(log_dir.path)
    try:
        log_dir.lock = files.lock(log_dir.file(checkpoints.LOCK))
    except BlockingIOError as error:
        raise StartupError(
            f"log dir {log_dir.path} is in use by another broker; stop it or use another log.dirs"
        ) from error


def read_meta(
    files: Files, log_dir: LogDir, broker_id: int, known: MetaProperties | None
) -> MetaProperties | None:
    """Return what meta.properties says, None without one or where it does not name the cluster.

    StartupError unless it is of this broker and of the cluster that is known already. What it does
    not say is no contradiction (Kafka's `MetaPropertiesEnsemble.verify`): a power loss may have
    left it empty.
    """
    path = log_dir.file(checkpoints.META_PROPERTIES)
    if not files.exists(path):
        return None
    try:
        meta = checkpoints.decode_meta_properties(files.read_bytes(path))
    except CheckpointError as error:
        raise StartupError(f"{path}: {error}") from error
    if meta.broker_id not in (broker_id, None):
        raise StartupError(
            f"{path} belongs to broker {meta.broker_id}, but broker.id={broker_id}; use that id or "
            "another log.dirs"
        )
    if meta.cluster_id is None:
        return None
    if known is not None and known.cluster_id != meta.cluster_id:
        raise StartupError(
            f"{path} belongs to cluster {meta.cluster_id}, another log dir to {known.cluster_id}"
        )
    return meta


def write_meta(files: Files, log_dir: LogDir, meta: MetaProperties) -> None:
    """Mark a dir as this broker's and this cluster's, unless it is already; keep all else."""
    path = log_dir.file(checkpoints.META_PROPERTIES)
    data = files.read_bytes(path) if files.exists(path) else b""
    found = checkpoints.decode_meta_properties(data)
    if found.broker_id is None or found.cluster_id is None:
        kept = data.rstrip(b"\r\n\0")
        kept = kept + b"\n" if kept else b""
        files.write_atomic(path, kept + checkpoints.encode_meta_properties(meta))


def take_clean_marker(files: Files, log_dir: LogDir) -> None:
    """Note whether the dir was closed cleanly; a crash from here on is an unclean stop."""
    marker = log_dir.file(checkpoints.CLEAN_SHUTDOWN)
    log_dir.clean = files.exists(marker)
    if log_dir.clean:
        files.remove(marker)
        files.fsync_dir(log_dir.path)


def put_clean_marker(files: Files, log_dir: LogDir) -> None:
    """Write the clean shutdown marker: all is durable, and marked where it may be incomplete."""
    text = checkpoints.encode_clean_shutdown(log_dir.life.broker_epoch)
    files.write_atomic(log_dir.file(checkpoints.CLEAN_SHUTDOWN), text)


def write_unclean_marks(
    files: Files, logs: Iterable[Log], unclean: Iterable[TopicPartition]
) -> None:
    """Write the mark of each unclean log, remove all others; not durable yet. For a worker."""
    marked = set(unclean)
    for log in logs:
        path = f"{log.dir}/{UNCLEAN_MARK}"
        with contextlib.suppress(FileNotFoundError):  # its folder is gone, or the mark is
            if log.tp not in marked:
                if log.marked_unclean:
                    files.remove(path)
            elif not log.marked_unclean:
                files.write(path, UNCLEAN_TEXT)


def read_offsets(files: Files, log_dir: LogDir, names: set[str]) -> Steps[None]:
    """Read the offset checkpoints; what is missing or garbage has no entries (F21)."""
    for name, known in (
        (checkpoints.RECOVERY_POINTS, log_dir.recovery_points),
        (checkpoints.LOG_STARTS, log_dir.log_starts),
        (checkpoints.HIGH_WATERMARKS, log_dir.high_watermarks),
        (checkpoints.CLEANER_OFFSETS, log_dir.cleaned),
    ):
        known.clear()
        if name not in names:
            continue
        try:
            for some in checkpoints.decode_offsets_in_parts(files.read_bytes(log_dir.file(name))):
                known.update(some)
                yield None
        except CheckpointError as error:
            known.clear()
            _logger.warning("checkpoint ignored path=%s error=%s", log_dir.file(name), error)


def folders(files: Files, log_dir: LogDir, names: Iterable[str]) -> Iterator[str]:
    """Yield the names of folders that may hold logs."""
    for name in names:
        if "-" in name and files.is_dir(log_dir.file(name)):
            yield name


def replaced_by(files: Files, folder: str) -> str | None:
    """Return the log dir whose future log is about to replace the log in a folder, None if none."""
    try:
        return files.read_bytes(f"{folder}/{REPLACED_BY}").decode(errors="replace")
    except FileNotFoundError:
        return None


def forget_replacement(files: Files, folder: str) -> None:
    """Remove what `replaced_by` reads from a folder; does nothing without it."""
    with contextlib.suppress(FileNotFoundError):
        files.remove(f"{folder}/{REPLACED_BY}")
