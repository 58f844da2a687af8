"""Folders that leave their place: logs that are deleted, kept as strays, or damaged and set aside.

Invariants: a folder is renamed at once and removed later; what a controller receives as done is
durable first (`make_durable`), or a power loss would bring a deleted log back under its name; a
stray is removed only when its time is over. Kafka: `LogManager.asyncDelete`.
"""

import heapq
import logging
from collections.abc import Callable, Mapping

from ottla.log import damage
from ottla.log.log import Log
from ottla.log.log_dir import STRAY, LogDir, delete_folder, parse_folder
from ottla.log.results import is_shortage
from ottla.log.stray_folders import StrayFolders, StrayNote
from ottla.model.config import BrokerConfig
from ottla.model.ids import TopicPartition
from ottla.model.ports import Clock, Files, Workers, World

_RETRY_S = 1.0
"""How soon to try again where descriptors ran out."""


class Removals:
    """The queue of files and folders to remove, each with its time.

    Removing a file takes time in proportion to its size: for a partition of many gigabytes the
    event loop would stand still for seconds. Invariants: one step at a time, of a bounded number of
    files and bytes (`Files.remove_some`), so that a stop waits for one step at most; the next start
    finds by name what is left, and removes it. Kafka: `LogManager.deleteLogs`.
    """

    def __init__(self, files: Files, clock: Clock, failed: Callable[[str, OSError], None]) -> None:
        self._files = files
        self._clock = clock
        self._failed = failed
        """called with the path that could not be removed, and the error"""
        self._queue: list[tuple[float, int, str]] = []
        """a heap of (when, order of arrival, path)"""
        self._arrivals = 0
        self._current: str | None = None
        """the path that a worker is removing; changed by `relocate`"""

    def __len__(self) -> int:
        return len(self._queue) + (self._current is not None)

    def add(self, path: str, delay_s: float) -> None:
        """Remove a file, or a folder with its contents, after `delay_s`."""
        self._push(self._clock.monotonic() + delay_s, path)

    def _push(self, due_s: float, path: str) -> None:
        self._arrivals += 1
        heapq.heappush(self._queue, (due_s, self._arrivals, path))

    def relocate(self, old: str, new: str) -> None:
        """Folder `old` was renamed to `new`: change the paths of queued files below it."""

        def moved(path: str) -> str:
            return new + path[len(old) :] if path.startswith(f"{old}/") else path

        self._queue = [(due_s, order, moved(path)) for due_s, order, path in self._queue]
        if self._current is not None:
            self._current = moved(self._current)

    async def run_due(self, workers: Workers) -> int:
        """Remove what is due by now; return how many files and folders that were."""
        removed = 0
        while self._current is None and self._queue:
            due_s, _, path = self._queue[0]
            if due_s > self._clock.monotonic():
                break
            heapq.heappop(self._queue)
            self._current = path
            try:
                done = await workers.run(self._files.remove_some, path)
            except OSError as error:
                done = not is_shortage(error)
                if done:
                    self._failed(path, error)
                else:
                    due_s = self._clock.monotonic() + _RETRY_S
            finally:
                after, self._current = self._current, None
                if after != path:
                    self._push(due_s, after)  # renamed during the step
            if done:
                removed += 1
            elif after == path:
                self._push(due_s, path)
        return removed


_logger = logging.getLogger(__name__)

_MAX_NAME = 255


def aside_folder(tp: TopicPartition, unique: str) -> str:
    """Return the name of a folder that is set aside; long topics are cut."""
    suffix = f"-{tp.partition}.{unique}{STRAY}"
    return tp.topic[: _MAX_NAME - len(suffix)] + suffix


class SetAside:
    """The folders that were set aside: by partition, each with the offset that it was committed to.

    Damaged logs, kept until the new replica has all committed records (F20). A folder is named as
    Kafka names strays, `<topic>-<partition>.<unique>-stray`: a JVM broker loads it and does not use
    it. The damage file in it says which partition it was and up to which offset its records were
    committed, so that it is found again after a restart.
    A partition may have several: the disk may damage the second copy, too.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.folders: dict[TopicPartition, dict[str, int]] = {}

    def put(self, log: Log, unique: str) -> None:
        """Set the folder of a closed log aside, with the mark in it."""
        folder = f"{log.parent_dir}/{aside_folder(log.tp, unique)}"
        self._files.rename(log.dir, folder)
        self.folders.setdefault(log.tp, {})[folder] = log.high_watermark

    def recognize(self, folder: str) -> bool:
        """Return whether a folder found at the start was set aside; note it if so."""
        try:
            mark = damage.decode(self._files.read_bytes(f"{folder}/{damage.DAMAGE_FILE}"))
        except FileNotFoundError:
            return False
        tp = parse_folder(mark.partition)
        if not folder.endswith(STRAY) or tp is None:
            return False
        _logger.info("log set aside partition=%s folder=%s", tp, folder)
        self.folders.setdefault(tp, {})[folder] = mark.committed
        return True

    def done(self, tp: TopicPartition, high_watermark: int) -> list[str]:
        """Forget and return the folders of which all that was committed has been copied."""
        folders = self.folders.get(tp, {})
        found = [path for path, committed in folders.items() if committed <= high_watermark]
        for path in found:
            del folders[path]
        if not folders:
            self.folders.pop(tp, None)
        return found

    def forget(self, tp: TopicPartition) -> list[str]:
        """Forget and return all folders of a partition that is deleted."""
        return list(self.folders.pop(tp, {}))


class LeavingFolders:
    """Those of one manager. `failed` is called with a log dir and its error."""

    def __init__(
        self,
        world: World,
        dirs: Mapping[str, LogDir],
        removals: Removals,
        failed: Callable[[LogDir, OSError], None],
        config: BrokerConfig,
    ) -> None:
        self._world = world
        self._files = world.files
        self._dirs = dirs
        self._removals = removals
        self._failed = failed
        self._stray_retention_ms = config.integer("ottla.stray.retention.ms")
        self.strays = StrayFolders(world.files)
        self._renamed: list[tuple[TopicPartition, LogDir]] = []
        """not durable yet"""

    def delete(self, log_dir: LogDir, tp: TopicPartition, folder: str, delay_s: float) -> None:
        """Rename a folder to be deleted; remove it after `delay_s`."""
        target = log_dir.file(delete_folder(tp, self.unique()))
        if self._rename(log_dir, tp, folder, target):
            self._removals.add(target, delay_s)
            _logger.info("log deleted partition=%s folder=%s", tp, target)

    def discard(self, tp: TopicPartition, folder: str) -> None:
        """Delete a folder that was set aside, soon."""
        self.delete(self._dirs[folder.rpartition("/")[0]], tp, folder, 0)

    def unique(self) -> str:
        """Return what no other folder has in its name."""
        return f"{self._world.random.getrandbits(128):032x}"

    def keep(self, log_dir: LogDir, note: StrayNote, folder: str) -> None:
        """Rename a folder to a stray's, with the note in it."""
        target = log_dir.file(aside_folder(note.tp, self.unique()))
        if self._rename(log_dir, note.tp, folder, target):
            self.strays.folders[target] = note
            _logger.warning("stray partition=%s folder=%s", note.tp, target)

    def _rename(self, log_dir: LogDir, tp: TopicPartition, folder: str, target: str) -> bool:
        try:
            self._files.rename(folder, target)
        except OSError as error:
            self._failed(log_dir, error)
            return False
        self._renamed.append((tp, log_dir))
        return True

    async def make_durable(self, workers: Workers) -> set[TopicPartition]:
        """Have a worker make all renames durable; return the partitions of those that failed."""
        renamed, self._renamed = self._renamed, []
        dirs = {log_dir.path: log_dir for _, log_dir in renamed if log_dir.offline is None}
        for path, log_dir in dirs.items():
            try:
                await workers.run(self._files.fsync_dir, path)
            except OSError as error:
                self._failed(log_dir, error)
        return {tp for tp, log_dir in renamed if log_dir.offline is not None}

    def remove_expired(self, now_ms: int) -> None:
        """Delete the strays whose time is over."""
        for folder, note in self.strays.take_expired(now_ms, self._stray_retention_ms):
            log_dir = self._dirs[folder.rpartition("/")[0]]
            if log_dir.offline is None and self._files.is_dir(folder):
                _logger.warning("stray expired partition=%s folder=%s", note.tp, folder)
                self.delete(log_dir, note.tp, folder, 0)
