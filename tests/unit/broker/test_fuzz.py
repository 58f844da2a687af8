"""Damaged requests of every API and version (F32): an answer or a closed connection, no bug."""

import asyncio
import os
import random
import struct

import pytest

from ottla.broker.routes import HANDLERS
from ottla.wire.codec import APIS, encode_request, request_class
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch

MUTANTS = int(os.environ.get("OTTLA_FUZZ_MUTANTS", "10"))


class Raw(asyncio.Protocol):
    """Sends bytes, notes whether anything came back or the connection ended."""

    def __init__(self):
        self.over = asyncio.get_running_loop().create_future()
        self.answered = False

    def data_received(self, data):
        self.answered = True
        self._end()

    def connection_lost(self, exc):
        self._end()

    def _end(self):
        if not self.over.done():
            self.over.set_result(None)


def batch(chance):
    """Return a record batch, as often as not with a byte that is wrong."""
    records = [Record(n, 1000 + n, b"k", b"v" * chance.randrange(50)) for n in range(3)]
    raw = bytearray(
        build_batch(
            records,
            codec=chance.randrange(5),
            producer_id=chance.choice([-1, 5]),
            producer_epoch=0,
            base_sequence=chance.choice([-1, 0, 7]),
        )
    )
    if chance.random() < 0.5:
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    return raw


def fill(struct_, version, chance):
    for field in type(struct_).LAYOUT.fields:
        low, high = field.versions
        if not low <= version <= high:
            continue
        if field.array and field.struct is not None:
            entries = [
                fill(field.struct.cls(), version, chance) for _ in range(chance.choice([0, 1, 2]))
            ]
            setattr(struct_, field.name, entries)
        elif field.array and field.type in ("int32", "int64"):
            setattr(struct_, field.name, [chance.choice([-1, 0, 1, 2]) for _ in range(2)])
        elif field.array and field.type == "string":
            setattr(struct_, field.name, [chance.choice(["", "t", "a b"])])
        elif field.type == "records":
            setattr(struct_, field.name, batch(chance))
        elif field.type == "string" and field.struct is None:
            setattr(struct_, field.name, chance.choice(["", "t", "u", "1", "a b", "x" * 300]))
        elif field.type in ("int8", "int16", "int32", "int64"):
            setattr(struct_, field.name, chance.choice([-2, -1, 0, 1, 2, 3, 100]))
    return struct_


def frames(key, version, chance):
    """Yield whole frames: some well-formed with odd values, some with flipped or missing bytes."""
    for number in range(MUTANTS):
        body = b"".join(encode_request(fill(request_class(key)(), version, chance), version))
        raw = bytearray(encode_request_header(key, version, number, "fuzz") + body)
        if number >= MUTANTS // 3:
            for _ in range(chance.randrange(1, 4)):
                raw[chance.randrange(8, len(raw))] = chance.randrange(256)
        if number >= MUTANTS - 1:
            del raw[chance.randrange(8, len(raw)) :]
        yield struct.pack(">i", len(raw)) + raw


@pytest.mark.parametrize("key", list(HANDLERS))
def test_every_api_survives(scene, caplog, key):
    chance = random.Random(key)
    scene.up(1)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    client = scene.simulation.node("client")

    async def go():
        silent = 0
        for version in range(APIS[key].min_version, APIS[key].max_version + 1):
            for frame in frames(key, version, chance):
                transport, raw = await client.world.network.connect("b1", 9092, Raw, timeout_s=5)
                transport.write(frame)
                try:
                    async with asyncio.timeout(100):
                        await raw.over
                except TimeoutError:
                    silent += 1
                transport.close()
        return silent

    silent = client.call(go(), within_s=1e6)
    bugs = [r for r in caplog.records if r.exc_info and r.exc_info[1] is not None]
    assert not bugs, [(r.getMessage(), r.exc_info[1]) for r in bugs]
    # Only Produce with acks=0 has no answer; a fetch or a creation may wait, but not forever.
    assert silent == 0 or key == 0
