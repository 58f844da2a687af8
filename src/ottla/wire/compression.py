"""The four codecs of record batches, each with a cap on what comes out.

Invariants: no call allocates more than `max_size` bytes for its output (plus one block), whatever
the input claims; a larger output is RecordTooLargeError, a broken one InvalidRecordError. The
latter does not mean that a disk is damaged: every replica stores the same bytes. Outputs above
`LARGE_BYTES` are made without holding the interpreter's lock for long, so that a worker thread may
make them. The decoders accept what Kafka's readers accept; `tests/oracle/test_batches.py` compares
them. Written forms are those every client reads: snappy in xerial framing (Java insists on it), lz4
frames with independent blocks and a correct header checksum (Java refuses others in v2 batches).
Kafka: `CompressionType`, `Lz4BlockInputStream`, Java's `GZIPInputStream`, snappy-java's
`SnappyInputStream` and zstd-jni's `ZstdInputStream`.
"""

import zlib
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct

import cramjam

from ottla.model.errors import ErrorCode, InvalidRecordError, RecordTooLargeError
from ottla.model.ports import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names by number, as `compression.type` has them."""

_GZIP_WINDOW = 31  # zlib's way to say: gzip format, largest window
_GZIP_MEMBER_BLOCKS = 8
"""Each additional member counts as this many blocks; writers make one member."""
_GZIP_IGNORED_BYTES = 18
"""Java ignores this many bytes after a member without parsing them."""
_GZIP_TRAILER = Struct("<II")

LARGE_BYTES = 1 << 20
"""Larger outputs are anonymous mappings: their pages need no zeroing under the interpreter's lock,
and go back to the system at once."""

_PIECE_BYTES = 1 << 16
_LEAST_BLOCK_BYTES = 512
"""What a block counts for at least: without it, millions of empty ones would cost only time."""
_FREE_BLOCKS = 64

Payload = Buffer | mmap
"""What `decompress` returns: read it by index and slice, or take a memoryview of it."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32768
_XERIAL_START = int.from_bytes(_XERIAL_MAGIC[:4], "big", signed=True)
"""In place of a block's size, it starts a further stream."""
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_END = bytes(4)
_LZ4_STORED = 0x80000000
_LZ4_BLOCK_CHECKSUMS, _LZ4_CONTENT_CHECKSUM = 0x10, 0x04
_LZ4_LEAST_SIZE_CODE = 4
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"  # independent blocks of 64 KiB, and its checksum
_LZ4_BLOCK_BYTES = 1 << 16
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 131072
_BIG_INT32 = Struct(">i")
_LITTLE_UINT32 = Struct("<I")


def compress(codec: int, data: Buffer) -> bytes:
    """Return `data` in a codec's written form; codec 0 returns a plain copy."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return zlib.compress(data, 6, _GZIP_WINDOW)
    if codec == SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec == LZ4:
        return _compress_lz4(memoryview(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, 3))
    raise InvalidRecordError(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, max_size: int) -> Payload:
    """Return what `data` holds, at most `max_size` bytes; codec 0 returns `data` itself."""
    view = memoryview(data)
    try:
        if codec == NONE:
            if len(view) > max_size:
                raise _too_large(codec, max_size)
            return data
        if codec == GZIP:
            return _decompress_gzip(view, max_size)
        if codec == SNAPPY:
            return _decompress_snappy(view, max_size)
        if codec == LZ4:
            return _decompress_lz4(view, max_size)
        if codec == ZSTD:
            return _decompress_zstd(view, max_size)
    except (cramjam.DecompressionError, zlib.error, OverflowError) as error:
        raise InvalidRecordError(f"broken {CODEC_NAMES[codec]} data: {error}") from error
    raise InvalidRecordError(
        f"unknown compression codec {codec}", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )


def _too_large(codec: int, max_size: int) -> RecordTooLargeError:
    return RecordTooLargeError(f"{CODEC_NAMES[codec]} data holds more than {max_size} bytes")


def _cut_short(codec: int) -> InvalidRecordError:
    return InvalidRecordError(f"{CODEC_NAMES[codec]} data is cut short")


class _Output:
    """Collects an output of unknown size: in pieces as long as it is small, then in one mapping."""

    __slots__ = ("_codec", "_large", "_max_size", "_parts", "blocks", "size")

    def __init__(self, codec: int, max_size: int) -> None:
        self._codec = codec
        self._max_size = max_size
        self._parts: list[Buffer] = []
        self._large: mmap | None = None
        self.size = 0
        self.blocks = 0

    @property
    def room(self) -> int:
        return self._max_size - self.size

    def count(self, blocks: int = 1) -> None:
        """Count blocks, or work that takes as long; RecordTooLargeError for too many."""
        self.blocks += blocks
        if (self.blocks - _FREE_BLOCKS) * _LEAST_BLOCK_BYTES > self._max_size:
            raise _too_large(self._codec, self._max_size)

    def add(self, part: Buffer) -> None:
        """Take one block's bytes; RecordTooLargeError beyond the cap."""
        at = self.size
        self.size += len(part)
        if self.size > self._max_size:
            raise _too_large(self._codec, self._max_size)
        self.count()
        if self._large is None:
            self._parts.append(part)
            if self.size > LARGE_BYTES:
                parts, self._parts = self._parts, []
                self._large = mapping_of(4 * self.size)
                self.size = 0
                for one in parts:
                    self._large[self.size : self.size + len(one)] = one
                    self.size += len(one)
            return
        if self.size > len(self._large):
            self._large = _resized(self._large, 2 * self.size)
        self._large[at : self.size] = part

    def whole(self) -> Payload:
        if self._large is not None:
            return _resized(self._large, self.size)
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


def mapping_of(size: int) -> mmap:
    """Return so many zeros; private, since a shared mapping cannot grow beyond its first size."""
    return mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)


def _resized(memory: mmap, size: int) -> mmap:
    """Return a mapping of `size` bytes that begins with the same bytes."""
    try:
        memory.resize(size)
    except SystemError:  # a system without mremap
        grown = mapping_of(size)
        common = min(size, len(memory))
        grown[:common] = memory[:common]
        return grown
    return memory


# -- gzip ---------------------------------------------------------------------------------------


def _decompress_gzip(data: memoryview, max_size: int) -> Payload:
    if len(data) <= _PIECE_BYTES:  # what most batches are: one small member
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            whole = member.decompress(data, min(max_size + 1, LARGE_BYTES))
            if member.eof and not member.unused_data and len(whole) <= max_size:
                return whole
        except zlib.error:  # e.g. reserved flags, which Java ignores
            pass
    output = _Output(GZIP, max_size)
    pos = _gzip_header(data, 0)
    while True:
        pos = _gzip_member(data, pos, output)
        if len(data) - pos <= _GZIP_IGNORED_BYTES:
            return output.whole()
        try:
            pos = _gzip_header(data, pos)
        except InvalidRecordError:  # Java ignores data that does not start with a valid header
            return output.whole()
        output.count(_GZIP_MEMBER_BLOCKS)


def _gzip_header(data: memoryview, pos: int) -> int:
    """Return where a member's deflated data starts; the same checks as Java's GZIPInputStream."""
    start, end = pos, len(data)
    if end - pos < 10:
        raise _cut_short(GZIP)
    if bytes(data[pos : pos + 3]) != b"\x1f\x8b\x08":
        raise InvalidRecordError("the data does not start with a gzip member")
    flags = data[pos + 3]
    pos += 10
    if flags & 4:  # extra field
        pos += 2 + int.from_bytes(data[pos : pos + 2], "little")
    for flag in (8, 16):  # name, comment
        if flags & flag:
            pos = _after_zero(data, pos)
    if flags & 2:
        crc = zlib.crc32(data[start:pos]) & 0xFFFF
        if crc != int.from_bytes(data[pos : pos + 2], "little"):
            raise InvalidRecordError("the header checksum of a gzip member is wrong")
        pos += 2
    if pos > end:
        raise _cut_short(GZIP)
    return pos


def _after_zero(data: memoryview, pos: int) -> int:
    while pos < len(data):
        at = bytes(data[pos : pos + 512]).find(0)
        if at >= 0:
            return pos + at + 1
        pos += 512
    raise _cut_short(GZIP)


def _gzip_member(data: memoryview, pos: int, output: _Output) -> int:
    """Inflate the data at `pos` into `output`, check the trailer, and return its end.

    The input pieces start small because zlib copies the bytes that follow a member.
    """
    member = zlib.decompressobj(-15)
    crc, began, piece_bytes = 0, output.size, 512
    while not member.eof:
        if pos == len(data):
            raise _cut_short(GZIP)
        piece: Buffer = data[pos : pos + piece_bytes]
        pos += len(piece)
        piece_bytes = min(2 * piece_bytes, _PIECE_BYTES)
        while len(piece) and not member.eof:
            # One byte over the cap is asked for, to tell "exactly full" from "too large".
            part = member.decompress(piece, min(output.room + 1, LARGE_BYTES))
            if part:
                crc = zlib.crc32(part, crc)
                output.add(part)
            piece = member.unconsumed_tail
    pos -= len(member.unused_data)
    if len(data) - pos < _GZIP_TRAILER.size:
        raise _cut_short(GZIP)
    if _GZIP_TRAILER.unpack_from(data, pos) != (crc, output.size - began):
        raise InvalidRecordError("the checksum or the size of a gzip member is wrong")
    return pos + _GZIP_TRAILER.size


# -- snappy -------------------------------------------------------------------------------------


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BIG_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_size: int) -> Payload:
    end = len(data)
    if end < len(_XERIAL_HEADER) or bytes(data[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, max_size, max_size)  # bare, as librdkafka writes it
    pos = len(_XERIAL_HEADER)
    if end - pos > 4 and _BIG_INT32.unpack_from(data, pos)[0] == end - pos - 4:  # one block
        return _decompress_snappy_block(data[pos + 4 :], max_size, max_size)
    output = _Output(SNAPPY, max_size)
    while end - pos >= 4:  # Java ignores a shorter rest
        (size,) = _BIG_INT32.unpack_from(data, pos)
        if size == _XERIAL_START:
            pos = _next_xerial(data, pos)
            output.count()
            continue
        pos += 4
        if size <= 0 or size > end - pos:
            raise InvalidRecordError(f"a snappy block claims {size} of {end - pos} bytes")
        part = _decompress_snappy_block(data[pos : pos + size], output.room, max_size)
        output.add(memoryview(part))
        pos += size
    return output.whole()


def _next_xerial(data: memoryview, pos: int) -> int:
    """Check the header of a further stream as Java does, and return where its blocks start."""
    after = pos + len(_XERIAL_HEADER)
    if after > len(data):
        raise _cut_short(SNAPPY)
    if bytes(data[pos : pos + 8]) != _XERIAL_MAGIC:
        if len(data) - after < 4:
            return after
        raise InvalidRecordError("an invalid snappy stream header is followed by more data")
    (version,) = _BIG_INT32.unpack_from(data, pos + 8)
    if version < 1:
        raise InvalidRecordError(f"a snappy stream of version {version}")
    return after


def _decompress_snappy_block(data: memoryview, room: int, max_size: int) -> bytearray | mmap:
    size: int = cramjam.snappy.decompress_raw_len(data)
    if size > room:
        raise _too_large(SNAPPY, max_size)
    if size > len(data) * 64:  # no snappy data expands further: spare us the allocation
        raise InvalidRecordError(f"snappy data of {len(data)} bytes claims to hold {size}")
    output = mapping_of(size) if size > LARGE_BYTES else bytearray(size)
    with memoryview(output) as view:
        if cramjam.snappy.decompress_raw_into(data, view) != size:
            raise _cut_short(SNAPPY)
    return output


# -- lz4 ----------------------------------------------------------------------------------------


def _compress_lz4(data: memoryview) -> bytes:
    """Return a frame like those of Kafka's `Lz4BlockOutputStream`: without block checksums."""
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        piece = data[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(piece, store_size=False))
        if len(block) < len(piece):
            parts += (_LITTLE_UINT32.pack(len(block)), block)
        else:
            parts += (_LITTLE_UINT32.pack(len(piece) | _LZ4_STORED), bytes(piece))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _decompress_lz4(data: memoryview, max_size: int) -> Payload:
    """Decode block by block, so that one block at most is held beyond the cap.

    As in Kafka's reader, the frame ends at its end mark or at an empty block, and what follows is
    ignored. A content checksum must be present, but its value is not compared.
    """
    pos, size_code, flags = _lz4_header(data)
    block_limit = 1 << (8 + 2 * size_code)
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUMS else 0
    end_mark_bytes = 8 if flags & _LZ4_CONTENT_CHECKSUM else 4
    output: _Output | None = None
    end = len(data)
    while True:
        if end - pos < 4:
            raise _cut_short(LZ4)
        (size,) = _LITTLE_UINT32.unpack_from(data, pos)
        stored, size = size & _LZ4_STORED, size & ~_LZ4_STORED
        if size == 0:
            if end - pos < end_mark_bytes:
                raise _cut_short(LZ4)
            return b"" if output is None else output.whole()
        start, pos = pos, pos + 4 + size + checksum_bytes
        if size > block_limit or pos > end:
            raise InvalidRecordError(f"an lz4 block claims {size} of {end - start - 4} bytes")
        block = data[start + 4 : start + 4 + size]
        if checksum_bytes:
            part = _lz4_checked_block(data[start:pos], size_code)
        else:
            part = block if stored else _lz4_block(block, block_limit)
        if not len(part):
            return b"" if output is None else output.whole()
        if (
            output is None
            and data[pos : pos + 4] == _LZ4_END
            and end - pos >= end_mark_bytes
            and len(part) <= max_size
        ):  # one block
            return part
        output = output or _Output(LZ4, max_size)
        output.add(part)


def _lz4_block(block: memoryview, block_limit: int) -> memoryview:
    output = memoryview(bytearray(min(block_limit, 255 * len(block) + 64)))
    return output[: cramjam.lz4.decompress_block_into(block, output, len(output))]


def _lz4_checked_block(block: memoryview, size_code: int) -> memoryview:
    """Decode a block that has a checksum: wrapped in a frame, so that the C code checks it."""
    most = 255 * len(block) + 64
    while size_code > _LZ4_LEAST_SIZE_CODE and most <= 1 << (6 + 2 * size_code):
        size_code -= 1  # the C code allocates that much
    output = memoryview(bytearray(min(1 << (8 + 2 * size_code), most)))
    frame = b"".join((_LZ4_CHECKED_HEADERS[size_code], block, _LZ4_END))
    return output[: cramjam.lz4.decompress_into(frame, output)]


def _lz4_header(data: memoryview) -> tuple[int, int, int]:
    """Return where the blocks start, the code of how large one may be, and the flags."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise InvalidRecordError("no lz4 frame")
    flags, size_code = data[4], data[5] >> 4
    if flags >> 6 != 1 or flags & 3 or data[5] & 0xF or not 4 <= size_code <= 7:
        raise InvalidRecordError(f"unsupported lz4 frame: flags {flags:#04x}, {data[5]:#04x}")
    if not flags & 0x20:
        raise InvalidRecordError("lz4 frames with linked blocks are not part of Kafka's format")
    pos = 6 + (8 if flags & 0x08 else 0)
    if len(data) <= pos:
        raise _cut_short(LZ4)
    if data[pos] != xxh32_short(bytes(data[4:pos])) >> 8 & 0xFF:
        raise InvalidRecordError("the header checksum of an lz4 frame is wrong")
    return pos + 1, size_code, flags


def xxh32_short(data: bytes) -> int:
    """Return the XXH32 hash (seed 0) of fewer than 16 bytes: all that frame headers need."""
    assert len(data) < 16
    mask = 0xFFFFFFFF
    value = (374761393 + len(data)) & mask
    pos = 0
    while pos + 4 <= len(data):
        (word,) = _LITTLE_UINT32.unpack_from(data, pos)
        value = (value + word * 3266489917) & mask
        value = (value << 17 | value >> 15) * 668265263 & mask
        pos += 4
    for byte in data[pos:]:
        value = (value + byte * 374761393) & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


_LZ4_CHECKED_HEADERS = {
    code: _LZ4_MAGIC + flags + bytes((xxh32_short(flags) >> 8 & 0xFF,))
    for code in range(_LZ4_LEAST_SIZE_CODE, 8)
    for flags in [bytes((0x60 | _LZ4_BLOCK_CHECKSUMS, code << 4))]
}
"""Headers of frames with block checksums, by the code of the maximum block size."""


# -- zstd ---------------------------------------------------------------------------------------


def _decompress_zstd(data: memoryview, max_size: int) -> Payload:
    """Allocate what the block headers can yield at most, but never more than the cap."""
    bound = _zstd_bound(data, max_size)
    room = min(bound, max_size)
    output: bytearray | mmap = mapping_of(room) if room > LARGE_BYTES else bytearray(room)
    view = memoryview(output)
    try:
        size: int = cramjam.zstd.decompress_into(data, view)
    except cramjam.DecompressionError:
        if bound > max_size:
            raise _too_large(ZSTD, max_size) from None
        raise
    if isinstance(output, bytearray):
        return view[:size]
    view.release()
    return _resized(output, size) if size > LARGE_BYTES else output[:size]


def _zstd_bound(data: memoryview, enough: int) -> int:
    """Return an upper bound of the output, from the block headers alone.

    Beyond `enough` bytes, or blocks that count for as many, nothing further is looked at.
    """
    pos = total = frames = 0
    end = len(data)
    while pos < end and total <= enough:
        frames += 1
        if (frames - _FREE_BLOCKS) * _LEAST_BLOCK_BYTES > enough:
            return enough + 1
        if end - pos < 8:
            raise _cut_short(ZSTD)
        (magic,) = _LITTLE_UINT32.unpack_from(data, pos)
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # a skippable frame
            (size,) = _LITTLE_UINT32.unpack_from(data, pos + 4)
            pos += 8 + size
            continue
        if magic != _ZSTD_MAGIC:
            raise InvalidRecordError("no zstd frame")
        pos, size = _zstd_frame(data, pos + 4, enough)
        total += size
    return total


def _zstd_frame(data: memoryview, pos: int, enough: int) -> tuple[int, int]:
    """Return the end of a frame that starts after its magic at `pos`, and its output's bound.

    The end of the data and more than `enough` for a frame that holds, or counts for, more.
    """
    flags = data[pos]
    single_segment = flags >> 5 & 1
    content_size_bytes = (single_segment, 2, 4, 8)[flags >> 6]
    pos += 1 + (1 - single_segment) + (0, 1, 2, 4)[flags & 3] + content_size_bytes
    total = blocks = 0
    end = len(data)
    while True:
        blocks += 1
        if max(total, (blocks - _FREE_BLOCKS) * _LEAST_BLOCK_BYTES) > enough:
            return end, enough + 1
        if end - pos < 3:
            raise _cut_short(ZSTD)
        header = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == 3 or size > _ZSTD_BLOCK_BYTES:
            raise InvalidRecordError(f"a zstd block of type {kind} claims {size} bytes")
        total += _ZSTD_BLOCK_BYTES if kind == 2 else size
        pos += 3 + (1 if kind == 1 else size)
        if last:
            pos += 4 if flags & 4 else 0
            if pos > end:
                raise _cut_short(ZSTD)
            return pos, total
