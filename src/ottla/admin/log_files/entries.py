"""What files of a log hold, one value for each line that is printed.

Pure values: `text` is the line that Kafka's `DumpLogSegments` prints; their fields are what
--output json has.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import msgspec

from ottla.wire.batch_header import BatchHeader
from ottla.wire.compression import CODEC_NAMES
from ottla.wire.records import Record

TIMES = ("CreateTime", "LogAppendTime")


class Problem(NamedTuple):
    """What is wrong with a file, and where: a byte of it, or the offset of an entry."""

    what: str
    position: int | None = None


class Note(NamedTuple):
    """What Kafka's tool says, too, but what is no damage."""

    what: str


class _InFile(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a file; which one is known to what prints it."""

    FORM: ClassVar[str] = ""
    """How Kafka's tool writes it."""

    file: str = ""

    @property
    def text(self) -> str:
        return self.FORM.format(self)


class Batch(_InFile, frozen=True, tag_field="kind", tag="batch"):
    """A batch's header. `valid`: its checksum is that of its bytes."""

    position: int
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    transactional: bool
    control: bool
    delete_horizon: int | None
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    compression: str
    crc: int
    valid: bool

    @property
    def text(self) -> str:
        return (
            f"baseOffset: {self.base_offset} lastOffset: {self.last_offset} count: {self.count} "
            f"baseSequence: {self.base_sequence} lastSequence: {self.last_sequence} "
            f"producerId: {self.producer_id} producerEpoch: {self.producer_epoch} "
            f"partitionLeaderEpoch: {self.leader_epoch} "
            f"isTransactional: {_bool(self.transactional)} isControl: {_bool(self.control)} "
            f"deleteHorizonMs: {_optional(self.delete_horizon)} position: {self.position} "
            f"{self.timestamp_type}: {self.max_timestamp} size: {self.size} magic: {self.magic} "
            f"compresscodec: {self.compression} crc: {self.crc} isvalid: {_bool(self.valid)}"
        )


class Decoded(msgspec.Struct, frozen=True):
    """The key and the value of a coordinator's record."""

    key: dict[str, Any] | None
    value: dict[str, Any] | None


class RecordEntry(_InFile, frozen=True, tag_field="kind", tag="record"):
    """A record. `marker` is ABORT or COMMIT in a control batch; key and value if asked for."""

    offset: int
    timestamp_type: str
    timestamp: int
    key_size: int
    value_size: int
    sequence: int
    header_keys: list[str]
    marker: str | None = None
    coordinator_epoch: int | None = None
    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    decoded: Decoded | None = None
    """Of a group or a transaction."""

    @property
    def text(self) -> str:
        line = (
            f"| offset: {self.offset} {self.timestamp_type}: {self.timestamp} "
            f"keySize: {self.key_size} valueSize: {self.value_size} sequence: {self.sequence} "
            f"headerKeys: [{','.join(self.header_keys)}]"
        )
        if self.coordinator_epoch is not None:
            line += f" endTxnMarker: {self.marker} coordinatorEpoch: {self.coordinator_epoch}"
        elif self.marker is not None:
            line += f" controlType: {self.marker}"
        return line


class ShownRecord(RecordEntry, frozen=True, tag="record"):
    """A record with its key and value as Kafka's tool decodes them, for people only."""

    shown: tuple[str | None, str | None] = (None, None)

    @property
    def text(self) -> str:
        key, value = self.shown
        return (
            super().text
            + ("" if key is None else f" key: {key}")
            + ("" if value is None else f" payload: {value}")
        )


class IndexEntry(_InFile, frozen=True, tag_field="kind", tag="index"):
    """Of an offset index: a batch's last offset, and where the batch begins."""

    offset: int
    position: int

    FORM: ClassVar[str] = "offset: {0.offset} position: {0.position}"


class TimeEntry(_InFile, frozen=True, tag_field="kind", tag="time_index"):
    """Of a time index: the largest timestamp so far, and the last offset of the batch with it."""

    timestamp: int
    offset: int

    FORM: ClassVar[str] = "timestamp: {0.timestamp} offset: {0.offset}"


class AbortedEntry(_InFile, frozen=True, tag_field="kind", tag="aborted_transaction"):
    """Of a transaction index."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    FORM: ClassVar[str] = (
        "version: {0.version} producerId: {0.producer_id} firstOffset: {0.first_offset} "
        "lastOffset: {0.last_offset} lastStableOffset: {0.last_stable_offset}"
    )


class ProducerEntry(_InFile, frozen=True, tag_field="kind", tag="producer"):
    """Of a producer snapshot. The last four are None for a producer without batches."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    txn_first_offset: int | None
    last_timestamp: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: int | None
    offset_delta: int | None

    @property
    def text(self) -> str:
        line = (
            f"producerId: {self.producer_id} producerEpoch: {self.producer_epoch} "
            f"coordinatorEpoch: {self.coordinator_epoch} "
            f"currentTxnFirstOffset: {_optional(self.txn_first_offset)} "
            f"lastTimestamp: {self.last_timestamp} "
        )
        if self.last_offset is None:
            return line
        return line + (
            f"firstSequence: {self.first_sequence} lastSequence: {self.last_sequence} "
            f"lastOffset: {self.last_offset} offsetDelta: {self.offset_delta} "
            f"timestamp: {self.last_timestamp}"
        )


class EpochEntry(_InFile, frozen=True, tag_field="kind", tag="leader_epoch"):
    """Of a leader-epoch checkpoint."""

    epoch: int
    start_offset: int

    FORM: ClassVar[str] = "epoch: {0.epoch} startOffset: {0.start_offset}"


class OffsetEntry(_InFile, frozen=True, tag_field="kind", tag="offset"):
    """Of one of a log dir's checkpoints."""

    topic: str
    partition: int
    offset: int

    FORM: ClassVar[str] = "topic: {0.topic} partition: {0.partition} offset: {0.offset}"


class PropertyEntry(_InFile, frozen=True, tag_field="kind", tag="property"):
    """Of meta.properties and partition.metadata."""

    name: str
    value: str

    FORM: ClassVar[str] = "{0.name}: {0.value}"


Entry = (
    Batch
    | RecordEntry
    | IndexEntry
    | TimeEntry
    | AbortedEntry
    | ProducerEntry
    | EpochEntry
    | OffsetEntry
    | PropertyEntry
)
Found = Iterator[Entry | Problem | Note | str]
"""What a file holds, in order. Text is a line that is for people only."""


def batch_entry(position: int, header: BatchHeader, *, valid: bool) -> Batch:
    """Return the entry of a batch at `position`."""
    codec = header.codec
    return Batch(
        position=position,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        count=header.count,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        leader_epoch=header.partition_leader_epoch,
        transactional=header.is_transactional,
        control=header.is_control,
        delete_horizon=header.base_timestamp if header.has_delete_horizon else None,
        timestamp_type=TIMES[header.timestamp_type],
        max_timestamp=header.max_timestamp,
        size=header.size,
        magic=header.magic,
        compression=CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}",
        crc=header.crc,
        valid=valid,
    )


def sequence(header: BatchHeader, record: Record) -> int:
    """Return a record's sequence number; -1 for none. Numbers wrap from 2^31-1 to 0."""
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
