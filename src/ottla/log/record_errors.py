"""Which records of a batch are refused, and why: the producer gets each record's error (KIP-467).

Who may call: `validate`, only if its check of the whole batch shows that a record is refused: then
each record is looked at. A client like librdkafka sends the other records again.

Kafka: the record errors of `LogValidator`.
"""

from mmap import mmap
from typing import cast

from ottla.model.errors import ErrorCode, RecordsRefusedError
from ottla.model.protocol import NO_TIMESTAMP
from ottla.wire.compression import Payload
from ottla.wire.record_check import read_int, read_varint

MOST_ERRORS = 10_000
"""Reported per batch at most; the other records fail with the batch anyway."""


def refusal(
    payload: Payload,
    start: int,
    count: int,
    *,
    base_timestamp: int,
    one_timestamp: int | None,
    keys_wanted: bool,
    timestamps: tuple[int, int] | None,
) -> RecordsRefusedError | None:
    """Return the error that names the refused among `count` well-formed records, or None.

    `one_timestamp`, if given, is the timestamp of every record; else each has its own.
    `keys_wanted` refuses null keys, `timestamps` those not between the two, both included.
    """
    data = cast("bytes", payload) if isinstance(payload, (bytes, mmap)) else bytes(payload)
    wrong: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    pos = start
    for index in range(count):
        if len(wrong) == MOST_ERRORS:
            break
        size, pos = read_int(data, pos)
        delta, offset_at = read_varint(data, pos + 1)
        _, key_at = read_int(data, offset_at)
        timestamp = base_timestamp + delta if one_timestamp is None else one_timestamp
        pos += size
        if keys_wanted and read_int(data, key_at)[0] < 0:
            wrong.append((index, "a compacted topic takes no record without a key"))
        elif (
            timestamps is not None
            and timestamp != NO_TIMESTAMP
            and not timestamps[0] <= timestamp <= timestamps[1]
        ):
            code = ErrorCode.INVALID_TIMESTAMP
            wrong.append(
                (index, f"timestamp {timestamp} is not in {timestamps[0]}..{timestamps[1]}")
            )
    return RecordsRefusedError(wrong, code) if wrong else None
