"""Fake brokers: many registered brokers in one process that say OK to whatever a controller sends.

Run by `failover.py`, which talks to it in JSON lines over stdin and stdout:
    {"do": "take_over", "zookeeper": A, "victim": N, "epoch": E}
                                     register the victim, the controller in place of who is
    {"do": "register", "ids": [...]} register the others
    {"do": "die"}                    end the victim's session: /brokers/ids/N and /controller go
    {"do": "stats"}                  what arrived since, by kind, and when the last was answered
    {"do": "learned", "of": N}       what the requests to broker N taught it, by partition
LeaderAndIsr is answered with a line per partition, as a real broker does, so that the controller
has the same answers to read. Bodies are kept for two brokers only; the rest is counted.
"""

import asyncio
import json
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from ottla.log.files import OsFiles
from ottla.model.cluster import BrokerInfo, Endpoint
from ottla.model.ports import World
from ottla.model.steps import drain
from ottla.net import runtime
from ottla.wire.codec import decode_request_in_slices
from ottla.wire.primitives import read_uvarint, uvarint
from ottla.zookeeper import znodes
from ottla.zookeeper.operations import Create, Delete, Set
from ottla.zookeeper.session import Session

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
NAMES = {LEADER_AND_ISR: "LeaderAndIsr", STOP_REPLICA: "StopReplica",
         UPDATE_METADATA: "UpdateMetadata"}  # fmt: skip
KEPT_BROKERS = 2
SESSION_TIMEOUT_MS = 30_000
INT = struct.Struct(">i")


def leader_and_isr_answer(frame: bytearray, pos: int) -> list[bytes]:
    """Return the body of a LeaderAndIsr v7 response that says NONE of every partition."""
    pos += 4 + 1 + 4 + 8 + 1  # controller, its kind and epoch, broker epoch, type
    topics, pos = read_uvarint(frame, pos)
    parts = [b"\x00\x00", uvarint(topics)]
    for _ in range(topics - 1):
        size, pos = read_uvarint(frame, pos)
        pos += size - 1
        topic_id = bytes(frame[pos : pos + 16])
        count, pos = read_uvarint(frame, pos + 16)
        parts += [topic_id, uvarint(count)]
        for _ in range(count - 1):
            index = frame[pos : pos + 4]
            pos += 16  # partition, controller epoch, leader, leader epoch
            pos += 1 + 4 * (frame[pos] - 1)  # ISR
            pos += 4  # partition epoch
            for _ in range(3):  # replicas, adding, removing
                pos += 1 + 4 * (frame[pos] - 1)
            pos += 3  # is new, recovery state, no tags
            parts.append(bytes(index) + b"\x00\x00\x00")
        pos += 1
        parts.append(b"\x00")
    parts.append(b"\x00")
    return parts


def header_end(frame: bytearray) -> int:
    """Return where the body of a frame with a flexible header (version 2) begins."""
    (client_size,) = struct.unpack_from(">h", frame, 8)
    pos = 10 + max(client_size, 0)
    assert frame[pos] == 0, "no tagged header fields are expected"
    return pos + 1


@dataclass
class Seen:
    """What all fakes together were sent."""

    requests: dict[str, int] = field(default_factory=dict)
    sent_bytes: dict[str, int] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)
    kept: dict[int, list[bytearray]] = field(default_factory=dict)

    def clear(self) -> None:
        for table in (self.requests, self.sent_bytes, self.first, self.last, self.told, self.kept):
            table.clear()


class Fake(asyncio.Protocol):
    """One connection to one fake broker."""

    def __init__(self, broker: int, seen: Seen, *, keep: bool) -> None:
        self.broker, self.seen, self.keep = broker, seen, keep
        self.buffer = bytearray()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            (size,) = INT.unpack_from(self.buffer, 0)
            if len(self.buffer) < 4 + size:
                return
            frame = self.buffer[4 : 4 + size]
            del self.buffer[: 4 + size]
            self.answer(frame)

    def answer(self, frame: bytearray) -> None:
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame, 0)
        if api_key == LEADER_AND_ISR:
            assert version == 7, version
            body = b"".join(leader_and_isr_answer(frame, header_end(frame)))
        elif api_key == STOP_REPLICA:
            body = b"\x00\x00\x01\x00"
        elif api_key == UPDATE_METADATA:
            body = b"\x00\x00\x00"
        else:
            raise AssertionError(f"a fake broker was asked api {api_key}")
        self.transport.write(INT.pack(5 + len(body)) + INT.pack(correlation_id) + b"\x00" + body)
        seen, name, now = self.seen, NAMES[api_key], time.time()
        seen.requests[name] = seen.requests.get(name, 0) + 1
        seen.sent_bytes[name] = seen.sent_bytes.get(name, 0) + len(frame)
        seen.first.setdefault(name, now)
        seen.last[name] = now
        seen.told[self.broker] = seen.told.get(self.broker, 0) + 1
        if self.keep:
            seen.kept.setdefault(self.broker, []).append(frame)


class Fakes:
    """All of them, their session, and the victim's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen = Seen()
        self.session: Session | None = None
        self.victim_session: Session | None = None

    async def take_over(self, zookeeper: str, victim: int, epoch: int) -> dict[str, Any]:
        """Make the victim the controller in one step, so that nobody else is elected."""
        self.session = await Session.connect(self.world, zookeeper, SESSION_TIMEOUT_MS, 30_000)
        self.victim_session = await Session.connect(
            self.world, zookeeper, SESSION_TIMEOUT_MS, 30_000
        )
        data = znodes.encode_controller(victim, int(time.time() * 1000))
        await self.victim_session.multi(
            [
                Delete(znodes.CONTROLLER),
                Create(znodes.CONTROLLER, data, ephemeral=True),
                Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch)),
            ]
        )
        await self._listen(victim, self.victim_session)
        return {"ok": True}

    async def register(self, ids: list[int]) -> dict[str, Any]:
        assert self.session is not None
        for n, broker in enumerate(ids):
            await self._listen(broker, self.session, keep=n < KEPT_BROKERS)
        return {"ok": True}

    async def _listen(self, broker: int, owner: Session, *, keep: bool = False) -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: Fake(broker, self.seen, keep=keep), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        info = BrokerInfo(broker, (Endpoint("127.0.0.1", port),))
        data = znodes.encode_broker(info, int(time.time() * 1000))
        await owner.create(znodes.broker_path(broker), data, ephemeral=True)

    async def die(self) -> dict[str, Any]:
        assert self.victim_session is not None
        self.seen.clear()
        at = time.time()
        await self.victim_session.close()
        return {"at": at}

    def stats(self) -> dict[str, Any]:
        seen = self.seen
        return {
            "requests": seen.requests,
            "bytes": seen.sent_bytes,
            "first": seen.first,
            "last": seen.last,
            "brokers": len(seen.told),
            "kept": sorted(seen.kept),
        }

    def learned(self, of: int) -> dict[str, Any]:
        """Decode what one broker was sent, in order; [leader, leader epoch, ISR] by partition."""
        metadata: dict[str, list[Any]] = {}
        states: dict[str, list[Any]] = {}
        for frame in self.seen.kept.get(of, []):
            api_key, version = struct.unpack_from(">hh", frame, 0)
            whole = memoryview(bytes(frame))  # a controller's may be of any size
            message = drain(decode_request_in_slices(api_key, version, whole, header_end(frame)))
            if api_key == STOP_REPLICA:
                continue
            into = metadata if api_key == UPDATE_METADATA else states
            for topic in message.topic_states:
                for p in topic.partition_states:
                    into[f"{topic.topic_name}-{p.partition_index}"] = [
                        p.leader, p.leader_epoch, list(p.isr)
                    ]  # fmt: skip
        return {"metadata": metadata, "states": states}


async def serve() -> None:
    loop = asyncio.get_running_loop()
    fakes = Fakes(runtime.real_world(OsFiles()))
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        asked = json.loads(line)
        match asked.pop("do"):
            case "register":
                found = await fakes.register(**asked)
            case "take_over":
                found = await fakes.take_over(**asked)
            case "die":
                found = await fakes.die()
            case "stats":
                found = fakes.stats()
            case "learned":
                found = fakes.learned(**asked)
            case other:
                raise AssertionError(other)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    runtime.run(serve)
