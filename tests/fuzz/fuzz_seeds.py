"""Where fuzzing begins: bytes of Kafka's own classes, batches in each codec, files as written."""

import random
import struct
from pathlib import Path

from fuzz_codec import REQUEST, RESPONSE, VERSIONED, VERSIONED_CLASSES
from fuzz_messages import KEYS, OF_THE_CONTROLLER, Nonsense
from fuzz_mutations import joined

from ottla.log import checkpoints
from ottla.model.ids import TopicPartition
from ottla.wire import compression
from ottla.wire.apis import APIS
from ottla.wire.codec import encode_response, encode_versioned, response_class
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.records import FetchResponse
from ottla.wire.records import Record, build_batch, build_control_batch
from ottla.zookeeper import jute
from support.odd_batches import FRAMES

VECTORS = Path(__file__).parents[1] / "vectors" / "messages.txt"


def messages():
    """Yield Kafka's own bytes of every message in every version, as the messages target wants."""
    for line in VECTORS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        kind, key, version, _mode, *rest = line.split(" ")
        body = bytes.fromhex("".join(rest))
        key, version = int(key), int(version)
        if kind == "q":
            header = encode_request_header(key, version, 1, "c")
            yield f"seed: request {key} v{version}", bytes((REQUEST,)) + header + body
        else:
            head = struct.pack(">hh", key, version)
            yield f"seed: response {key} v{version}", bytes((RESPONSE,)) + head + body
    for number, cls in enumerate(VERSIONED_CLASSES):
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            raw = encode_versioned(cls(), version)
            yield f"seed: {cls.__name__} v{version}", bytes((VERSIONED, number)) + raw


def streams(seed=1, topic_ids=()):
    """Yield a well-formed request of every API and version, and a few conversations."""
    nonsense = Nonsense(seed, topic_ids=topic_ids)
    for key in (*KEYS, *sorted(OF_THE_CONTROLLER)):
        for version in range(APIS[key].min_version, APIS[key].max_version + 1):
            yield f"seed: {key} v{version}", joined([nonsense.request(key, version)])
    for number in range(20):
        yield f"seed: conversation {number}", joined([nonsense.any_request() for _ in range(4)])
    for what, raw in (
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n"),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"),
        ("size -1", b"\xff\xff\xff\xff"),
        ("size 2147483647", b"\x7f\xff\xff\xff" + bytes(20)),
        ("an empty frame", bytes(4)),
        ("a frame of 3 bytes", b"\0\0\0\3abc"),
    ):
        yield f"seed: {what}", raw


def batches():
    """Yield batches a producer may send, and some it may not, under each of the rules."""
    many = [Record(timestamp=5 + n, key=b"k", value=b"v" * n) for n in range(3)]
    headed = [Record(timestamp=5, key=None, value=b"v", headers=(("h", b"x"), ("", None)))]
    alike = [Record(timestamp=n, key=b"k", value=b"vvvv") for n in range(80)]
    for codec in range(5):
        for number, some in enumerate((many, headed, alike)):
            raw = build_batch(some, codec=codec)
            for rules in (0, 2, 4):
                yield f"seed: codec {codec} of {number}", bytes((rules,)) + raw
    marker = build_control_batch(
        0, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    yield "seed: a marker", b"\0" + marker
    two = build_batch(many) + build_batch(many, base_offset=3, producer_id=3, producer_epoch=0)
    yield "seed: two batches", b"\0" + two


def compressed():
    """Yield what each codec writes, and its rarer forms."""
    r = random.Random(1)
    for codec, frame in FRAMES.items():
        for _ in range(10 if codec else 0):
            yield f"seed: odd codec {codec}", bytes((codec - 1,)) + frame(r, b"hello " * 20)
    for codec in range(1, 5):
        for raw in (b"", b"a", b"hello " * 20, bytes(range(256)) * 4, bytes(70_000)):
            yield f"seed: codec {codec}", bytes((codec - 1,)) + compression.compress(codec, raw)
    yield "seed: bare snappy", b"\1\x05\x10hello"


def files():
    """Yield each kind of file as we write it."""
    yield "seed: offsets", b"\0" + checkpoints.encode_offsets({TopicPartition("t", 0): 7})
    yield "seed: epochs", b"\1" + checkpoints.encode_epochs([(0, 0), (3, 9)])
    yield "seed: partition.metadata", b"\2" + checkpoints.encode_partition_metadata(b"\1" * 16)
    meta = checkpoints.MetaProperties("abc", 1)
    yield "seed: meta.properties", b"\3" + checkpoints.encode_meta_properties(meta)
    kinds = {4: 3, 5: 1, 6: 5}
    for kind, number in kinds.items():
        cls = VERSIONED_CLASSES[number]
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            yield (
                f"seed: {cls.__name__} v{version}",
                bytes((kind,)) + encode_versioned(cls(), version),
            )


def requests_for_znodes():
    """Yield each request that our ZooKeeper server knows, by strangers and by others."""
    path, watch = jute.path_watch_body("/own", watch=True), jute.string("/own")
    create = jute.create_body("/a", b"x", jute.EPHEMERAL | jute.SEQUENCE, jute.CREATOR_ACL)
    multi = jute.MULTI_HEADER.pack(jute.CREATE, False, -1) + jute.create_body("/b", b"", 0)
    multi += jute.MULTI_HEADER.pack(jute.CHECK, False, -1) + jute.delete_body("/b", 0)
    reads = jute.MULTI_HEADER.pack(jute.GET_DATA, False, -1) + path
    end = jute.MULTI_HEADER.pack(-1, True, -1)
    watched = jute.LONG.pack(0) + 5 * jute.strings(["/own", "/a"])
    bodies = {
        jute.CREATE: create, jute.CREATE2: create, jute.CREATE_CONTAINER: create,
        jute.DELETE: jute.delete_body("/own", -1), jute.EXISTS: path, jute.GET_DATA: path,
        jute.SET_DATA: jute.set_data_body("/own", b"y", 0), jute.GET_ACL: watch,
        jute.SET_ACL: watch + jute.OPEN_ACL + jute.INT.pack(0), jute.GET_CHILDREN: path,
        jute.SYNC: watch, jute.PING: b"", jute.GET_CHILDREN2: path,
        jute.CHECK: jute.delete_body("/own", 0), jute.MULTI: multi + end,
        jute.MULTI_READ: reads * 3 + end, jute.CHECK_WATCHES: watch + jute.INT.pack(1),
        jute.REMOVE_WATCHES: watch + jute.INT.pack(3), jute.CREATE_TTL: create + bytes(8),
        jute.AUTH: jute.INT.pack(0) + jute.string("digest") + jute.buffer(b"a:b"),
        jute.SET_WATCHES: watched, jute.SASL: jute.buffer(b"charset=utf-8,nonce=x"),
        jute.GET_EPHEMERALS: jute.string("/"), jute.GET_ALL_CHILDREN_NUMBER: jute.string("/"),
        jute.SET_WATCHES2: watched, jute.ADD_WATCH: watch + jute.INT.pack(1),
        jute.WHO_AM_I: b"", jute.CLOSE: b"",
    }  # fmt: skip
    hello = jute.ConnectRequest(0, 60_000, 0, bytes(16)).encode()
    for mode in range(4):
        before = b"" if mode & 2 else hello
        for op, body in bodies.items():
            yield f"seed: operation {op}", bytes((mode,)) + before + jute.request(7, op, body)
        everything = b"".join(jute.request(7, op, body) for op, body in bodies.items())
        yield "seed: everything", bytes((mode,)) + before + everything
        yield "seed: a word", bytes((mode,)) + b"mntr"


def texts():
    """Yield texts that are parsed before anyone has authenticated, or from files of others."""
    for number, text in enumerate((
        b"a=b\\\n c\n#d\ne:\\u0041 f", b"SaslServer { org.x.Y required user_a=\"b\" c='d'; };",
        b"RULE:^CN=(.*?),.*$/$1@x/L,DEFAULT", b"n,,n=a,r=b", b"n,,\1auth=Bearer a.b.c\1\1",
        b'charset=utf-8,username="a",realm="b",nonce="c",nc=00000001,cnonce="d",digest-uri="e/f"',
        b"eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.",
        b'{"keys": [{"kty": "RSA", "kid": "a", "n": "AQAB", "e": "AQAB"}]}',
    )):  # fmt: skip
        yield f"seed: text {number}", bytes((number,)) + text


def answers(seed=1, topic_ids=(bytes(16),)):
    """Yield what a leader, a told broker and a broker asked by clients may answer."""
    nonsense = Nonsense(seed, topic_ids=topic_ids)
    r = FetchResponse
    records = build_batch([Record(timestamp=1, key=b"k", value=b"v")] * 2, leader_epoch=0)
    for topic_id in topic_ids:
        for code in (0, 0, 1, 6, 74, 76, 100):
            part = r.PartitionData(
                partition_index=0, error_code=code, high_watermark=1, last_stable_offset=1,
                log_start_offset=0, records=records if code == 0 else b"",
            )  # fmt: skip
            topic = r.FetchableTopicResponse(topic_id=topic_id, partitions=[part])
            body = b"".join(encode_response(r(responses=[topic]), 17))
            yield (
                f"seed: Fetch with error {code}",
                b"\1" + joined([struct.pack(">hh", 1, 17) + body]),
            )
    for key, version in {1: 17, 2: 9, 23: 4, 4: 7, 5: 4, 6: 8, 3: 12, 18: 4, 0: 11}.items():
        for number in range(4):
            layout = response_class(key).LAYOUT
            body = b"".join(encode_response(nonsense.fill(layout, version), version))
            raw = joined([struct.pack(">hh", key, version) + body])
            yield f"seed: answer to {key} v{version}", bytes((number & 1,)) + raw


SEEDS = {
    "broker": streams,
    "peers": answers,
    "coordination": requests_for_znodes,
    "messages": messages,
    "batches": batches,
    "compression": compressed,
    "files": files,
    "texts": texts,
}
