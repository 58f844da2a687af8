"""F33, F34 and F35 as tables, at a broker's port: versions, batches and bombs."""

import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fuzz_broker import error_codes
from fuzz_messages import Nonsense
from fuzz_mutations import joined, reseal, uvarint

from ottla.broker.requests.routes import ROUTES
from ottla.log.validate import ValidationRules, check_leader_batch
from ottla.model.config import default_topic_config
from ottla.model.errors import ErrorCode, InvalidRecordError, OttlaError, RecordTooLargeError
from ottla.wire import compression
from ottla.wire.apis import APIS
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch

API_VERSIONS = 18
UNKNOWN_KEYS = (-1, 17, 29, 36, 57, 68, 1000, 32767)


def sent(target, stream):
    """Send a stream; return (what came back, whether the connection was closed)."""
    world = target.world
    return world.node.call(world.deliver(stream, lambda received: len(received) > 8))


# F33


@pytest.mark.parametrize("key", sorted(ROUTES))
def test_versions_out_of_range(broker_target, key):
    """They close the connection; only ApiVersions is answered, in version 0 with error 35."""
    spec = APIS[key]
    good = Nonsense(key).request(key, spec.max_version)
    for version in (-1, spec.max_version + 1, 32767, -32768):
        raw = good[:2] + struct.pack(">h", version) + good[4:]
        received, closed = sent(broker_target, joined([raw]))
        if key == API_VERSIONS:
            _, pos = decode_response_header(key, 0, memoryview(received)[4:])
            answer = decode_response(key, 0, memoryview(received)[4:], pos)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert {k.api_key for k in answer.api_keys} >= {API_VERSIONS}
            assert not closed
        else:
            assert (received, closed) == (b"", True), version
        broker_target.check(joined([raw]))


@pytest.mark.parametrize("key", UNKNOWN_KEYS)
def test_unknown_keys_close(broker_target, key):
    raw = struct.pack(">hhih", key, 0, 7, -1)
    assert sent(broker_target, joined([raw])) == (b"", True)
    broker_target.check(joined([raw]))


def test_a_name_longer_than_kafka_reads(broker_target):
    """Found by fuzzing: compact lengths reach further than what any answer can repeat."""
    topic = CreateTopicsRequest.CreatableTopic(
        name="n", num_partitions=1, replication_factor=1, assignments=[]
    )
    body = b"".join(encode_request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7))
    for size, closes in ((32767, False), (32768, True), (40_000, True)):
        raw = encode_request_header(19, 7, 3, "c") + body.replace(
            b"\x02n", uvarint(size + 1) + b"n" * size
        )
        received, closed = sent(broker_target, joined([raw]))
        assert (received == b"", closed) == (closes, closes), size
        broker_target.check(joined([raw]))


# F34

GOOD = build_batch(
    [Record(timestamp=1_700_000_000_000 + n, key=b"k", value=b"value") for n in range(3)],
    producer_id=4000,
    producer_epoch=0,
    base_sequence=0,
)
CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
REFUSED = [
    # what, where, its form, the value, whether the CRC is put right, Kafka 3.9's answer
    ("base offset", 0, ">q", 7, False, INVALID),
    ("length below a header", 8, ">i", 3, False, CORRUPT),
    ("length below zero", 8, ">i", -1, False, CORRUPT),
    ("length beyond the bytes", 8, ">i", len(GOOD), False, INVALID),
    ("length 2147483647", 8, ">i", 2**31 - 1, False, INVALID),
    ("magic 0", 16, ">b", 0, False, INVALID),
    ("magic 1", 16, ">b", 1, False, INVALID),
    ("magic 3", 16, ">b", 3, False, CORRUPT),
    ("magic -1", 16, ">b", -1, False, CORRUPT),
    ("CRC", 17, ">I", 1, False, CORRUPT),
    ("attributes, CRC not mended", 21, ">h", 1, False, CORRUPT),
    ("codec 5", 21, ">h", 5, True, None),
    ("codec 1 over plain records", 21, ">h", 1, True, None),
    ("control", 21, ">h", 0x20, True, INVALID),
    ("last offset delta too low", 23, ">i", 1, True, INVALID),
    ("last offset delta too high", 23, ">i", 3, True, INVALID),
    ("last offset delta -1", 23, ">i", -1, True, INVALID),
    ("base sequence -1", 53, ">i", -1, True, INVALID),
    ("count 0", 57, ">i", 0, True, INVALID),
    ("count -1", 57, ">i", -1, True, INVALID),
    ("count too low", 57, ">i", 2, True, INVALID),
    ("count too high", 57, ">i", 4, True, INVALID),
    ("count 2147483647", 57, ">i", 2**31 - 1, True, INVALID),
]


def produce(target, records):
    """Return the error code of a Produce to a topic of the world."""
    part = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="hostile", partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    body = b"".join(encode_request(request, 9))
    received, _ = sent(target, joined([encode_request_header(0, 9, 3, "c") + body]))
    _, pos = decode_response_header(0, 9, memoryview(received)[4:])
    (code,) = error_codes(decode_response(0, 9, memoryview(received)[4:], pos))
    return code


@pytest.mark.parametrize(
    ("at", "form", "value", "mended", "code"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_a_wrong_batch_header(broker_target, at, form, value, mended, code):
    raw = bytearray(GOOD)
    struct.pack_into(form, raw, at, value)
    before = broker_target.world.state()
    found = produce(broker_target, reseal(bytes(raw)) if mended else bytes(raw))
    assert found != 0
    assert code is None or found == code, ErrorCode(found).name
    assert broker_target.world.state() == before


@pytest.mark.parametrize("size", [0, 1, 11, 12, 16, 17, 60, 61, len(GOOD) - 1])
def test_a_short_batch(broker_target, size):
    before = broker_target.world.state()
    assert produce(broker_target, GOOD[:size]) in (CORRUPT, INVALID)
    assert broker_target.world.state() == before


def test_every_byte_of_a_batch_matters(broker_target):
    """With any byte changed it is refused, but for the leader epoch, which is the leader's."""
    before = broker_target.world.state()
    for at in (*range(12), *range(16, len(GOOD), 3)):
        raw = bytearray(GOOD)
        raw[at] ^= 0x41
        assert produce(broker_target, bytes(raw)) != 0, at
    assert broker_target.world.state() == before


# F35

MIB = 1 << 20
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def peak_mib(work):
    """Return by how many MiB the process was larger at the most while `work` ran."""
    status = Path("/proc/self/status")

    def value(name):
        line = next(x for x in status.read_text().splitlines() if x.startswith(name))
        return int(line.split()[1]) // 1024

    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = value("VmRSS:")
    work()
    return value("VmHWM:") - before


@pytest.mark.parametrize("codec", list(CODECS))
def test_a_bomb_takes_no_more_memory_than_the_cap_allows(codec):
    """200 MiB of zeros: a leader stops at the cap, 64 MiB, whoever reads at what he asked for."""
    number = CODECS[codec]
    bomb = compression.compress(number, bytes(200 * MIB))
    rules = ValidationRules(default_topic_config(max_message_bytes=str(16 * MIB)))
    fake = bytearray(build_batch([Record(timestamp=1, value=b"v")], codec=number)[:61] + bomb)
    struct.pack_into(">i", fake, 8, len(fake) - 12)
    raw = memoryview(bytearray(reseal(bytes(fake))))
    assert len(raw) < 16 * MIB

    def lead():
        with pytest.raises(RecordTooLargeError):
            check_leader_batch(raw, rules, "client", 0)

    def read():
        with pytest.raises(RecordTooLargeError):
            compression.decompress(number, bomb, 4 * MIB)

    assert peak_mib(read) <= 2 * 4 + 8
    # What was decompressed, once more while parts are joined, and the batch.
    assert peak_mib(lead) <= 2 * 64 + 3 * len(raw) // MIB + 8


def test_what_claims_to_hold_much_gets_no_memory_for_it():
    """A few bytes that declare a gibibyte, in each of the formats that can."""
    snappy = b"\x80\x80\x80\x80\x04" + bytes(20)
    xerial = compression.compress(2, b"")[:16] + struct.pack(">i", 25) + snappy
    zstd = b"\x28\xb5\x2f\xfd\xe0" + (1 << 30).to_bytes(8, "little") + b"\x01\x00\x00"

    def read():
        for number, raw in ((2, snappy), (2, xerial), (4, zstd)):
            with suppress(InvalidRecordError, RecordTooLargeError):
                assert len(compression.decompress(number, raw, 1 << 30)) == 0

    assert peak_mib(read) <= 8


@pytest.mark.parametrize(("key", "element"), [(0, b"\1\1\0"), (49, b"\1\1\0")])
def test_a_frame_of_nothing_but_elements(broker_target, key, element):
    """F32: six mebibytes of the smallest elements, two million, are refused, not made."""
    header = encode_request_header(key, APIS[key].max_version, 3, "c")
    count = 6 * MIB // len(element)
    before = {0: b"\0" + struct.pack(">hi", 1, 1000)}.get(key, b"")
    raw = joined([header + before + uvarint(count + 1) + element * count + b"\0"])
    answers = []
    began_s = time.process_time()
    grown = peak_mib(lambda: answers.append(sent(broker_target, raw)))
    assert answers == [(b"", True)]
    assert time.process_time() - began_s < 5.0
    # The simulated network holds the stream several times over; the elements would be 300 MiB.
    assert grown <= 6 * 6 + 100


def test_a_bomb_sent_to_a_broker(broker_target):
    """The same through the port: refused, nothing written, the connection stays."""
    before = broker_target.world.state()
    records = [Record(timestamp=1, key=b"k", value=bytes(70 * MIB))]
    code = produce(broker_target, build_batch(records, codec=CODECS["zstd"]))
    assert code in (ErrorCode.MESSAGE_TOO_LARGE, INVALID)
    assert broker_target.world.state() == before
    with pytest.raises(OttlaError):
        compression.decompress(9, b"", 1)
