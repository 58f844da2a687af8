"""One log dir: its state, and the names of the folders in it.

Pure names and values. Kafka: the names in `LocalLog`: `<topic>-<partition>` holds a current log,
`<topic>-<partition>.<unique>-future` the copy that will replace it, `….<unique>-delete` a log to be
removed. Invariant: a Kafka broker understands every name made here in the same way.
"""

from dataclasses import dataclass, field

from ottla.log.lives import Life
from ottla.model.ids import TopicPartition
from ottla.model.ports import Lock

DELETE = "-delete"
STRAY = "-stray"
FUTURE = "-future"
REPLACED_BY = ".ottla-replaced-by"
"""A file in a folder that a future log is about to replace; it names that log's dir.

Only a crash between the two renames of a replacement leaves two current folders. Kafka refuses to
start then; this says which of them is the older one.
"""

_MAX_NAME = 255


@dataclass(slots=True)
class LogDir:
    """One log dir: its lock, whether it stopped cleanly, what its checkpoints said."""

    path: str
    lock: Lock | None = None
    clean: bool = False
    loaded: bool = False
    """whether all logs in it are loaded: before that its checkpoints must not be written"""
    same_boot: bool = False
    """whether everything that the last process wrote is there: the system kept running"""
    may_be_unwritten: bool = False
    """whether what is read from it may be in memory alone: there may have been a disk error"""
    boot_id_written: bool = False
    """whether the boot id file is there: a crash of this process alone loses nothing"""
    damaged_after_clean_stop: bool = False
    """whether a log in it was found to be damaged although the dir was closed cleanly"""
    life: Life = field(default_factory=Life)
    """which life of this broker it is of, and what that life knew of ZooKeeper"""
    offline: str | None = None
    logs: int = 0
    """how many logs lie here, future ones among them"""
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    cleaned: dict[TopicPartition, int] = field(default_factory=dict)
    forgotten: dict[TopicPartition, int] = field(default_factory=dict)
    """deleted logs whose recovery points the checkpoint may still name, each with the deletion's
    number"""
    deletions: int = 0

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def checkpointed_high_watermark(self, tp: TopicPartition) -> int | None:
        """Return what the checkpoint says: 0 of a log younger than it, None if there is none."""
        return self.high_watermarks.get(tp, 0 if self.high_watermarks else None)

    def forget(self, tp: TopicPartition) -> None:
        """Forget the checkpointed offsets of a log that was removed from here."""
        for known in (self.recovery_points, self.log_starts, self.high_watermarks, self.cleaned):
            known.pop(tp, None)
        self.deletions += 1
        self.forgotten[tp] = self.deletions


def parse_folder(name: str) -> TopicPartition | None:
    """Return the partition a current log's folder is named after, or None."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return TopicPartition(topic, int(partition))


def parse_future_folder(name: str) -> TopicPartition | None:
    """Return the partition a future log's folder is named after, or None."""
    current, dot, _ = name.rpartition(".")
    return parse_folder(current) if dot and name.endswith(FUTURE) else None


def future_folder(tp: TopicPartition, unique: str) -> str:
    """Return the name of a future log's folder."""
    return f"{tp}.{unique}{FUTURE}"


def delete_folder(tp: TopicPartition, unique: str) -> str:
    """Return the name of a folder that is about to be removed; long topics are cut."""
    suffix = f"-{tp.partition}.{unique}{DELETE}"
    return tp.topic[: _MAX_NAME - len(suffix)] + suffix


def future_name_fits(tp: TopicPartition) -> bool:
    """Return whether a file system allows the name of this partition's future folder."""
    return len(future_folder(tp, 32 * "0")) <= _MAX_NAME
