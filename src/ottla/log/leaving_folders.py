"""Folders that leave their place: logs that are deleted, and those that are kept as strays.

Who may call: `manager`. Invariants: a folder is renamed at once and removed later; what a
controller receives as done is durable first (`make_durable`), or a power loss would bring a deleted
log back under its name; a stray is removed only when its time is over. Kafka:
`LogManager.asyncDelete`.
"""

import logging
from collections.abc import Callable, Mapping

from ottla.log.log_dir import LogDir, delete_folder
from ottla.log.removal import Removals
from ottla.log.set_aside import aside_folder
from ottla.log.stray_folders import StrayFolders, StrayNote
from ottla.model.config import BrokerConfig
from ottla.model.ids import TopicPartition
from ottla.model.ports import Workers, World

_logger = logging.getLogger(__name__)


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
