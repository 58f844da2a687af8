"""`partition.metadata`: whose a log's records are, and whether no power loss can take that away.

Invariant: an id that was read back after an unclean stop counts as not durable: the process that
died may have left it in the page cache alone. Kafka: `PartitionMetadataFile`, which is synced
before the first append.
"""

from ottla.log import checkpoints
from ottla.log.flush_job import FlushJob
from ottla.model.ids import ZERO_UUID
from ottla.model.ports import Files


class TopicIdFile:
    """The topic id of one log, ZERO_UUID if it has none."""

    __slots__ = ("durable", "topic_id", "unsynced")

    def __init__(self, topic_id: bytes, *, clean: bool) -> None:
        """`clean`: it was read after a clean stop."""
        self.topic_id = topic_id
        self.durable = topic_id != ZERO_UUID and clean
        self.unsynced = topic_id != ZERO_UUID and not clean
        """whether no flush job has it yet"""

    def write(self, files: Files, folder: str, topic_id: bytes) -> None:
        """Write an id, not durably: 2,000 new partitions must not wait for 2,000 fsyncs.

        One sync for a whole LeaderAndIsr makes them durable, before anything is appended.
        """
        path = f"{folder}/{checkpoints.PARTITION_METADATA}"
        file = files.open(path + ".tmp", create=True)
        file.pwrite((checkpoints.encode_partition_metadata(topic_id),), 0)
        file.close()
        files.rename(path + ".tmp", path)
        self.topic_id, self.durable, self.unsynced = topic_id, False, True

    def add_to(self, job: FlushJob, folder: str) -> None:
        """Have a job make it durable."""
        job.to_write.append((f"{folder}/{checkpoints.PARTITION_METADATA}", self.encoded()))
        self.taken_by(job, folder)

    def encoded(self) -> bytes:
        return checkpoints.encode_partition_metadata(self.topic_id)

    def taken_by(self, job: FlushJob, folder: str) -> None:
        """Note that a job writes it; it makes the folder's own name durable, too."""
        job.folders = [folder, folder.rpartition("/")[0]]
        job.names_topic = True
        self.unsynced = False

    def restore_unsynced(self) -> None:
        """Take back that a job has it."""
        self.unsynced = self.topic_id != ZERO_UUID and not self.durable
