"""Validate: may this batch be appended, and what the leader must change in it. A decider, no I/O.

Kafka: `LogValidator` and `UnifiedLog.analyzeAndValidateRecords`. Invariants: nothing of a refused
batch was changed; the base offset and the partition leader epoch lie outside the CRC and are
patched in place by `stamp`; a change inside the CRC (LogAppendTime, a wrong max timestamp, another
codec) recomputes it. Producers write magic 2 only; a leader may send older entries.
"""

from mmap import mmap
from typing import NoReturn, cast

from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from ottla.model.config import TopicConfig
from ottla.model.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    OttlaError,
    RecordsRefusedError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from ottla.model.protocol import NO_TIMESTAMP
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEAST_LENGTH,
    LENGTH,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAGIC_V2,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    START_BYTES,
    TRANSACTIONAL_FLAG,
    Header,
    crc_matches,
    unpack_header,
    unpack_start,
    with_body,
    with_max_timestamp,
)
from ottla.wire.compression import (
    CODEC_NAMES,
    LARGE_BYTES,
    NONE,
    Payload,
    compress,
    decompress,
    mapping_of,
)
from ottla.wire.message_sets import OLD_MAGICS, old_entry
from ottla.wire.record_check import (
    UNLIMITED,
    Effort,
    EffortExceededError,
    RecordFacts,
    check_records,
    read_int,
    read_varint,
)

CODECS = {"uncompressed": NONE} | {name: n for n, name in enumerate(CODEC_NAMES) if n}
_UNBOUNDED = 2**63 - 1
_KEPT_FLAGS = CODEC_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
"""The attributes that a batch keeps when anything under its CRC changes."""

CLIENT = "client"
COORDINATOR = "coordinator"


class ValidationRules:
    """A topic's settings as the checks need them; one object per change of the settings."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "bounds_timestamps",
        "codec",
        "compact",
        "decompressed_max",
        "log_append_time",
        "max_message_bytes",
        "per_record",
    )

    def __init__(self, config: TopicConfig, *, per_record: bool = True) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.codec = CODECS.get(config.compression_type)
        self.compact = config.compact
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.bounds_timestamps = min(self.before_max_ms, self.after_max_ms) < _UNBOUNDED
        # A batch may legitimately grow a lot, but not without end (F35).
        self.decompressed_max = max(64 << 20, 4 * config.max_message_bytes)
        self.per_record = per_record


def one_batch(records: memoryview) -> memoryview:
    """Return the one batch that a producer sent, without a torn rest behind it; else raise.

    Asked before the log is, and without a text, as `ProduceRequest.validateRecords` of Kafka.
    """
    end = _end_of_batch(records, 0)
    if not end or records[MAGIC_AT] < MAGIC_V2:
        raise InvalidRecordError("")
    if end < len(records) and _end_of_batch(records, end):
        raise InvalidRecordError("")
    if end < HEADER_BYTES:
        raise CorruptRecordError(f"the batch declares {end} bytes, less than its header")
    return records[:end]


def _end_of_batch(records: memoryview, pos: int) -> int:
    """Return where the batch at `pos` ends, or 0 if it is incomplete: `ByteBufferLogInputStream`.

    CorruptRecordError if its size or its magic is impossible.
    """
    room = len(records) - pos
    if room < LOG_OVERHEAD:
        return 0
    length = int.from_bytes(records[pos + 8 : pos + LOG_OVERHEAD], "big", signed=True)
    if length < LEAST_LENGTH:
        raise CorruptRecordError(f"a batch declares {length} bytes")
    if room < START_BYTES:
        return 0
    if (magic := records[pos + MAGIC_AT]) > MAGIC_V2:
        raise CorruptRecordError(f"a batch of magic {magic}")
    return pos + LOG_OVERHEAD + length if length <= room - LOG_OVERHEAD else 0


def check_leader_batch(
    records: memoryview,
    rules: ValidationRules,
    origin: str,
    now_ms: int,
    effort: Effort = UNLIMITED,
) -> tuple[memoryview, Header]:
    """Return the one batch to append, changed as the topic asks, with its header; else raise.

    EffortExceededError if that takes more than `effort`, which is used up by as much as it took;
    the records are as they were then.
    """
    size = len(records)
    if size < HEADER_BYTES:
        if size > MAGIC_AT and records[MAGIC_AT] < MAGIC_V2:
            refuse_magic(records[MAGIC_AT])
        raise InvalidRecordError(f"{size} bytes hold no record batch")
    header: Header = unpack_header(records, 0)
    if header[MAGIC] != MAGIC_V2:
        refuse_magic(header[MAGIC])
    if header[LENGTH] + LOG_OVERHEAD != size:
        raise InvalidRecordError(f"{size} bytes are not one record batch; see `one_batch`")
    if origin == CLIENT and header[BASE_OFFSET] != 0:
        raise InvalidRecordError(f"the batch's base offset is {header[BASE_OFFSET]}, not 0")
    if size > rules.max_message_bytes:
        raise RecordTooLargeError(
            f"a batch of {size} bytes exceeds max.message.bytes={rules.max_message_bytes}"
        )
    body, crc = _body(records)
    if crc != header[CRC]:
        raise CorruptRecordError("the CRC of the batch does not match")
    attributes = header[ATTRIBUTES]
    count = header[RECORD_COUNT]
    if origin == CLIENT:
        if count <= 0 or header[LAST_OFFSET_DELTA] != count - 1:
            raise InvalidRecordError(
                f"{count} records, but the last offset delta is {header[LAST_OFFSET_DELTA]}"
            )
        if attributes & CONTROL_FLAG:
            raise InvalidRecordError("clients may not write control records")
        if header[PRODUCER_ID] >= 0 and header[BASE_SEQUENCE] < 0:
            raise InvalidRecordError(f"sequence {header[BASE_SEQUENCE]} with a producer id")
    return _check_content(records, body, header, rules, now_ms, effort)


def _body(records: memoryview) -> tuple[Payload, int]:
    """Return a copy of all under the CRC, and the CRC; of a large batch piece by piece."""
    if len(records) <= LARGE_BYTES:
        body = bytes(records[CRC_START:])
        return body, crc32c(body)
    size = len(records) - CRC_START
    mapping, crc = mapping_of(size), 0
    for at in range(0, size, LARGE_BYTES):
        piece = bytes(records[CRC_START + at : CRC_START + at + LARGE_BYTES])
        crc = extend_crc32c(crc, piece)
        mapping[at : at + len(piece)] = piece
    return mapping, crc


def refuse_magic(magic: int) -> NoReturn:
    if magic in (0, 1):
        raise UnsupportedFormatError(
            f"record batches of magic {magic} (before Kafka 0.11) are not served; "
            "use a client of Kafka 0.11 or newer"
        )
    raise InvalidRecordError(f"record batch of magic {magic}; only magic 2 is known")


def check_follower_batches(records: memoryview) -> list[tuple[int, Header]]:
    """Return (place, header) of each whole batch the leader sent; a torn last one is left out.

    CorruptRecordError for a bad CRC or size; the offsets must increase. UnsupportedFormatError if
    it begins with an unknown format; where one comes later, what is before it is returned.
    """
    found: list[tuple[int, Header]] = []
    position = 0
    total = len(records)
    last = -1
    while position + START_BYTES <= total:
        base, length, _, magic = unpack_start(records, position)
        if magic in OLD_MAGICS:
            if position + length + LOG_OVERHEAD > total:
                break
            old = old_entry(records, position)
            if old is None:
                raise CorruptRecordError(f"the CRC of the message at offset {base} is wrong")
            if base <= last:
                raise CorruptRecordError(f"offset {base} follows {last} in a fetch response")
            last = base
            found.append((position, old))
            position += length + LOG_OVERHEAD
            continue
        if magic != MAGIC_V2 and found:
            break  # what precedes it is appended first
        if magic != MAGIC_V2:
            raise UnsupportedFormatError(
                f"the leader sent records of message format {magic}, which are not known here"
            )
        if position + HEADER_BYTES > total:
            break
        header: Header = unpack_header(records, position)
        size = header[LENGTH] + LOG_OVERHEAD
        if size < HEADER_BYTES:
            raise CorruptRecordError(f"a batch declares {size} bytes, less than its header")
        if position + size > total:
            break
        if not crc_matches(records[position : position + size], header[CRC]):
            raise CorruptRecordError(
                f"the CRC of the batch at offset {header[BASE_OFFSET]} is wrong"
            )
        if header[BASE_OFFSET] <= last:
            raise CorruptRecordError(
                f"offset {header[BASE_OFFSET]} follows {last} in a fetch response"
            )
        last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        found.append((position, header))
        position += size
    return found


def _check_content(
    records: memoryview,
    body: Payload,
    header: Header,
    rules: ValidationRules,
    now_ms: int,
    effort: Effort,
) -> tuple[memoryview, Header]:
    """Check the records, then change what the topic asks. `body` is all under the CRC."""
    attributes = header[ATTRIBUTES]
    codec = attributes & CODEC_MASK
    claimed = attributes & LOG_APPEND_TIME_FLAG
    payload: Payload = body
    start = HEADER_BYTES - CRC_START
    if codec:
        if codec >= len(CODEC_NAMES):
            raise OttlaError(f"codec {codec} is unknown", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        payload = _decompressed(codec, memoryview(body)[start:], rules, effort)
        start = 0
    max_timestamp = header[MAX_TIMESTAMP]
    if rules.per_record:
        facts = check_records(payload, header[RECORD_COUNT], start=start, effort=effort)
        oldest = header[BASE_TIMESTAMP] + facts.min_timestamp_delta
        youngest = header[BASE_TIMESTAMP] + facts.max_timestamp_delta
        if oldest < -_UNBOUNDED - 1 or youngest > _UNBOUNDED:
            raise OttlaError("a timestamp is beyond 64 bits", ErrorCode.INVALID_TIMESTAMP)
        if claimed:  # then the batch's max timestamp is that of every record
            oldest = youngest = max_timestamp
        if claimed and (rules.log_append_time or max_timestamp == NO_TIMESTAMP):
            raise OttlaError(
                "a producer may not set the timestamp type LogAppendTime",
                ErrorCode.INVALID_TIMESTAMP,
            )
        _check_each(payload, start, header, facts, rules, now_ms, (oldest, youngest))
        max_timestamp = max(youngest, NO_TIMESTAMP)
    if rules.codec is not None and rules.codec != codec and not attributes & CONTROL_FLAG:
        records = _with_codec(records, memoryview(payload)[start:], rules)
        header = unpack_header(records, 0)
        attributes = header[ATTRIBUTES]
    own_type = 0
    if rules.log_append_time:
        own_type, max_timestamp = LOG_APPEND_TIME_FLAG, now_ms
    if claimed != own_type or max_timestamp != header[MAX_TIMESTAMP]:
        return with_max_timestamp(records, attributes & _KEPT_FLAGS | own_type, max_timestamp)
    return records, header


def _decompressed(codec: int, data: memoryview, rules: ValidationRules, effort: Effort) -> Payload:
    most = rules.decompressed_max
    granted = max(0, min(most, effort.bytes_left))
    try:
        payload = decompress(codec, data, granted)
    except RecordTooLargeError as error:
        effort.bytes_left -= granted
        if granted < most:
            raise EffortExceededError(str(error)) from None
        raise
    effort.bytes_left -= len(payload)
    return payload


def _check_each(
    payload: Payload,
    start: int,
    header: Header,
    facts: RecordFacts,
    rules: ValidationRules,
    now_ms: int,
    timestamps: tuple[int, int],
) -> None:
    """Look at every record where the batch as a whole says that the topic refuses one.

    `timestamps` are the oldest and the youngest.
    """
    oldest, youngest = timestamps
    bounds = None
    if rules.bounds_timestamps and not rules.log_append_time:
        first, last = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
        if oldest < first or youngest > last:
            bounds = first, last
    if bounds is None and not (facts.has_null_key and rules.compact):
        return
    error = refusal(
        payload,
        start,
        header[RECORD_COUNT],
        base_timestamp=header[BASE_TIMESTAMP],
        one_timestamp=youngest if header[ATTRIBUTES] & LOG_APPEND_TIME_FLAG else None,
        keys_wanted=rules.compact,
        timestamps=bounds,
    )
    if error is not None:
        raise error


def _with_codec(records: memoryview, payload: memoryview, rules: ValidationRules) -> memoryview:
    """Return the batch with its records compressed as the topic's compression.type asks.

    RecordTooLargeError if it is larger then than a batch may be, as with Kafka.
    """
    codec = rules.codec or 0
    body = compress(codec, payload) if codec else payload
    if HEADER_BYTES + len(body) > rules.max_message_bytes:
        raise RecordTooLargeError(
            f"the batch grows to {HEADER_BYTES + len(body)} bytes in the topic's codec, beyond "
            f"max.message.bytes={rules.max_message_bytes}"
        )
    attributes: int = unpack_header(records, 0)[ATTRIBUTES]
    return with_body(records, attributes & _KEPT_FLAGS & ~CODEC_MASK | codec, body)


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

    The producer gets each record's error, so that it can send the others again (KIP-467).

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
