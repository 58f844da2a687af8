"""A listener with SASL and our client over real sockets: sessions, bounds, delays, refusals."""

import asyncio
import contextlib
import struct
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import sasl_scripts  # tests are no package

from ottla.broker.requests.security.sasl import SaslDispatch
from ottla.model.errors import ConnectionLostError, ServerRefusedError
from ottla.net import peer_authentication, runtime
from ottla.net.limits import ServerLimits
from ottla.net.peer import PeerConnection
from ottla.net.server import Server
from ottla.security.client import ClientSecurity
from ottla.security.sasl.authentication import SaslPolicy
from ottla.security.sasl.exchange import SaslClient
from ottla.security.sasl.plain import PlainClient, PlainServer
from ottla.security.sasl.scram import (
    ScramClient,
    ScramLookup,
    ScramMechanism,
    ScramServer,
    credential_of,
)
from ottla.wire.messages.cluster import ApiVersionsRequest
from support.sasl_clusters import USERS

DELAY_MS = 150
SHA256 = ScramMechanism.SCRAM_SHA_256


class Requests:
    """Serves ApiVersions 0 and counts what came."""

    def __init__(self):
        self.served = []

    def dispatch(self, conn, frame):
        self.served.append((str(conn.principal), len(frame)))
        return [bytes(frame[4:8]), b"\0\0", b"\0\0\0\0"]

    def error_response(self, frame, error):
        return [bytes(frame[4:8]), struct.pack(">h", error.code)]


class Listener:
    def __init__(
        self, world, max_reauth_ms=0, deadline_s=30.0, credential=None, limits=None, held=False
    ):
        self.requests = Requests()
        lookup = ScramLookup(lambda _m, _n: credential, lambda _m, _i: None, b"s" * 32)
        policy = SaslPolicy(
            {"PLAIN": lambda: PlainServer(USERS),
             "SCRAM-SHA-256": lambda: ScramServer(SHA256, lookup, "nonce")},
            {"PLAIN": max_reauth_ms}, 1000, deadline_s,
        )  # fmt: skip
        self.sasl = SaslDispatch(policy, self.requests, world.clock, lambda: DELAY_MS)
        self.server = Server(
            world, "127.0.0.1", 0, self.sasl.dispatch,
            limits or ServerLimits(max_unauthenticated_bytes=1000),
            listener="SASL_PLAINTEXT", authentication=self.sasl.begin, held=held,
        )  # fmt: skip


@contextlib.asynccontextmanager
async def listening(**more):
    world = runtime.real_world(None)
    listener = Listener(world, **more)
    await listener.server.start()
    try:
        yield world, listener
    finally:
        await listener.server.close()


async def opened(world, listener, name="alice", password=USERS["alice"], mechanism="PLAIN"):
    client = SaslClient(mechanism, lambda: PlainClient(name, password))
    if mechanism.startswith("SCRAM"):
        client = SaslClient(mechanism, lambda: ScramClient(SHA256, name, password, "c"))
    return await PeerConnection.open(
        world, "127.0.0.1", listener.server.port, "test", timeout_s=5,
        security=ClientSecurity(sasl=client),
    )  # fmt: skip


def run(main):
    asyncio.run(asyncio.wait_for(main(), 60))


async def soon(condition):
    """Wait for what takes a few turns of the loop, or longer on a busy machine."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_client_authenticates_again_before_each_session_ends(monkeypatch):
    # Of a short session the last tenth is less than this process may wait for a core.
    monkeypatch.setattr(peer_authentication, "FIRST_PART", 0.4)
    monkeypatch.setattr(peer_authentication, "LAST_PART", 0.5)

    async def main():
        async with listening(max_reauth_ms=4000) as (world, listener):
            peer = await opened(world, listener)
            responses = []
            ends = time.monotonic() + 5
            while time.monotonic() < ends:
                many = [peer.send(ApiVersionsRequest(), 0, 5) for _ in range(20)]
                responses += await asyncio.gather(*many)
                await asyncio.sleep(0.005)
            assert not peer.closed
            assert len(responses) == len(listener.requests.served)
            assert {who for who, _ in listener.requests.served} == {"User:alice"}
            assert listener.sasl.authenticated >= 3
            assert listener.sasl.reauthenticated == listener.sasl.authenticated - 1
            assert listener.server.accepted_count == 1
            peer.close()

    run(main)


def test_a_client_that_cannot_authenticate_again_loses_its_connection():
    async def main():
        async with listening(max_reauth_ms=1100) as (world, listener):
            password = [USERS["alice"]]
            client = SaslClient("PLAIN", lambda: PlainClient("alice", password[0]))
            peer = await PeerConnection.open(
                world, "127.0.0.1", listener.server.port, "t", timeout_s=5,
                security=ClientSecurity(sasl=client),
            )  # fmt: skip
            password[0] = "wrong"
            lost = asyncio.Event()
            peer.on_lost(lost.set)
            await asyncio.wait_for(lost.wait(), 20)
            assert "Invalid username or password" in peer.lost_reason

    run(main)


@pytest.mark.parametrize(
    ("who", "text"),
    [
        ({"password": "wrong"}, "Authentication failed: Invalid username or password"),
        ({"name": "nobody"}, "Authentication failed: Invalid username or password"),
        ({"mechanism": "SCRAM-SHA-512"}, "SCRAM-SHA-512; it enables PLAIN, SCRAM-SHA-256"),
        ({"mechanism": "SCRAM-SHA-256"}, "due to invalid credentials with SASL mechanism SCRAM"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line(who, text):
    async def main():
        async with listening() as (world, listener):
            with pytest.raises(ServerRefusedError, match=text):
                await opened(world, listener, **who)
            assert listener.requests.served == []

    run(main)


def test_a_server_that_does_not_know_the_password_is_left():
    """It accepts any proof, as one would that only pretends: its own signature gives it away."""

    async def main():
        salted = SHA256.salted_password(USERS["alice"], b"salt", 4096)
        real = credential_of(SHA256, salted, b"salt", 4096)
        pretended = real._replace(server_key=b"?" * 32)
        async with listening(credential=pretended) as (world, listener):
            with pytest.raises(ServerRefusedError, match="could not prove"):
                await opened(world, listener, mechanism="SCRAM-SHA-256")
        async with listening(credential=real) as (world, listener):
            peer = await opened(world, listener, mechanism="SCRAM-SHA-256")
            await peer.send(ApiVersionsRequest(), 0, 5)
            peer.close()

    run(main)


class Raw:
    """Bytes to a listener, and what comes back until the end."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, listener):
        return cls(*await asyncio.open_connection("127.0.0.1", listener.server.port))

    def send(self, *frames):
        self.writer.write(b"".join(struct.pack(">i", len(f)) + f for f in frames))

    async def frame(self):
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def rest(self):
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


def test_frames_are_small_until_authentication_and_of_any_size_after():
    async def main():
        async with listening() as (_, listener):
            raw = await Raw.to(listener)
            raw.writer.write(struct.pack(">i", 1001) + b"x" * 50)
            assert await asyncio.wait_for(raw.rest(), 20) == b""
            raw = await Raw.to(listener)
            raw.send(sasl_scripts.FRAMES["handshake plain"])
            await raw.frame()
            raw.send(sasl_scripts.FRAMES["token"])
            await raw.frame()
            raw.send(b"\0\3\0\4" + b"x" * 100_000)
            await raw.frame()
            assert listener.requests.served == [("User:alice", 100_004)]

    run(main)


def test_who_does_not_authenticate_is_closed_after_a_while():
    async def main():
        limits = ServerLimits(max_unauthenticated_bytes=1000, idle_ms=5000)
        async with listening(deadline_s=1.5, limits=limits) as (world, listener):
            began = time.monotonic()
            trickle = await Raw.to(listener)
            trickle.writer.write(struct.pack(">i", 900))
            with contextlib.suppress(ConnectionError):
                for _ in range(600):  # never idle, never a whole frame
                    trickle.writer.write(b"x")
                    await trickle.writer.drain()
                    await asyncio.sleep(0.05)
                    if trickle.reader.at_eof():
                        break
            assert 1.4 < time.monotonic() - began < 20
            assert not listener.sasl.failed
            peer = await opened(world, listener)
            await asyncio.sleep(1.55)  # past the deadline of those who are not authenticated
            await peer.send(ApiVersionsRequest(), 0, 5)
            peer.close()

    run(main)


def test_the_time_to_authenticate_counts_from_when_the_server_reads():
    async def main():
        async with listening(deadline_s=1.5, held=True) as (_, listener):
            raw = await Raw.to(listener)
            raw.send(sasl_scripts.FRAMES["handshake plain"])
            await asyncio.sleep(2.7)  # a sweep and more, while the broker starts
            listener.server.release()
            await asyncio.wait_for(raw.frame(), 20)
            raw.send(sasl_scripts.FRAMES["token"])
            await raw.frame()
            assert listener.sasl.authenticated == 1

    run(main)


def test_a_failure_is_answered_late_and_nothing_behind_it_is_served():
    async def main():
        async with listening() as (_, listener):
            raw = await Raw.to(listener)
            raw.send(sasl_scripts.FRAMES["handshake plain"])
            await raw.frame()
            began = time.monotonic()
            frames = sasl_scripts.FRAMES
            raw.send(frames["wrong password"], frames["token"], frames["metadata"])
            answer = await raw.frame()
            assert time.monotonic() - began >= DELAY_MS / 1000
            assert struct.unpack(">h", answer[4:6]) == (58,)
            assert await raw.rest() == b""
            assert listener.requests.served == []
            assert (listener.sasl.authenticated, listener.sasl.failed) == (0, 1)

    run(main)


def test_who_leaves_during_the_delay_leaves_nothing_behind():
    async def main():
        async with listening() as (_, listener):
            raw = await Raw.to(listener)
            raw.send(sasl_scripts.FRAMES["handshake plain"], sasl_scripts.FRAMES["wrong password"])
            await raw.frame()
            raw.writer.transport.abort()
            await asyncio.sleep(DELAY_MS / 1000 + 0.1)
            await soon(lambda: not listener.server.connections)

    run(main)


def test_a_listener_without_sasl_says_so():
    async def main():
        world = runtime.real_world(None)
        illegal = lambda _c, frame: [bytes(frame[4:8]), b"\0\x22", b"\0\0\0\0"]  # noqa: E731
        server = Server(world, "127.0.0.1", 0, illegal)
        await server.start()
        client = SaslClient("PLAIN", lambda: PlainClient("a", "b"))
        with pytest.raises(ServerRefusedError, match="a listener without SASL"):
            await PeerConnection.open(
                world, "127.0.0.1", server.port, "t", timeout_s=5,
                security=ClientSecurity(sasl=client),
            )  # fmt: skip
        await server.close()

    run(main)


def test_a_silent_server_is_left_in_time():
    async def main():
        world = runtime.real_world(None)
        silent = lambda conn, _frame: conn.pending(pipelined=False)  # noqa: E731
        server = Server(world, "127.0.0.1", 0, silent)
        await server.start()
        client = SaslClient("PLAIN", lambda: PlainClient("a", "b"))
        with pytest.raises(ConnectionLostError):
            await PeerConnection.open(
                world, "127.0.0.1", server.port, "t", timeout_s=0.3,
                security=ClientSecurity(sasl=client),
            )  # fmt: skip
        await server.close()

    run(main)
