"""The four codecs of record batches, each with a cap on what comes out.

Who may call: `records`, the log's validation, the console. Invariant: no call allocates more than
`max_size` bytes for its output (plus one block), whatever the input claims; a larger output is
RecordTooLargeError, a broken one CorruptRecordError. Outputs above `LARGE_BYTES` are made without
holding the interpreter's lock for long, so that a worker thread may make them. Written forms are
those every client reads: snappy in xerial framing (Java insists on it), lz4 frames with independent
blocks and a correct header checksum (Java refuses others in v2 batches). Kafka:
`CompressionType`, `Lz4BlockInputStream` and snappy-java's `SnappyInputStream`.
"""

import zlib
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct

import cramjam

from ottla.model.errors import CorruptRecordError, ErrorCode, RecordTooLargeError
from ottla.model.ports import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names by number, as `compression.type` has them."""

_GZIP_WINDOW = 31  # zlib's way to say: gzip format, largest window
_MOST_GZIP_MEMBERS = 64
"""Each costs a copy of what follows it; writers make one."""

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
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_END = bytes(4)
_LZ4_STORED = 0x80000000
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
        compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
        compressor.compress(data if isinstance(data, bytes) else bytes(data))
        return bytes(compressor.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, 3))
    raise CorruptRecordError(f"unknown compression codec {codec}")


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
        raise CorruptRecordError(f"broken {CODEC_NAMES[codec]} data: {error}") from error
    raise CorruptRecordError(
        f"unknown compression codec {codec}", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )


def _too_large(codec: int, max_size: int) -> RecordTooLargeError:
    return RecordTooLargeError(f"{CODEC_NAMES[codec]} data holds more than {max_size} bytes")


def _cut_short(codec: int) -> CorruptRecordError:
    return CorruptRecordError(f"{CODEC_NAMES[codec]} data is cut short")


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

    def add(self, part: Buffer) -> None:
        """Take one block's bytes; RecordTooLargeError beyond the cap."""
        at = self.size
        self.size += len(part)
        self.blocks += 1
        least = (self.blocks - _FREE_BLOCKS) * _LEAST_BLOCK_BYTES
        if max(self.size, least) > self._max_size:
            raise _too_large(self._codec, self._max_size)
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
        whole = member.decompress(data, min(max_size + 1, LARGE_BYTES))
        if member.eof and not member.unused_data and len(whole) <= max_size:
            return whole
    output = _Output(GZIP, max_size)
    pos, end = 0, len(data)
    for _ in range(_MOST_GZIP_MEMBERS):
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            if pos == end:
                raise _cut_short(GZIP)
            piece: Buffer = data[pos : pos + _PIECE_BYTES]
            pos += len(piece)
            while len(piece) and not member.eof:
                # One byte over the cap is asked for, to tell "exactly full" from "too large".
                part = member.decompress(piece, min(output.room + 1, LARGE_BYTES))
                if part:
                    output.add(part)
                piece = member.unconsumed_tail
        pos -= len(member.unused_data)
        if pos == end:
            return output.whole()
    raise CorruptRecordError(f"gzip data of more than {_MOST_GZIP_MEMBERS} members")


# -- snappy -------------------------------------------------------------------------------------


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BIG_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_size: int) -> Payload:
    if bytes(data[:8]) != _XERIAL_MAGIC:  # librdkafka writes the bare format
        return _decompress_snappy_block(data, max_size, max_size)
    pos = len(_XERIAL_HEADER)
    end = len(data)
    if end - pos > 4 and _BIG_INT32.unpack_from(data, pos)[0] == end - pos - 4:  # one block
        return _decompress_snappy_block(data[pos + 4 :], max_size, max_size)
    output = _Output(SNAPPY, max_size)
    while pos < end:
        if end - pos < 4:
            raise _cut_short(SNAPPY)
        (size,) = _BIG_INT32.unpack_from(data, pos)
        pos += 4
        if size <= 0 or size > end - pos:
            raise CorruptRecordError(f"a snappy block claims {size} of {end - pos} bytes")
        part = _decompress_snappy_block(data[pos : pos + size], output.room, max_size)
        output.add(memoryview(part))
        pos += size
    return output.whole()


def _decompress_snappy_block(data: memoryview, room: int, max_size: int) -> bytearray | mmap:
    size: int = cramjam.snappy.decompress_raw_len(data)
    if size > room:
        raise _too_large(SNAPPY, max_size)
    if size > len(data) * 64:  # no snappy data expands further: spare us the allocation
        raise CorruptRecordError(f"snappy data of {len(data)} bytes claims to hold {size}")
    output = mapping_of(size) if size > LARGE_BYTES else bytearray(size)
    with memoryview(output) as view:
        if cramjam.snappy.decompress_raw_into(data, view) != size:
            raise _cut_short(SNAPPY)
    return output


# -- lz4 ----------------------------------------------------------------------------------------


def _decompress_lz4(data: memoryview, max_size: int) -> Payload:
    """Decode block by block, so that one block at most is held beyond the cap."""
    pos, block_limit, block_checksums = _lz4_header(data)
    output: _Output | None = None
    end = len(data)
    while True:
        if end - pos < 4:
            raise _cut_short(LZ4)
        (size,) = _LITTLE_UINT32.unpack_from(data, pos)
        pos += 4
        stored, size = size & _LZ4_STORED, size & ~_LZ4_STORED
        if size == 0:
            return b"" if output is None else output.whole()
        if size > block_limit or size > end - pos:
            raise CorruptRecordError(f"an lz4 block claims {size} of {end - pos} bytes")
        block = data[pos : pos + size]
        part = block if stored else _lz4_block(block, block_limit)
        pos += size + (4 if block_checksums else 0)
        if (
            output is None and data[pos : pos + 4] == _LZ4_END and len(part) <= max_size
        ):  # one block
            return part
        output = output or _Output(LZ4, max_size)
        output.add(part)


def _lz4_block(block: memoryview, block_limit: int) -> memoryview:
    output = memoryview(bytearray(min(block_limit, 255 * len(block) + 64)))
    return output[: cramjam.lz4.decompress_block_into(block, output, len(output))]


def _lz4_header(data: memoryview) -> tuple[int, int, bool]:
    """Return where the blocks start, how large one may be, and whether each has a checksum."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptRecordError("no lz4 frame")
    flags, size_code = data[4], data[5] >> 4 & 7
    if flags >> 6 != 1 or flags & 3 or size_code < 4:
        raise CorruptRecordError(f"unsupported lz4 frame: flags {flags:#04x}, size {size_code}")
    if not flags & 0x20:
        raise CorruptRecordError("lz4 frames with linked blocks are not part of Kafka's format")
    pos = 6 + (8 if flags & 0x08 else 0)
    if len(data) <= pos:
        raise _cut_short(LZ4)
    if data[pos] != xxh32_short(bytes(data[4:pos])) >> 8 & 0xFF:
        raise CorruptRecordError("the header checksum of an lz4 frame is wrong")
    return pos + 1, 1 << (8 + 2 * size_code), bool(flags & 0x10)


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
            raise CorruptRecordError("no zstd frame")
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
            raise CorruptRecordError(f"a zstd block of type {kind} claims {size} bytes")
        total += _ZSTD_BLOCK_BYTES if kind == 2 else size
        pos += 3 + (1 if kind == 1 else size)
        if last:
            pos += 4 if flags & 4 else 0
            if pos > end:
                raise _cut_short(ZSTD)
            return pos, total
