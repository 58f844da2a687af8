"""What comparing replicas finds: kinds, and one finding as a value.

Pure.
"""

from typing import NamedTuple

from ottla.model.ids import TopicPartition

CHECKSUM = "bad checksum"
UNREADABLE = "unreadable bytes"
DUPLICATE = "duplicate offset"
LOST = "lost records"
FOREIGN = "foreign segment"
FOREIGN_FOLDER = "foreign folder"
MISSING_TAIL = "missing tail"
MISSING_REPLICA = "missing replica"
EPOCH = "epoch mismatch"
DIVERGENT = "divergent"
CHECKPOINT = "bad checkpoint"
OUT_OF_SYNC = "out of sync"
TORN_TAIL = "torn tail"
UNCOMMITTED = "uncommitted tail"
CLEANED = "cleaned"
NOT_READ = "not read"


class Finding(NamedTuple):
    """Something about one partition. `offset`, `broker`, `position` -1 and `file` "" where unknown.

    `wrong` is False for what a healthy cluster may show, too; `contents` is the digest of the file,
    to look for the same elsewhere, 0 where that makes no sense.
    """

    topic: str
    partition: int
    kind: str
    offset: int
    broker: int
    file: str
    position: int
    detail: str
    wrong: bool = True
    contents: int = 0

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
