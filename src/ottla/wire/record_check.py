"""Is every record of a batch well-formed? Found out without an object per record.

Pure functions over bytes, fully typed, fit for mypyc. Two ways to the same response, compared by a
property test: a plain walk, and a columnar one for what producers mostly send, runs of records that
are equally long. There the same byte of every record is looked at in one strided slice: ten C calls
per run instead of thousands of byte operations. Kafka: `DefaultRecord.readFrom` and `LogValidator`.
"""

from collections.abc import Callable
from mmap import mmap
from typing import NamedTuple, cast

from ottla.model.errors import InvalidRecordError, RecordTooLargeError


class RecordFacts(NamedTuple):
    """What a walk over the records learns: relative timestamps, and whether a key is missing."""

    min_timestamp_delta: int
    max_timestamp_delta: int
    has_null_key: bool


TOO_MANY_STEPS = "the records take too many steps to check"


class Effort:
    """What checking may still cost: bytes that come out of decompression, and steps.

    A step is a record or a header looked at by itself, or a few dozen records of one shape; it
    takes about a microsecond. Counted, not timed: a busy machine refuses no more than an idle one.
    """

    __slots__ = ("bytes_left", "steps_left")

    def __init__(self, bytes_left: int, steps_left: int) -> None:
        self.bytes_left = bytes_left
        self.steps_left = steps_left

    def step(self, steps: int) -> None:
        """Count steps; EffortExceededError if there are none left."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise EffortExceededError(TOO_MANY_STEPS)


class EffortExceededError(RecordTooLargeError):
    """Records that may be well-formed, but cost more than is granted to find out."""


UNLIMITED = Effort(1 << 50, 1 << 50)
_READ_AS_BYTES = (bytes, mmap)
_RUN_STEPS = 32
"""What a run costs, however many records it has: a few dozen calls over at most 8,192 of them."""


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return a zigzag varint of 64 bits, as a timestamp delta is, and the position after it."""
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    high = data[pos + 1]
    if high < 0x80:
        value = byte & 0x7F | high << 7
        return (value >> 1) ^ -(value & 1), pos + 2
    return _long_varint(data, pos, 63)


def read_int(data: bytes, pos: int) -> tuple[int, int]:
    """Return a zigzag varint of 32 bits and the position after it.

    Every field but the timestamp delta is one. Java cannot read longer ones, so they are refused.
    """
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    high = data[pos + 1]
    if high < 0x80:  # most others, without another call
        value = byte & 0x7F | high << 7
        return (value >> 1) ^ -(value & 1), pos + 2
    return _long_varint(data, pos, 28)


def _long_varint(data: bytes, pos: int, last_shift: int) -> tuple[int, int]:
    value = data[pos] & 0x7F
    shift = 7
    while True:
        pos += 1
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == last_shift:  # Java drops the excess bits
                value &= 0xFFFFFFFF if last_shift == 28 else 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), pos + 1
        shift += 7
        if shift > last_shift:
            raise InvalidRecordError(f"a varint is longer than {shift // 7} bytes")


def varint(value: int) -> bytes:
    """Return `value` as a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def check_records(
    payload: bytes | bytearray | memoryview | mmap,
    count: int,
    *,
    start: int = 0,
    dense: bool = True,
    effort: Effort = UNLIMITED,
) -> RecordFacts:
    """Check that `payload` from `start` holds exactly `count` well-formed records.

    `dense` demands the offset deltas 0, 1, 2 ...; otherwise they must only rise. Raise
    InvalidRecordError naming the first bad record, EffortExceededError if it takes too many steps.
    """
    # A mapping is read as bytes are: by index, and by slices that are bytes.
    data = cast("bytes", payload) if isinstance(payload, _READ_AS_BYTES) else bytes(payload)
    if count < 0 or count * _SMALLEST_RECORD > len(data) - start:
        raise InvalidRecordError(f"{count} records in {len(data) - start} bytes")
    try:
        if count > _SHORTEST_RUN and dense:
            pos, facts = _Runs(data, start, count, effort).check()
        elif count:
            effort.step(count)
            seen = _walk(data, start, 0, count, -1, effort, dense=dense)
            pos, facts = seen[0], RecordFacts(seen[2], seen[3], seen[4])
        else:
            pos, facts = start, RecordFacts(0, 0, has_null_key=False)
    except IndexError as error:
        raise InvalidRecordError("a record ends beyond the batch") from error
    if pos != len(data):
        raise InvalidRecordError(f"{len(data) - pos} bytes after the last record")
    return facts


_SMALLEST_RECORD = 7  # size, attributes, timestamp, offset, key and value lengths, header count
_SHORTEST_RUN = 8
_WALK_AFTER_MISS = 24
"""Records walked plainly after a run proved too short, so that irregular batches lose little."""


_DELTA_GROWS_AT = 64
"""The first offset delta whose varint takes two bytes."""

_BLOCK = 8192
"""Within a block of so many offset deltas only the first two bytes of their varints change."""

_ONE_BYTE_DELTAS = bytes(range(0, 128, 2))
_FIRST_BYTES = bytes(byte | 0x80 for byte in _ONE_BYTE_DELTAS) * (_BLOCK // _DELTA_GROWS_AT)
_LAST_SECOND_BYTES = bytes(delta >> 6 for delta in range(_BLOCK))
_SECOND_BYTES = bytes(byte | 0x80 for byte in _LAST_SECOND_BYTES)
_ODD_BYTES = bytes(range(1, 256, 2))
_EVEN_BYTES = bytes(range(0, 256, 2))
_HIGH_BYTES = bytes(range(128, 256))


_Walked = tuple[int, int, int, int, bool, int, int, int, int, int, int, int, int]
"""What `_walk` returns: position, last offset delta, least and greatest timestamp delta, whether a
key was null, and of the last record: its start and the positions of timestamp, offset, key size,
key, value size, value and header count (-1 if it has headers)."""


def _walk(
    data: bytes, pos: int, index: int, stop: int, last_delta: int, effort: Effort, *, dense: bool
) -> _Walked:
    """Check the records `index` to `stop`, one after another.

    Long for a function on purpose: a call per field would double the time.
    """
    start = timestamp_at = offset_at = key_at = key_end = value_at = value_end = headers_at = 0
    lowest, highest, null_key = 1 << 63, -(1 << 63), False
    total = len(data)
    while index < stop:
        start = pos
        size, pos = read_int(data, pos) if data[pos] & 0x81 else (data[pos] >> 1, pos + 1)
        end = pos + size
        if size < 0 or end > total:
            raise InvalidRecordError(f"record {index} claims {size} of {total - pos} bytes")
        timestamp_at = pos + 1  # after the attributes, which nothing uses
        delta = data[timestamp_at]
        if delta & 0x81:
            delta, offset_at = read_varint(data, timestamp_at)
        else:
            delta >>= 1
            offset_at = timestamp_at + 1
        if delta < lowest:  # noqa: PLR1730 - min() costs a call per record
            lowest = delta
        if delta > highest:  # noqa: PLR1730
            highest = delta
        delta = data[offset_at]
        if delta & 0x81:
            delta, key_at = read_int(data, offset_at)
        else:
            delta >>= 1
            key_at = offset_at + 1
        if dense and delta != index:
            raise InvalidRecordError(f"record {index} has offset delta {delta}")
        if delta <= last_delta:
            raise InvalidRecordError(f"offset delta {delta} follows {last_delta}")
        last_delta = delta
        size = data[key_at]
        if size == 1:  # a null key
            null_key = True
            key_end = value_at = key_at + 1
        else:
            size, key_end = read_int(data, key_at)
            null_key = null_key or size < 0
            value_at = key_end + size if size > 0 else key_end
        size, value_end = read_int(data, value_at)
        headers_at = value_end + size if size > 0 else value_end
        if headers_at >= end:
            raise InvalidRecordError(f"record {index} ends before its fields do")
        if data[headers_at]:
            pos = _headers(data, headers_at, end, index, effort)
            headers_at = -1
        else:
            pos = headers_at + 1
        if pos != end:
            raise InvalidRecordError(f"record {index} is not as long as it claims")
        index += 1
    return (
        pos,
        last_delta,
        lowest,
        highest,
        null_key,
        start,
        timestamp_at,
        offset_at,
        key_at,
        key_end,
        value_at,
        value_end,
        headers_at,
    )


def _headers(data: bytes, pos: int, end: int, index: int, effort: Effort) -> int:
    """Check a record's headers, whose count stands at `pos`; return where they end."""
    count, pos = read_int(data, pos)
    if not 0 <= count <= end - pos:
        raise InvalidRecordError(f"record {index} claims {count} headers")
    effort.step(count)
    for _ in range(count):
        size, pos = read_int(data, pos)
        if size < 0:
            raise InvalidRecordError(f"record {index} has a header without a key")
        pos += size
        if pos >= end:
            raise InvalidRecordError(f"record {index} ends within a header")
        size, pos = read_int(data, pos)
        if size > 0:
            pos += size
    return pos


class _Runs:
    """Walks a batch in runs of records of one shape, known from the last record walked plainly."""

    __slots__ = (
        "count",
        "data",
        "effort",
        "headers_at",
        "index",
        "key_at",
        "key_end",
        "last_delta",
        "max_timestamp",
        "min_timestamp",
        "null_key",
        "offset_at",
        "pos",
        "start",
        "timestamp_at",
        "value_at",
        "value_end",
    )

    def __init__(self, data: bytes, pos: int, count: int, effort: Effort) -> None:
        self.data = data
        self.effort = effort
        self.pos = pos
        self.count = count
        self.index = 0
        self.last_delta = -1
        self.min_timestamp, self.max_timestamp = 1 << 63, -(1 << 63)
        self.null_key = False
        # Where the parts of the last record lie, set by `_plain`.
        self.start = self.timestamp_at = self.offset_at = self.headers_at = 0
        self.key_at = self.key_end = self.value_at = self.value_end = 0

    def check(self) -> tuple[int, RecordFacts]:
        """Return where the records end, and what was learned."""
        self._plain(1)
        while self.index < self.count:
            left = self.count - self.index
            if left < _SHORTEST_RUN or not self._run_like_last():
                self._plain(min(left, _WALK_AFTER_MISS))
            elif self.index < self.count:
                self._plain(1)
        return self.pos, RecordFacts(self.min_timestamp, self.max_timestamp, self.null_key)

    def _plain(self, records: int) -> None:
        effort = self.effort
        effort.steps_left -= records
        if effort.steps_left < 0:
            raise EffortExceededError(TOO_MANY_STEPS)
        stop = self.index + records
        (
            self.pos,
            self.last_delta,
            lowest,
            highest,
            null_key,
            self.start,
            self.timestamp_at,
            self.offset_at,
            self.key_at,
            self.key_end,
            self.value_at,
            self.value_end,
            self.headers_at,
        ) = _walk(self.data, self.pos, self.index, stop, self.last_delta, effort, dense=True)
        self.index = stop
        self.min_timestamp = min(self.min_timestamp, lowest)
        self.max_timestamp = max(self.max_timestamp, highest)
        self.null_key = self.null_key or null_key

    def _run_like_last(self) -> bool:
        """Go behind as many records shaped like the last as there are.

        Return False if there were too few to be worth it; then nothing moved.
        """
        index = self.index
        if index == _DELTA_GROWS_AT or index % _BLOCK == 0:
            return True  # the next record differs in its offset delta: walk it, then try again
        width, limit = 1, _DELTA_GROWS_AT
        if index > _DELTA_GROWS_AT:
            limit = (index // _BLOCK + 1) * _BLOCK
            width = (index.bit_length() + 7) // 7
        if self.headers_at < 0 or self.key_at - self.offset_at != width:
            return False
        stride = self.pos - self.start
        length = min(self.count, limit) - self.index
        length = min(length, (len(self.data) - self.pos) // stride)
        while length >= _SHORTEST_RUN:
            self.effort.steps_left -= _RUN_STEPS
            if self._is_run(length, stride):
                self.index += length
                self.last_delta = self.index - 1
                self.pos += length * stride
                return True
            length //= 4
        return False

    def _is_run(self, length: int, stride: int) -> bool:
        """Return whether the next `length` records have the last one's shape; note timestamps."""
        data, extent, index = self.data, length * stride, self.index

        def column(at: int) -> bytes:
            """Return the byte at `at` (a position in the last record) of each next record."""
            return data[at + stride : at + stride + extent : stride]

        for at in (
            *range(self.start, self.timestamp_at - 1),
            *range(self.offset_at + 2, self.key_at),
            *range(self.key_at, self.key_end),
            *range(self.value_at, self.value_end),
            self.headers_at,
        ):
            if column(at).count(data[at]) != length:
                return False
        if not self._is_rising(column, index, length):
            return False
        width = self.offset_at - self.timestamp_at
        if width == 1:
            return self._one_byte_timestamps(column(self.timestamp_at))
        if width == 2:
            return self._two_byte_timestamps(
                column(self.timestamp_at), column(self.timestamp_at + 1)
            )
        return False

    def _is_rising(self, column: Callable[[int], bytes], index: int, length: int) -> bool:
        """Return whether the offset deltas of a run are those from `index` on."""
        width = self.key_at - self.offset_at
        if width == 1:
            return column(self.offset_at) == _ONE_BYTE_DELTAS[index : index + length]
        begin = index % _BLOCK
        end = begin + length
        second = _LAST_SECOND_BYTES if width == 2 else _SECOND_BYTES
        return (
            column(self.offset_at) == _FIRST_BYTES[begin:end]
            and column(self.offset_at + 1) == second[begin:end]
        )

    def _one_byte_timestamps(self, deltas: bytes) -> bool:
        if not deltas.isascii():
            return False
        for same_sign in (deltas.translate(None, _ODD_BYTES), deltas.translate(None, _EVEN_BYTES)):
            if same_sign:
                self._note(max(same_sign))
                self._note(min(same_sign))
        return True

    def _two_byte_timestamps(self, first: bytes, second: bytes) -> bool:
        if not second.isascii() or first.translate(None, _HIGH_BYTES):
            return False
        for low, high in set(zip(first, second, strict=True)):
            self._note(low & 0x7F | high << 7)
        return True

    def _note(self, zigzag: int) -> None:
        delta = (zigzag >> 1) ^ -(zigzag & 1)
        self.min_timestamp = min(self.min_timestamp, delta)
        self.max_timestamp = max(self.max_timestamp, delta)
