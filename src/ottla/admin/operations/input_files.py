"""Files that people give to commands: offsets of a group, offsets to delete up to, a password.

OttlaError names the file and what is wrong with it. Kafka: the files of `ConsumerGroupCommand` and
`DeleteRecordsCommand`.
"""

import csv
import io
import re

import msgspec

from ottla.client.offsets import HIGH_WATERMARK
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

MAX_FILE_BYTES = 4_194_304
MAX_PASSWORD_BYTES = 1024


def parse_offsets(data: bytes, where: str, group: str) -> dict[TopicPartition, int]:
    """Return the offsets of `topic,partition,offset` or `group,topic,partition,offset` lines.

    OttlaError names the file, the line and what is wrong with it; lines of other groups are one.
    """
    if len(data) > MAX_FILE_BYTES:
        raise OttlaError(f"{where}: a list of offsets has at most {MAX_FILE_BYTES:,} bytes")
    found: dict[TopicPartition, int] = {}
    try:
        rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise OttlaError(f"{where}: {error}") from None
    for number, row in enumerate(rows, 1):
        *owner, topic, partition, offset = row if len(row) in (3, 4) else ("", "", "", "")
        if not topic or not (partition + offset).isascii() or not partition.isdigit():
            raise OttlaError(f"{where}, line {number}: write topic,partition,offset")
        if not offset.isdigit() or int(offset) >= 1 << 63 or int(partition) >= 1 << 31:
            raise OttlaError(f"{where}, line {number}: {offset or 'nothing'} is not an offset")
        if len(row) == 4 and owner != [group]:
            raise OttlaError(f"{where}, line {number}: this is of group {owner[0]}, not {group}")
        tp = TopicPartition(topic, int(partition))
        if tp in found:
            raise OttlaError(f"{where}, line {number}: {tp} is named twice")
        found[tp] = int(offset)
    if not found:
        raise OttlaError(f"{where}: no offsets in it")
    return found


class _Entry(msgspec.Struct):
    topic: str
    partition: int
    offset: int


class _File(msgspec.Struct):
    partitions: list[_Entry]
    version: int = 1


def parse_deletions(data: bytes, where: str) -> dict[TopicPartition, int]:
    """Return the offsets of Kafka's file: {"partitions": [{"topic", "partition", "offset"}]}."""
    if len(data) > MAX_FILE_BYTES:
        raise OttlaError(f"{where}: a list of offsets has at most {MAX_FILE_BYTES:,} bytes")
    try:
        found = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OttlaError(f"{where}: {error}") from None
    if found.version != 1:
        raise OttlaError(f"{where}: version {found.version}, expected 1")
    offsets: dict[TopicPartition, int] = {}
    for entry in found.partitions:
        tp = TopicPartition(entry.topic, entry.partition)
        if tp in offsets:
            raise OttlaError(f"{where}: {tp} is named twice")
        if not HIGH_WATERMARK <= entry.offset < 1 << 63:
            raise OttlaError(f"{where}: {tp}: {entry.offset} is not an offset")
        offsets[tp] = entry.offset
    if not offsets:
        raise OttlaError(f"{where}: no partitions in it")
    return offsets


def parse_password(data: bytes, where: str) -> str:
    """Return the first line; OttlaError, never with what was read."""
    if len(data) > MAX_PASSWORD_BYTES:
        raise OttlaError(f"{where}: a password has at most {MAX_PASSWORD_BYTES} bytes")
    try:
        lines = re.split(r"\r\n|\r|\n", data.decode())
    except UnicodeDecodeError:
        raise OttlaError(f"{where}: a password must be UTF-8") from None
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    if not lines[0]:
        raise OttlaError(f"{where}: the password is empty")
    if len(lines) > 1:
        raise OttlaError(f"{where}: a password is one line")
    return lines[0]
