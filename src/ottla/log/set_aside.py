"""Damaged logs that were set aside: kept until the new replica has all committed records.

Who may call: `manager` owns it, `replication.damaged_replicas` uses it (fault F20). A folder is
named as Kafka names strays, `<topic>-<partition>.<unique>-stray`: a JVM broker loads it and does
not use it. The damage file in it says which partition it was and up to which offset its records
were committed. Invariant: it is found again after a restart.
"""

import logging

from ottla.log import damage
from ottla.log.log import Log
from ottla.log.log_dir import STRAY, parse_folder
from ottla.model.ids import TopicPartition
from ottla.model.ports import Files

_logger = logging.getLogger(__name__)

_MAX_NAME = 255


def aside_folder(tp: TopicPartition, unique: str) -> str:
    """Return the name of a folder that is set aside; long topics are cut."""
    suffix = f"-{tp.partition}.{unique}{STRAY}"
    return tp.topic[: _MAX_NAME - len(suffix)] + suffix


class SetAside:
    """The folders that were set aside: by partition, each with the offset that it was committed to.

    A partition may have several: the disk may damage what was copied anew, too.
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
