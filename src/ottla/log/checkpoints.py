"""Checkpoints: Kafka's small text files beside and inside partition folders.

Pure text in, text out: the caller reads and writes the bytes. Kafka: `CheckpointFile`,
`OffsetCheckpointFile`, `LeaderEpochCheckpointFile`, `PartitionMetadataFile`, `MetaProperties` and
`CleanShutdownFileHandler`. Invariant: what we write a JVM broker reads, and the other way round;
anything else raises `CheckpointError`, and the reader decides what can be rebuilt.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ottla.model.ids import TopicPartition, uuid_from_text, uuid_to_text
from ottla.model.properties import load_properties

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

_ROWS_AT_ONCE = 2_000


class CheckpointError(Exception):
    """The bytes are no such file."""


def _encode_lines(lines: Iterable[str]) -> bytes:
    rows = list(lines)
    return "".join(f"{row}\n" for row in ("0", str(len(rows)), *rows)).encode()


def _decode_lines(data: bytes, fields: int) -> list[list[str]]:
    if not data:
        return []
    try:
        version, count, *rows = data.decode("utf-8").splitlines()
        if int(version) != 0:
            raise CheckpointError(f"checkpoint version {version}, expected 0")
        cells = [row.split() for row in rows if row]
        if int(count) != len(cells) or any(len(c) != fields for c in cells):
            raise CheckpointError(f"{count} lines declared, {len(cells)} found, {fields} fields")
    except ValueError as error:
        raise CheckpointError(f"no checkpoint: {error}") from error
    return cells


def encode_offsets(offsets: Mapping[TopicPartition, int] | bytes) -> bytes:
    """Return an offset checkpoint; what is encoded already stays as it is."""
    if isinstance(offsets, bytes):
        return offsets
    return _encode_lines(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Read one of the four offset checkpoints; an empty file has no entries."""
    found: dict[TopicPartition, int] = {}
    for part in decode_offsets_in_parts(data):
        found.update(part)
    return found


def decode_offsets_in_parts(data: bytes) -> Iterator[dict[TopicPartition, int]]:
    """As `decode_offsets`, a few milliseconds' worth at a time; all void if it raises."""
    if not data:
        return
    try:
        version, count, *rows = data.decode("utf-8").splitlines()
        if int(version) != 0:
            raise CheckpointError(f"checkpoint version {version}, expected 0")
        seen = 0
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = {}
            for row in rows[start : start + _ROWS_AT_ONCE]:
                if row:
                    topic, partition, offset = row.split()
                    part[TopicPartition(topic, int(partition))] = int(offset)
                    seen += 1
            yield part
        if int(count) != seen:
            raise CheckpointError(f"{count} lines declared, {seen} found")
    except ValueError as error:
        raise CheckpointError(f"no offset checkpoint: {error}") from error


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _encode_lines(f"{epoch} {start}" for epoch, start in entries)


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Read (epoch, start offset) entries; both must be non-negative and increase."""
    if not data:
        raise CheckpointError("the file is empty")
    try:
        entries = [(int(epoch), int(start)) for epoch, start in _decode_lines(data, 2)]
    except ValueError as error:
        raise CheckpointError(f"no epoch: {error}") from error
    last = (-1, -1)
    for entry in entries:
        if entry[0] <= last[0] or entry[1] <= last[1]:
            raise CheckpointError(f"{entry} after {last}: epochs and offsets must increase")
        last = entry
    return entries


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """Return the 16-byte topic id."""
    try:
        fields = dict(line.split(": ", 1) for line in data.decode("utf-8").splitlines() if line)
        if fields["version"].strip() != "0":
            raise CheckpointError(f"partition.metadata version {fields['version']}, expected 0")
        return uuid_from_text(fields["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"no partition.metadata: {error}") from error


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the marker's text: the broker epoch (-1: none) of the life that stopped cleanly."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


class MetaProperties(msgspec.Struct, frozen=True):
    """Whose folder this is: the cluster and the broker; None where the file does not say."""

    cluster_id: str | None
    broker_id: int | None


def encode_meta_properties(meta: MetaProperties) -> bytes:
    return (f"version=0\nbroker.id={meta.broker_id}\ncluster.id={meta.cluster_id}\n").encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Read meta.properties of ZooKeeper mode (version 0), whatever is missing in it.

    Kafka: `MetaProperties` and `MetaPropertiesVersion`.
    """
    try:
        fields = load_properties(data)
        version = int(fields.get("version", "0"))
        if version != 0:
            raise CheckpointError(
                f"meta.properties version {version} (KRaft); ZooKeeper mode writes 0"
            )
        broker_id = fields.get("broker.id")
        return MetaProperties(
            fields.get("cluster.id"), None if broker_id is None else int(broker_id)
        )
    except ValueError as error:
        raise CheckpointError(f"no meta.properties: {error}") from error
