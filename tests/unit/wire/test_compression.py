"""Codecs: what goes in comes out, what is broken or too large does not."""

import gzip
import resource
import time
import tracemalloc
import zlib

import cramjam
import pytest

from ottla.model.errors import InvalidRecordError, RecordTooLargeError
from ottla.wire import compression
from ottla.wire.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from support.odd_batches import xxh32

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
NOISE = bytes(pow(i, 3, 251) ^ (i * i >> 5) & 0xFF for i in range(200_000))


@pytest.mark.parametrize("codec", [0, *CODECS])
@pytest.mark.parametrize("data", [b"", b"x", b"ab" * 50, bytes(100_000), NOISE], ids=len)
def test_what_goes_in_comes_out(codec, data):
    packed = compress(codec, data)
    for held in (packed, bytearray(packed), memoryview(bytearray(b"-" + packed))[1:]):
        assert bytes(decompress(codec, held, len(data))) == data
    assert compress(codec, bytearray(data)) == packed


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_one_byte_over_the_cap_is_too_large(codec):
    for data in (b"x" * 5000, NOISE):
        with pytest.raises(RecordTooLargeError):
            decompress(codec, compress(codec, data), len(data) - 1)


def with_block_checksums(data):
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(data)
    frame = bytes(compressor.finish())
    assert frame[4] & 0x10
    return frame


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        (GZIP, lambda data: compress(GZIP, data)),
        (SNAPPY, lambda data: compress(SNAPPY, data)),
        (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
        (LZ4, lambda data: compress(LZ4, data)),
        (ZSTD, lambda data: compress(ZSTD, data)),
        (GZIP, lambda data: compress(GZIP, data[:400_000]) * 160),
        (SNAPPY, lambda data: compress(SNAPPY, data[:400_000]) * 160),
        (LZ4, with_block_checksums),
        (ZSTD, lambda data: (b"\x50\x2a\x4d\x18\0\0\0\0" + compress(ZSTD, data[:400_000])) * 160),
    ],
)
def test_a_bomb_stops_at_the_cap(codec, pack):
    bomb = pack(bytes(64 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLargeError):
            decompress(codec, bomb, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    # KiB; the C side's own memory shows here only
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


@pytest.mark.parametrize("codec", CODECS)
def test_data_cut_short_is_corrupt(codec):
    packed = compress(codec, NOISE)
    for size in (0, 3, len(packed) // 2, len(packed) - 1):
        if codec == SNAPPY and size == 0:
            continue  # nothing is a valid snappy length of nothing to some decoders
        with pytest.raises(InvalidRecordError):
            decompress(codec, packed[:size], 1 << 20)


@pytest.mark.parametrize("codec", CODECS)
def test_rubbish_is_corrupt(codec):
    for rubbish in (b"\xff" * 40, b"rubbish, and more of it than a header takes"):
        with pytest.raises((InvalidRecordError, RecordTooLargeError)):
            decompress(codec, rubbish, 1 << 20)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_nobody_knows_are_refused(codec):
    with pytest.raises(InvalidRecordError):
        compress(codec, b"x")
    with pytest.raises(InvalidRecordError):
        decompress(codec, b"x", 10)


def test_gzip_of_several_members_is_one_stream():
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(GZIP, packed, 7) == b"one two"
    with pytest.raises(RecordTooLargeError):
        decompress(GZIP, packed, 6)


def test_gzip_is_read_as_java_does():
    """RFC 1952's optional fields, flags it reserves, and whatever follows that is no member."""
    member = gzip.compress(b"data")
    head, rest = b"\x1f\x8b\x08", member[10:]
    for flags, fields in [
        (0, b""),
        (4, b"\x02\x00xy"),
        (8, b"name\x00"),
        (16, b"comment\x00"),
        (0xE1, b""),
        (28, b"\x00\x00" + b"n" * 2000 + b"\x00\x00"),
    ]:
        packed = head + bytes((flags,)) + bytes(6) + fields
        checked = head + bytes((flags | 2,)) + bytes(6) + fields
        crc = (zlib.crc32(checked) & 0xFFFF).to_bytes(2, "little")
        for whole in (packed + rest, checked + crc + rest, member + packed + rest):
            for behind in (b"", bytes(8), b"rubbish" * 20, member[:15], member[:9] + bytes(50)):
                end = whole + behind
                expected = b"datadata" if whole.startswith(member) else b"data"
                if len(behind) > 18 and behind.startswith(head):
                    with pytest.raises(InvalidRecordError):
                        decompress(GZIP, end, 100)
                else:
                    assert decompress(GZIP, end, 100) == expected
        with pytest.raises(InvalidRecordError, match="header"):
            decompress(GZIP, checked + bytes((crc[0] ^ 1, crc[1])) + rest, 100)
    for at in (-1, -5):
        wrong = bytearray(member)
        wrong[at] ^= 1
        with pytest.raises(InvalidRecordError):
            decompress(GZIP, wrong, 100)
        with pytest.raises(InvalidRecordError):
            decompress(GZIP, member + wrong, 100)
        with pytest.raises(InvalidRecordError):
            decompress(GZIP, bytes(wrong) + bytes(3), 100)


def test_a_hundred_gzip_members_are_one_stream():
    assert decompress(GZIP, gzip.compress(b"0123456789") * 100, 1 << 20) == b"0123456789" * 100


def test_snappy_is_read_bare_and_framed():
    data = NOISE[:100_000]
    assert compress(SNAPPY, data)[:16].hex() == "82534e41505059000000000100000001"
    assert bytes(decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data))) == data


def test_snappy_streams_may_follow_each_other():
    one, two = compress(SNAPPY, b"one "), compress(SNAPPY, b"two")
    for behind in (b"", b"\x00", bytes(3), one[:4] + bytes(12)):
        assert bytes(decompress(SNAPPY, one + two + behind, 100)) == b"one two"
    assert bytes(decompress(SNAPPY, two + one[:16], 100)) == b"two"
    old = one[:8] + bytes(8)
    assert bytes(decompress(SNAPPY, old + one[16:], 100)) == b"one "  # Java looks at no version
    for wrong in (bytes(4), old, one[:4] + bytes(16), one[:10], b"rubbish"):
        with pytest.raises(InvalidRecordError):
            decompress(SNAPPY, one + wrong, 100)


def test_a_snappy_block_of_an_impossible_size_is_corrupt():
    header = compress(SNAPPY, b"")
    for size in (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x01\x00"):
        with pytest.raises(InvalidRecordError):
            decompress(SNAPPY, header + size + b"abc", 100)
    with pytest.raises(InvalidRecordError, match="claims to hold"):
        decompress(SNAPPY, b"\x80\x80\x80\x80\x01abc", 1 << 30)


def test_lz4_frames_are_what_java_reads():
    """Independent blocks, and a header checksum that is right."""
    packed = compress(LZ4, NOISE)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20
    assert packed[6] == compression.xxh32_short(packed[4:6]) >> 8 & 0xFF
    wrong = packed[:6] + bytes((packed[6] ^ 1,)) + packed[7:]
    with pytest.raises(InvalidRecordError, match="checksum"):
        decompress(LZ4, wrong, 1 << 20)


def test_lz4_frames_with_linked_blocks_are_refused_as_java_does():
    with pytest.raises(InvalidRecordError, match="linked"):
        decompress(LZ4, bytes(cramjam.lz4.compress(b"x" * 100)), 1000)


def test_lz4_stored_blocks_and_content_sizes_are_read():
    flags = b"\x68\x40" + (3).to_bytes(8, "little")
    check = bytes((compression.xxh32_short(flags) >> 8 & 0xFF,))
    block = b"\x03\x00\x00\x80abc"
    frame = b"\x04\x22\x4d\x18" + flags + check + block + bytes(4)
    assert bytes(decompress(LZ4, frame, 3)) == b"abc"
    with pytest.raises(InvalidRecordError, match="short"):
        decompress(LZ4, frame[:-4], 3)


def lz4_frame(*blocks, flags=0x60, size=0x40, end=bytes(4)):
    """Return a frame of blocks that are stored, with the checksums that its flags ask for."""
    head = bytes((flags, size)) + bytes(8 if flags & 8 else 0)
    frame = b"\x04\x22\x4d\x18" + head + bytes((xxh32(head) >> 8 & 0xFF,))
    for block in blocks:
        frame += (len(block) | 1 << 31).to_bytes(4, "little") + block
        if flags & 0x10:
            frame += xxh32(block).to_bytes(4, "little")
    return frame + end


def test_lz4_block_checksums_are_checked():
    packed = bytes(cramjam.lz4.compress_block(b"ab" * 500, store_size=False))
    size, check = len(packed).to_bytes(4, "little"), xxh32(packed).to_bytes(4, "little")
    for code in (0x40, 0x50, 0x60, 0x70):
        frame = lz4_frame(b"stored", NOISE[:9000], flags=0x78, size=code, end=b"")
        frame += size + packed + check + bytes(4)
        assert bytes(decompress(LZ4, frame, 20_000)) == b"stored" + NOISE[:9000] + b"ab" * 500
        for at in (15 + 4 + 6, len(frame) - 8, len(frame) - 5, len(frame) - 9):
            wrong = bytearray(frame)
            wrong[at] ^= 1
            with pytest.raises(InvalidRecordError):
                decompress(LZ4, wrong, 20_000)
    with pytest.raises(InvalidRecordError):
        decompress(LZ4, frame[:-6], 20_000)


def test_lz4_ends_where_java_says():
    """A content checksum is there, right or wrong; what follows the frame does not count."""
    for behind in (b"", bytes(9), lz4_frame(b"more")):
        assert bytes(decompress(LZ4, lz4_frame(b"abc") + behind, 9)) == b"abc"
        assert (
            bytes(decompress(LZ4, lz4_frame(b"abc", flags=0x64, end=b"\0\0\0\0sums") + behind, 9))
            == b"abc"
        )
    assert bytes(decompress(LZ4, lz4_frame(b"abc", end=b"\x01\0\0\0\0rubbish"), 9)) == b"abc"
    for frame in (
        lz4_frame(b"abc", flags=0x64),
        lz4_frame(b"abc", flags=0x61),
        lz4_frame(b"abc", flags=0xA0),
        lz4_frame(b"abc", size=0x41),
        lz4_frame(b"abc", size=0xC0),
        lz4_frame(b"abc", size=0x30),
        lz4_frame(bytes((1 << 16) + 1)),
    ):
        with pytest.raises(InvalidRecordError):
            decompress(LZ4, frame, 1 << 20)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects"[:14], None),
    ],
)
def test_xxh32_of_short_data(data, expected):
    found = compression.xxh32_short(data)
    assert expected in (None, found)
    assert 0 <= found < 1 << 32


def test_zstd_frames_may_follow_each_other_and_be_skipped():
    frame = (
        compress(ZSTD, b"one ") + b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + compress(ZSTD, b"two")
    )
    assert bytes(decompress(ZSTD, frame, 7)) == b"one two"


def test_a_mebibyte_of_skippable_zstd_frames_takes_no_time():
    began_s = time.process_time()
    assert bytes(decompress(ZSTD, b"\x50\x2a\x4d\x18\0\0\0\0" * (1 << 17), 1 << 20)) == b""
    assert time.process_time() - began_s < 0.1


def test_zstd_takes_nothing_behind_its_frames():
    """Java's reader passes over the beginning of a frame, too, if its buffer ends so."""
    whole = compress(ZSTD, b"one")
    for wrong in (bytes(1), bytes(20), whole[:4], whole[:-1], b"\x50\x2a\x4d\x18\x09\0\0\0"):
        with pytest.raises(InvalidRecordError):
            decompress(ZSTD, whole + wrong, 9)


def test_names_stand_at_their_numbers():
    assert compression.CODEC_NAMES[ZSTD] == "zstd"
    assert compression.CODEC_NAMES[SNAPPY] == "snappy"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 9_000_001])
def test_large_outputs_come_out_whole(codec, size):
    """Above a mebibyte the output is a mapping; zlib, lz4 and zstandard are asked by others."""
    data = (NOISE * (size // len(NOISE) + 1))[:size]
    found = decompress(codec, compress(codec, data), size)
    assert len(found) == size
    assert bytes(found) == data
    with pytest.raises(RecordTooLargeError):
        decompress(codec, compress(codec, data), size - 1)


def test_several_large_gzip_members_are_one_output():
    members = [bytes([n]) * 900_000 for n in range(5)]
    whole = b"".join(map(gzip.compress, members))
    assert bytes(decompress(GZIP, whole, 4_500_000)) == b"".join(members)


@pytest.mark.parametrize(
    "empty",
    [
        (SNAPPY, compress(SNAPPY, b"")[:16], b"\0\0\0\1\0"),
        (LZ4, compress(LZ4, b"x")[:7], b"\1\0\0\x80x"),
        (ZSTD, b"\x28\xb5\x2f\xfd\0\x40", b"\0\0\0"),
        (GZIP, b"", gzip.compress(b"")),
        (GZIP, b"", gzip.compress(b"x", 0)),
        (SNAPPY, b"", compress(SNAPPY, b"")),
        (LZ4, lz4_frame(flags=0x70, size=0x70, end=b""), lz4_frame(b"x", flags=0x70)[7:-4]),
    ],
    ids=[
        "snappy",
        "lz4",
        "zstd",
        "members",
        "stored members",
        "streams",
        "checksums",
    ],
)
def test_many_tiny_blocks_stop_at_the_cap(empty):
    """F35: a mebibyte of blocks that hold next to nothing costs time, which the cap bounds too."""
    codec, head, block = empty
    data = head + block * ((1 << 20) // len(block))
    began_s = time.process_time()
    with pytest.raises((RecordTooLargeError, InvalidRecordError)):
        decompress(codec, data, 1 << 20)
    assert time.process_time() - began_s < 0.1
