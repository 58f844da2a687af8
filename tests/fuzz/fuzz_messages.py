"""Frames nobody should send: every request a broker serves, in every version, filled with nonsense.

Values are drawn from what means something to a broker (names that exist, epochs, ids of its own)
and from the edges of each type. `tests/simulation/test_hostile_clients.py` sends them to clusters,
the fuzz targets begin with them.
"""

import random
import struct

from ottla.broker.requests.routes import ROUTES
from ottla.wire import codec
from ottla.wire.apis import APIS
from ottla.wire.headers import encode_request_header
from ottla.wire.records import Record, build_batch

OF_THE_CONTROLLER = {4, 5, 6, 7, 56}
"""What only a controller sends: without authorization it is obeyed, as in Kafka."""

KEYS = sorted(set(ROUTES) - OF_THE_CONTROLLER)
NAMES = (
    "hostile", "hostile", "events", "compacted", "", ".", "..", "no-such", "é" * 5, "x" * 300,
    "a b", "0", "__consumer_offsets", "__transaction_state", "hostile-0",
)  # fmt: skip
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class Nonsense:
    """Random values for a message's fields, often ones that mean something.

    `topic_ids` are ids that exist, for the fields that take one.
    """

    def __init__(self, seed, *, topic_ids=()):
        self.rng = random.Random(seed)
        self.topic_ids = tuple(topic_ids)

    def integer(self, bits):
        top = 2 ** (bits - 1)
        return self.rng.choice(
            (-2, -1, 0, 0, 1, 1, 2, 3, 4, top - 1, -top, self.rng.randrange(top))
        )

    def records(self):
        rng = self.rng
        count = rng.choice((1, 1, 3))
        batch = bytearray(
            build_batch(
                [Record(-1, rng.choice((-1, 0, 1_767_225_600_000)), None, b"v")] * count,
                producer_id=rng.choice((-1, 0, 7)),
                producer_epoch=rng.choice((-1, 0, 1)),
                base_sequence=rng.choice((-1, 0, 2**31 - 1)),
                is_transactional=rng.random() < 0.1,
                codec=rng.choice((0, 1, 2, 3, 4)),
            )
        )
        draw = rng.random()
        if draw < 0.3:
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        elif draw < 0.4:
            del batch[rng.randrange(len(batch)) :]
        elif draw < 0.5:
            batch += bytes(batch)
        elif draw < 0.55:
            return rng.randbytes(rng.randrange(100))
        return bytes(batch)

    def scalar(self, kind):
        rng = self.rng
        if kind in BITS:
            return self.integer(BITS[kind])
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "uint16":
            return rng.randrange(65536)
        if kind == "float64":
            return rng.choice((0.0, -1.0, 1e300, float("nan"), float("inf")))
        if kind == "uuid":
            return rng.choice(
                (bytes(16), bytes(15) + b"\x01", rng.randbytes(16), *self.topic_ids * 2)
            )
        if kind == "string":
            return rng.choice(NAMES)
        if kind == "records":
            return self.records()
        return rng.randbytes(rng.randrange(50))

    def value(self, item, version):
        rng = self.rng
        if item.null_allowed(version) and rng.random() < 0.15:
            return None

        def one():
            return self.fill(item.struct, version) if item.struct else self.scalar(item.type)

        return [one() for _ in range(rng.choice((0, 1, 1, 2, 3)))] if item.array else one()

    def fill(self, layout, version):
        return layout.made(
            **{i.name: self.value(i, version) for i in layout.fields if i.present(version)}
        )

    def request(self, key, version):
        """Return one well-formed frame of an API, without its size."""
        message = self.fill(codec.request_class(key).LAYOUT, version)
        body = b"".join(codec.encode_request(message, version))
        header = encode_request_header(key, version, self.rng.randrange(2**31), "mallory")
        return header + body

    def any_request(self, keys=KEYS):
        """Return a well-formed frame of any API and version, without its size."""
        key = self.rng.choice(keys)
        spec = APIS[key]
        return self.request(key, self.rng.randint(spec.min_version, spec.max_version))

    def frame(self):
        """Return a frame with its size; one in three is damaged."""
        rng = self.rng
        raw = bytearray(self.any_request())
        if rng.random() < 0.25:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        if rng.random() < 0.05:
            del raw[rng.randrange(len(raw)) :]
        return struct.pack(">i", len(raw)) + raw
