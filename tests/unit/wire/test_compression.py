"""Codecs: what goes in comes out, what is broken or too large does not."""

import gzip
import resource
import time
import tracemalloc

import cramjam
import pytest

from ottla.model.errors import CorruptRecordError, RecordTooLargeError
from ottla.wire import compression
from ottla.wire.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress

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


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        (GZIP, lambda data: compress(GZIP, data)),
        (SNAPPY, lambda data: compress(SNAPPY, data)),
        (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
        (LZ4, lambda data: compress(LZ4, data)),
        (ZSTD, lambda data: compress(ZSTD, data)),
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
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed[:size], 1 << 20)


@pytest.mark.parametrize("codec", CODECS)
def test_rubbish_is_corrupt(codec):
    for rubbish in (b"\xff" * 40, b"rubbish, and more of it than a header takes"):
        with pytest.raises((CorruptRecordError, RecordTooLargeError)):
            decompress(codec, rubbish, 1 << 20)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_nobody_knows_are_refused(codec):
    with pytest.raises(CorruptRecordError):
        compress(codec, b"x")
    with pytest.raises(CorruptRecordError):
        decompress(codec, b"x", 10)


def test_gzip_of_several_members_is_one_stream():
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(GZIP, packed, 7) == b"one two"
    with pytest.raises(RecordTooLargeError):
        decompress(GZIP, packed, 6)


def test_gzip_of_endless_members_is_refused():
    with pytest.raises(CorruptRecordError, match="members"):
        decompress(GZIP, gzip.compress(b"") * 1000, 100)


def test_snappy_is_read_bare_and_framed():
    data = NOISE[:100_000]
    assert compress(SNAPPY, data)[:16].hex() == "82534e41505059000000000100000001"
    assert bytes(decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data))) == data


def test_a_snappy_block_of_an_impossible_size_is_corrupt():
    header = compress(SNAPPY, b"")
    for size in (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x01\x00"):
        with pytest.raises(CorruptRecordError):
            decompress(SNAPPY, header + size + b"abc", 100)
    with pytest.raises(CorruptRecordError, match="claims to hold"):
        decompress(SNAPPY, b"\x80\x80\x80\x80\x01abc", 1 << 30)


def test_lz4_frames_are_what_java_reads():
    """Independent blocks, and a header checksum that is right."""
    packed = compress(LZ4, NOISE)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20
    assert packed[6] == compression.xxh32_short(packed[4:6]) >> 8 & 0xFF
    wrong = packed[:6] + bytes((packed[6] ^ 1,)) + packed[7:]
    with pytest.raises(CorruptRecordError, match="checksum"):
        decompress(LZ4, wrong, 1 << 20)


def test_lz4_frames_with_linked_blocks_are_refused_as_java_does():
    with pytest.raises(CorruptRecordError, match="linked"):
        decompress(LZ4, bytes(cramjam.lz4.compress(b"x" * 100)), 1000)


def test_lz4_stored_blocks_and_content_sizes_are_read():
    flags = b"\x68\x40" + (3).to_bytes(8, "little")
    check = bytes((compression.xxh32_short(flags) >> 8 & 0xFF,))
    block = b"\x03\x00\x00\x80abc"
    frame = b"\x04\x22\x4d\x18" + flags + check + block + bytes(4)
    assert bytes(decompress(LZ4, frame, 3)) == b"abc"
    with pytest.raises(CorruptRecordError, match="short"):
        decompress(LZ4, frame[:-4], 3)


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
    ],
    ids=["snappy", "lz4", "zstd"],
)
def test_many_tiny_blocks_stop_at_the_cap(empty):
    """F35: a mebibyte of blocks that hold next to nothing costs time, which the cap bounds too."""
    codec, head, block = empty
    data = head + block * ((1 << 20) // len(block))
    began_s = time.process_time()
    with pytest.raises((RecordTooLargeError, CorruptRecordError)):
        decompress(codec, data, 1 << 20)
    assert time.process_time() - began_s < 0.1
