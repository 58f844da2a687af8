"""What a leader accepts, what it changes, what it refuses (F34, F35)."""

import struct

import pytest
from google_crc32c import value as crc32c

from ottla.log.validate import COORDINATOR, one_batch
from ottla.model.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    OttlaError,
    RecordsRefusedError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from ottla.wire.compression import GZIP, LZ4, SNAPPY, ZSTD
from ottla.wire.records import Record, build_batch, crc_ok, iter_records, parse_batch_header

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]


def patch(batch: memoryview, at: int, form: str, value: int) -> memoryview:
    """Change a header field and make the CRC right again."""
    struct.pack_into(form, batch, at, value)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def refused(kit, batch, error, code=None, **overrides):
    log = kit.open(**overrides)
    with pytest.raises(error) as caught:
        log.append_as_leader(batch, 0, kit.clock.wall)
    if code is not None:
        assert caught.value.code is code
    assert log.log_end_offset == 0
    assert log.size == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_with_a_word_what_to_do(kit, magic):
    batch = kit.batch()
    batch[16] = magic
    log = kit.open()
    with pytest.raises(UnsupportedFormatError, match=r"Kafka 0\.11"):
        log.append_as_leader(batch, 0, 0)


def test_unknown_magic(kit):
    batch = kit.batch()
    batch[16] = 3
    refused(kit, batch, InvalidRecordError)


def test_any_flipped_bit_under_the_crc_is_refused(kit):
    good = bytes(kit.batch(3))
    log = kit.open()
    for at in range(17, len(good)):
        for bit in (0, 7):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            with pytest.raises(CorruptRecordError):
                log.append_as_leader(memoryview(bad), 0, 0)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("size", [0, 5, 17, 60, 61, 70])
def test_short_batches(kit, size):
    refused(kit, kit.batch()[:size], OttlaError)


def test_declared_length_below_the_header(kit):
    batch = kit.batch()
    struct.pack_into(">i", batch, 8, 20)
    with pytest.raises(CorruptRecordError):
        one_batch(batch)
    refused(kit, batch, InvalidRecordError)


def test_two_batches_are_one_too_many(kit):
    both = memoryview(bytearray(bytes(kit.batch()) + bytes(kit.batch())))
    with pytest.raises(InvalidRecordError):
        one_batch(both)
    refused(kit, both, InvalidRecordError)


def test_a_torn_rest_after_the_batch_is_ignored(kit):
    one = kit.batch(2)
    log = kit.open()
    info = log.append_as_leader(one_batch(memoryview(bytearray(bytes(one) + b"torn"))), 0, 0)
    assert info.bytes == len(one)
    assert log.size == len(one)


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (0, ">q", 7),  # base offset
        (23, ">i", 5),  # last offset delta
        (57, ">i", 2),  # count
        (57, ">i", 0),
        (57, ">i", -1),
        (21, ">h", 0x20),  # control
        (43, ">q", 9),  # producer id without sequence
    ],
)
def test_headers_a_client_may_not_send(kit, at, form, value):
    refused(kit, patch(kit.batch(), at, form, value), InvalidRecordError)


def test_records_that_differ_from_the_header(kit):
    batch = kit.batch(3)
    patch(batch, 57, ">i", 2)
    refused(kit, patch(batch, 23, ">i", 1), InvalidRecordError)


def test_max_message_bytes(kit):
    batch = kit.batch(size=500)
    refused(kit, batch, RecordTooLargeError, max_message_bytes=len(batch) - 1)
    kit.open(max_message_bytes=len(batch)).append_as_leader(batch, 0, 0)


def test_compacted_topics_need_keys(kit):
    refused(kit, kit.batch(key=None), InvalidRecordError, cleanup_policy="compact")


def test_timestamps_out_of_the_topics_bounds(kit):
    now = kit.clock.wall
    bounds = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 500}
    code = ErrorCode.INVALID_TIMESTAMP
    refused(kit, kit.batch(at=now - 1001), OttlaError, code, **bounds)
    refused(kit, kit.batch(at=now + 501), OttlaError, code, **bounds)
    log = kit.open(**bounds)
    log.append_as_leader(kit.batch(at=now - 1000), 0, now)
    log.append_as_leader(kit.batch(at=-1), 0, now)  # no timestamp at all


def test_every_record_that_is_refused_is_named(kit):
    now = 1_000_000
    good, keyless, old = (b"k", now), (None, now), (b"k", now - 2000)
    timeless = (b"k", -1)
    bounds = {"message_timestamp_before_max_ms": 1000, "cleanup_policy": "compact"}

    def named(*records):
        batch = build_batch([Record(timestamp=t, key=k, value=b"v") for k, t in records])
        with pytest.raises(RecordsRefusedError) as caught:
            kit.open(**bounds).append_as_leader(memoryview(bytearray(batch)), 0, now)
        return [index for index, _ in caught.value.record_errors], caught.value.code

    assert named(good, keyless, good, keyless) == ([1, 3], ErrorCode.INVALID_RECORD)
    assert named(good, old, keyless) == ([1, 2], ErrorCode.INVALID_TIMESTAMP)
    batch = build_batch([Record(timestamp=t, key=k, value=b"v") for k, t in (good, timeless)])
    kit.open(**bounds).append_as_leader(memoryview(bytearray(batch)), 0, now)


@pytest.mark.parametrize("base", [2**63 - 2, -(2**63)])
def test_timestamps_beyond_64_bits(kit, base):
    """The header's base and a record's delta fit, their sum does not (found by fuzzing)."""
    raw = bytearray(build_batch([Record(timestamp=5 + n, value=b"v") for n in (5, 0, 9)]))
    raw[27:35] = base.to_bytes(8, "big", signed=True)
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    refused(kit, memoryview(raw), OttlaError, ErrorCode.INVALID_TIMESTAMP)


def test_log_append_time_is_written_and_the_crc_with_it(kit):
    log = kit.open(message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(kit.batch(3), 0, 777_000)
    assert (info.max_timestamp, info.log_append_time) == (777_000, 777_000)
    [part] = log.read(0, 1000, 3).parts
    header = parse_batch_header(part)
    assert crc_ok(part, 0, header)
    assert {r.timestamp for r in iter_records(part)} == {777_000}


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_the_bit_of_log_append_time_is_taken_off(kit, codec):
    """As by Kafka: each record has the batch's largest timestamp while it is checked."""
    log = kit.open()
    batch = patch(kit.batch(2, at=1000, codec=codec), 21, ">h", 0xFB88 - (1 << 16) | codec)
    batch = patch(batch, 35, ">q", 5)
    info = log.append_as_leader(batch, 0, 0)
    assert info.max_timestamp == 5
    [part] = log.read(0, 10_000, 2).parts
    header = parse_batch_header(part)
    assert crc_ok(part, 0, header)
    assert (header.attributes, header.max_timestamp) == (codec, 5)
    assert [r.timestamp for r in iter_records(part)] == [1000, 1001]


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_where_a_producer_may_not_claim_log_append_time(kit, codec):
    batch = patch(kit.batch(codec=codec), 21, ">h", 0x08 | codec)
    refused(
        kit,
        memoryview(bytearray(batch)),
        OttlaError,
        ErrorCode.INVALID_TIMESTAMP,
        message_timestamp_type="LogAppendTime",
    )
    without = patch(memoryview(bytearray(batch)), 35, ">q", -1)
    refused(kit, without, OttlaError, ErrorCode.INVALID_TIMESTAMP)
    late = patch(memoryview(bytearray(batch)), 35, ">q", kit.clock.wall + 10_000)
    bound = {"message_timestamp_after_max_ms": 9_999}
    refused(kit, late, RecordsRefusedError, ErrorCode.INVALID_TIMESTAMP, **bound)


def test_flags_without_a_meaning_stay_unless_something_changes(kit):
    log = kit.open()
    batch = patch(kit.batch(at=1000), 21, ">h", 0x7FC0)
    log.append_as_leader(memoryview(bytearray(batch)), 0, 0)
    log.append_as_leader(patch(batch, 35, ">q", 5), 0, 0)
    kept, changed = (parse_batch_header(log.read(n, 10_000, 2).parts[0]) for n in (0, 1))
    assert (kept.attributes, changed.attributes) == (0x7FC0, 0x40)


def test_the_largest_of_negative_timestamps_is_none(kit):
    log = kit.open()
    assert log.append_as_leader(kit.batch(2, at=-9), 0, 0).max_timestamp == -1


@pytest.mark.parametrize("codec", CODECS)
def test_what_cannot_be_decompressed_is_not_to_be_sent_again(kit, codec):
    batch = kit.batch(20, codec=codec)
    batch[61] ^= 0xFF
    refused(kit, patch(batch, 57, ">i", 20), InvalidRecordError, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize(
    "behind", [bytes(12), bytes(8) + b"\0\0\0\x0d", bytes(8) + b"\0\0\1\0" + bytes(4) + b"\3"]
)
def test_what_begins_like_no_batch_is_corrupt(kit, behind):
    """As Kafka's `ByteBufferLogInputStream` says, of the first batch and of one behind it."""
    for raw in (behind, bytes(kit.batch()) + behind):
        with pytest.raises(CorruptRecordError):
            one_batch(memoryview(raw))
    assert len(one_batch(memoryview(bytes(kit.batch()) + behind[:11]))) == len(kit.batch())


def test_a_wrong_max_timestamp_is_corrected(kit):
    log = kit.open()
    info = log.append_as_leader(patch(kit.batch(3, at=1000), 35, ">q", 99), 0, 0)
    assert info.max_timestamp == 1002
    [part] = log.read(0, 1000, 3).parts
    assert crc_ok(part, 0, parse_batch_header(part))


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches_stay_as_they_are(kit, codec):
    log = kit.open()
    batch = kit.batch(20, codec=codec)
    log.append_as_leader(batch, 0, 0)
    assert bytes(log.read(0, 10_000, 20).parts[0])[16:] == bytes(batch)[16:]


@pytest.mark.parametrize("wanted", ["gzip", "zstd", "uncompressed"])
def test_the_topics_codec_wins(kit, wanted):
    log = kit.open(compression_type=wanted)
    log.append_as_leader(kit.batch(20, codec=LZ4, size=100), 0, 0)
    [part] = log.read(0, 10_000, 20).parts
    header = parse_batch_header(part)
    assert header.codec == {"gzip": 1, "zstd": 4, "uncompressed": 0}[wanted]
    assert crc_ok(part, 0, header)
    assert [r.offset for r in iter_records(part)] == list(range(20))


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_bombs_stop_at_the_cap(kit, codec):
    bomb = build_batch([Record(timestamp=1, key=b"k", value=bytes(70 << 20))], codec=codec)
    refused(kit, memoryview(bytearray(bomb)), RecordTooLargeError, max_message_bytes=16 << 20)


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_that_claims_to_be_compressed(kit, codec):
    batch = kit.batch(5)
    refused(kit, patch(batch, 21, ">h", codec), OttlaError)


def test_unknown_codec(kit):
    batch = patch(kit.batch(), 21, ">h", 6)
    refused(kit, batch, OttlaError, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def test_a_coordinator_may_write_control_batches(kit):
    log = kit.open()
    log.append_as_leader(kit.marker(), 0, 0, origin=COORDINATOR)
    assert log.log_end_offset == 1
    with pytest.raises(InvalidRecordError):
        log.append_as_leader(kit.marker(), 0, 0)


def test_follower_batches_are_checked_too(kit):
    log = kit.open()
    batch = kit.batch(3, base_offset=0)
    batch[80] ^= 4
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(batch)
    backwards = memoryview(bytes(kit.batch(2, base_offset=5)) + bytes(kit.batch(2, base_offset=6)))
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(backwards)
    assert log.log_end_offset == 0
