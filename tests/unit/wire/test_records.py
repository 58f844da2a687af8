"""Record batches: the JVM's bytes, other clients' bytes, and everything that must be refused.

`batches.txt` holds batches written by Kafka 3.9.1's own classes; aiokafka and kafka-python are
oracles for what is too long to keep.
"""

from mmap import mmap
from pathlib import Path

import pytest

from ottla.model.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from ottla.wire import batch_header, records
from ottla.wire.record_check import (
    Effort,
    EffortExceededError,
    check_records,
    read_int,
    read_varint,
    varint,
)
from ottla.wire.records import Record
from support.batches import patch_leader_fields, validate_batch

VECTORS = Path(__file__).parents[2] / "vectors" / "batches.txt"
GOLDEN = {
    name: bytes.fromhex(raw)
    for name, raw in (line.split() for line in VECTORS.open() if not line.startswith("#"))
}
START = 1_700_000_000_000
FOUR = [
    Record(timestamp=START, key=b"k0", value=b"value zero"),
    Record(timestamp=START + 5, value=b"value one"),
    Record(timestamp=START + 3, key=b"k2"),
    Record(timestamp=START + 300, key=b"", value=b"", headers=(("trace", b"ab"), ("none", None))),
]
PRODUCER = {"producer_id": 4242, "producer_epoch": 3, "base_sequence": 17}


def lines(count, size=30, step=10):
    return [Record(timestamp=START + i // step, value=b"%0*d" % (size, i)) for i in range(count)]


def without_offsets(found):
    return [record._replace(offset=-1) for record in found]


# -- against the JVM ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("none", {"base_offset": 100, "leader_epoch": 7}),
        ("snappy", {"base_offset": 100, "leader_epoch": 7, "codec": 2}),
        ("idempotent", {"base_offset": 5, "leader_epoch": 2, **PRODUCER}),
        ("transactional", {"base_offset": 5, "leader_epoch": 2, "is_transactional": True}),
    ],
)
def test_batches_are_built_to_the_byte_as_the_jvm_builds_them(name, options):
    if name == "transactional":
        options = {**options, **PRODUCER}
    assert records.build_batch(FOUR, **options).hex() == GOLDEN[name].hex()


@pytest.mark.parametrize(("name", "type_"), [("abort", records.ABORT), ("commit", records.COMMIT)])
def test_transaction_markers_are_built_as_the_jvm_builds_them(name, type_):
    marker = records.build_control_batch(
        type_,
        base_offset=9,
        leader_epoch=6,
        producer_id=4242,
        producer_epoch=3,
        coordinator_epoch=11,
        timestamp=START,
    )
    assert marker.hex() == GOLDEN[name].hex()
    assert len(marker) == 78
    (record,) = records.iter_records(marker)
    assert records.parse_control_record(record) == (type_, 11)
    header = records.parse_batch_header(marker)
    assert header.is_control
    assert header.is_transactional


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_jvms_batches_are_read(name):
    batch = GOLDEN[name]
    header = records.parse_batch_header(batch)
    assert records.crc_ok(batch, 0, header)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 103, 104)
    assert (header.partition_leader_epoch, header.count, header.size) == (7, 4, len(batch))
    assert (header.base_timestamp, header.max_timestamp) == (START, START + 300)
    assert (header.producer_id, header.last_sequence) == (-1, -1)
    assert ["none", "gzip", "snappy", "lz4", "zstd"][header.codec] == name
    found = list(records.iter_records(batch))
    assert without_offsets(found) == FOUR
    assert [record.offset for record in found] == [100, 101, 102, 103]
    assert validate_batch(batch, 0, header) == (0, 300, True)


def test_log_append_time_rules_over_the_records_own():
    batch = GOLDEN["log_append_time"]
    header = records.parse_batch_header(batch)
    assert header.timestamp_type == batch_header.LOG_APPEND_TIME
    assert {record.timestamp for record in records.iter_records(batch)} == {header.max_timestamp}
    again = records.build_batch(
        FOUR, timestamp_type=batch_header.LOG_APPEND_TIME, log_append_time=header.max_timestamp
    )
    assert again.hex() == batch.hex()


def test_sequence_numbers_wrap():
    batch = records.build_batch(lines(4), **{**PRODUCER, "base_sequence": 2**31 - 2})
    header = records.parse_batch_header(batch)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 2, 1)


# -- against other clients ----------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5))
def test_aiokafka_reads_what_we_build_and_we_what_it_builds(codec):
    aiokafka = pytest.importorskip("aiokafka.record.memory_records")
    builders = pytest.importorskip("aiokafka.record.default_records")
    many = lines(3000)
    batch = records.build_batch(many, codec=codec)
    theirs = list(aiokafka.MemoryRecords(batch).next_batch())
    assert [(r.timestamp, r.value) for r in theirs] == [(r.timestamp, r.value) for r in many]
    builder = builders.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for i, record in enumerate(many):
        assert builder.append(i, record.timestamp, None, record.value, [("h", b"v")])
    batch = bytes(builder.build())
    header = records.parse_batch_header(batch)
    assert validate_batch(batch, 0, header).max_timestamp_delta == 299
    found = [(r.timestamp, r.value, r.headers) for r in records.iter_records(batch)]
    assert found == [(r.timestamp, r.value, (("h", b"v"),)) for r in many]


def test_kafka_python_reads_what_we_build():
    theirs = pytest.importorskip("kafka.record").MemoryRecords
    batch = theirs(records.build_batch(FOUR, codec=1)).next_batch()
    assert [(r.key, r.value) for r in batch] == [(r.key, r.value) for r in FOUR]


# -- parsing ------------------------------------------------------------------------------------


def test_batches_are_found_one_after_another():
    first, second = records.build_batch(lines(2)), records.build_batch(lines(3), base_offset=2)
    found = list(records.iter_batches(memoryview(first + second)))
    assert [(pos, header.base_offset) for pos, header in found] == [(0, 0), (len(first), 2)]


def test_a_batch_cut_off_at_the_end_is_left_out_or_refused():
    first, second = records.build_batch(lines(2)), records.build_batch(lines(3), base_offset=2)
    for cut in (1, 20, len(second) - 1):
        partial = first + second[:cut]
        assert len(list(records.iter_batches(partial, allow_partial=True))) == 1
        with pytest.raises(CorruptRecordError):
            list(records.iter_batches(partial))


def test_old_and_unknown_formats_are_told_apart():
    batch = bytearray(records.build_batch(lines(1)))
    for magic, error in ((0, UnsupportedFormatError), (1, UnsupportedFormatError)):
        batch[16] = magic
        for raw in (batch, batch[:30]):
            with pytest.raises(error):
                records.parse_batch_header(raw)
    batch[16] = 3
    with pytest.raises(CorruptRecordError):
        records.parse_batch_header(batch)


@pytest.mark.parametrize("length", [-1, 0, 48, 1 << 30])
def test_an_impossible_length_is_refused(length):
    batch = bytearray(records.build_batch(lines(1)))
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecordError):
        records.parse_batch_header(batch)


# -- checking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1000, 32768, 32769, 100_000])
def test_checksums_agree_however_the_bytes_are_held(size):
    data = bytes(i * 7 & 0xFF for i in range(size))
    assert batch_header.crc32c(b"123456789") == 0xE3069283
    expected = batch_header.crc32c(data)
    for held in (bytearray(data), memoryview(data), memoryview(bytearray(b"x" + data))[1:]):
        assert batch_header.crc32c(held) == expected


def test_a_flipped_bit_anywhere_under_the_checksum_is_noticed():
    batch = bytearray(records.build_batch(lines(5)))
    for at in range(21, len(batch)):
        batch[at] ^= 0x10
        header = records.parse_batch_header(batch)
        assert not records.crc_ok(batch, 0, header)
        with pytest.raises(CorruptRecordError):
            validate_batch(batch, 0, header)
        batch[at] ^= 0x10


@pytest.mark.parametrize(
    "count", [1, 2, 7, 8, 9, 63, 64, 65, 66, 200, 8191, 8192, 8193, 8200, 17000]
)
@pytest.mark.parametrize("step", [1, 10])
def test_runs_of_equal_records_are_checked(count, step):
    batch = records.build_batch(lines(count, step=step))
    facts = records.check_records(memoryview(batch)[61:], count)
    assert facts == (0, (count - 1) // step, True)


def test_each_field_of_a_run_is_checked():
    """Break one byte in the middle of a run: the columnar check must not look past it."""
    payload = records.build_batch(lines(50, step=50))[61:]
    size = len(payload) // 50
    records.check_records(payload, 50)
    # size, offset delta, key size, value size, header count
    for at, bits in ((0, 2), (3, 2), (4, 0x13), (5, 2), (size - 1, 2)):
        broken = bytearray(payload)
        broken[30 * size + at] ^= bits
        with pytest.raises(InvalidRecordError, match=r"record 3[01]"):
            records.check_records(broken, 50)


def test_timestamps_in_a_run_are_all_seen():
    many = lines(60, step=60)
    many[40] = many[40]._replace(timestamp=START - 7)
    many[45] = many[45]._replace(timestamp=START + 9)
    facts = records.check_records(records.build_batch(many)[61:], 60)
    assert (facts.min_timestamp_delta, facts.max_timestamp_delta) == (-7, 9)
    far = [Record(timestamp=START, value=b"x")] + [
        Record(timestamp=START + 5000 - i * 200, value=b"x") for i in range(60)
    ]
    facts = records.check_records(records.build_batch(far)[61:], 61)
    assert (facts.min_timestamp_delta, facts.max_timestamp_delta) == (-6800, 5000)


def body(offset_delta=0, *, key=b"\x01", value=b"\x01", headers=b"\x00", size=None):
    """Return the bytes of one record, parts of which may be nonsense."""
    content = b"\x00\x00" + varint(offset_delta) + key + value + headers
    return varint(len(content) if size is None else size) + content


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        body()[:-1],
        body() + b"\x00",
        body(1),
        body(size=50),
        body(size=-1),
        body(size=5),
        body(size=7) + b"\x00",
        body(key=varint(100)),
        body(value=varint(100)),
        body(headers=varint(-1)),
        body(headers=varint(5)),
        body(headers=varint(1) + varint(-1) + varint(-1)),
        body(headers=varint(1) + varint(1) + b"a"),
        body(headers=varint(1) + varint(1) + b"a" + varint(30)),
        b"\xff" * 12,
    ],
)
def test_a_malformed_record_is_refused(payload):
    with pytest.raises(InvalidRecordError):
        records.check_records(payload, 1)
    batch = bytearray(records.build_batch([Record(value=b"x")])[:61] + payload)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    if payload != body(1):  # a gap is fine for a reader
        with pytest.raises(InvalidRecordError):
            list(records.iter_records(batch))


def test_a_header_name_that_is_no_utf8_comes_through_as_it_is():
    """Kafka does not look at names; whoever rewrites a batch must not change them."""
    raw = records.build_batch([Record(headers=(("ab", b"x"),))])[61:].replace(b"ab", b"\xff\xfe")
    batch = bytearray(records.build_batch([Record()])[:61] + raw)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    records.check_records(raw, 1)
    assert records.build_batch(list(records.iter_records(batch)))[61:] == raw


@pytest.mark.parametrize("count", [-1, 0, 2, 1 << 31])
def test_another_count_than_the_records_is_refused(count):
    with pytest.raises(InvalidRecordError):
        records.check_records(body(), count)


def test_gaps_are_fine_where_compaction_made_them():
    payload = body(0) + body(3) + body(9)
    assert records.check_records(payload, 3, dense=False).has_null_key
    with pytest.raises(InvalidRecordError):
        records.check_records(payload, 3)
    with pytest.raises(InvalidRecordError):
        records.check_records(body(3) + body(3), 2, dense=False)


def test_a_count_that_contradicts_the_last_offset_is_refused():
    raw = records.build_batch([Record(offset=0), Record(offset=5)])
    header = records.parse_batch_header(raw)
    with pytest.raises(InvalidRecordError, match="offset delta"):
        validate_batch(raw, 0, header)
    validate_batch(raw, 0, header, dense=False)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_blows_up_is_refused(codec):
    raw = records.build_batch([Record(value=bytes(1 << 20))], codec=codec)
    header = records.parse_batch_header(raw)
    with pytest.raises(RecordTooLargeError):
        validate_batch(raw, 0, header, max_size=1 << 20)
    with pytest.raises(RecordTooLargeError):
        list(records.iter_records(raw, max_size=1000))
    assert validate_batch(raw, 0, header).max_timestamp_delta == 0


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_control_record_without_a_proper_key_is_refused(key):
    with pytest.raises(InvalidRecordError):
        records.parse_control_record(Record(key=key, value=bytes(6)))


def test_a_control_record_of_another_type_is_no_marker():
    assert records.parse_control_record(Record(key=b"\x00\x00\x00\x05")) == (5, -1)
    with pytest.raises(InvalidRecordError):
        records.parse_control_record(Record(key=b"\x00\x00\x00\x01", value=b"\x00"))


# -- patching -----------------------------------------------------------------------------------


def test_leader_fields_lie_outside_the_checksum():
    batch = memoryview(bytearray(records.build_batch(FOUR)))
    patch_leader_fields(batch, 0, 1234, 9)
    header = records.parse_batch_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (1234, 9)
    assert records.crc_ok(batch, 0, header)
    assert bytes(batch) == records.build_batch(FOUR, base_offset=1234, leader_epoch=9)


def payload_of(batch):
    return bytes(batch[61:])


@pytest.mark.parametrize(
    ("made", "least", "most"),
    [
        ([Record(timestamp=1, value=bytes(i % 3)) for i in range(5000)], 5000, 40_000),
        (lines(5000), 50, 3000),
        ([Record(timestamp=1, value=b"v", headers=(("h", b""),) * 4000)], 4000, 4001),
    ],
    ids=["irregular", "alike", "headers"],
)
def test_checking_counts_its_steps(made, least, most):
    """R19: what checking costs is counted, and refused where there is not enough left."""
    data = payload_of(records.build_batch(made))
    effort = Effort(0, 1 << 30)
    facts = check_records(data, len(made), effort=effort)
    steps = (1 << 30) - effort.steps_left
    assert least <= steps <= most
    assert check_records(data, len(made), effort=Effort(0, steps)) == facts
    with pytest.raises(EffortExceededError):
        check_records(data, len(made), effort=Effort(0, steps // 2))


def test_a_mapping_is_checked_as_bytes_are():
    for made in (lines(3000), [Record(timestamp=i % 7, value=bytes(i % 50)) for i in range(3000)]):
        data = payload_of(records.build_batch(made))
        mapping = mmap(-1, len(data))
        mapping[:] = data
        assert check_records(mapping, 3000) == check_records(data, 3000)
        for wrong in (2999, 3001):
            with pytest.raises(InvalidRecordError):
                check_records(mapping, wrong)


@pytest.mark.parametrize(
    ("raw", "number", "wide"),
    [
        ("02", 1, 1),
        ("8200", 1, 1),
        ("8280808000", 1, 1),
        ("feffffff0f", 2**31 - 1, 2**31 - 1),
        ("ffffffff0f", -(2**31), -(2**31)),
        ("8280808070", 1, 0x380000001),  # bits beyond the 32nd do not count
        ("828080808000", None, 1),
        ("82808080808080808000", None, 1),
        ("82808080808080808072", None, 1),
        ("8280808080808080808000", None, None),
    ],
)
def test_varints_are_read_as_java_reads_them(raw, number, wide):
    """ByteUtils.readVarint and readVarlong: at most five and ten bytes."""
    data = bytes.fromhex(raw)
    for read, expected in ((read_int, number), (read_varint, wide)):
        if expected is None:
            with pytest.raises(InvalidRecordError, match="varint"):
                read(data, 0)
        else:
            assert read(data, 0) == (expected, len(data))


@pytest.mark.parametrize("at", range(7))
def test_a_record_with_a_varint_of_six_bytes_is_refused(at):
    """Unless it is the timestamp delta, the only field of 64 bits."""
    fields = [b"\0", b"\0", b"\0", b"\0", b"\2", b"\2h", b"\0"]  # timestamp, offset, key, ...
    fields[at] = bytes((fields[at][0] | 0x80,)) + b"\x80\x80\x80\x80\0" + fields[at][1:]
    body = b"\0" + b"".join(fields)
    if at == 0:
        check_records(varint(len(body)) + body, 1)
    else:
        with pytest.raises(InvalidRecordError, match="varint"):
            check_records(varint(len(body)) + body, 1)
    with pytest.raises(InvalidRecordError, match="varint"):  # the length of the record
        check_records(bytes((2 * len(body) | 0x80,)) + b"\x80\x80\x80\x80\0" + body, 1)
