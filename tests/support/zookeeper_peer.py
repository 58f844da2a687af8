"""A client of our ZooKeeper server without a socket, at a clock that stands still."""

import asyncio
import time

from ottla.security.sasl.digest_md5 import DigestMd5Client
from ottla.zookeeper import jute
from ottla.zookeeper.server_connection import Connection

USERS = {"kafka": "k", "eve": "e"}


class Clock:
    """Stands still; a test moves it forward, or each look at it does."""

    slice_s = 0.008

    def __init__(self):
        self.now_s = 1000.0
        self.step_s = 0.0

    def monotonic(self):
        self.now_s += self.step_s
        return self.now_s

    def wall_ms(self):
        return int(time.time() * 1000)


class Transport:
    def __init__(self, address):
        self.address, self.sent, self.closed = address, b"", False

    def get_extra_info(self, _name):
        return (self.address, 1)

    def write(self, data):
        self.sent += data

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.closed

    def abort(self):
        self.closed = True

    close = abort

    def pause_reading(self):
        pass

    resume_reading = pause_reading


class Peer:
    """A client, without a socket."""

    def __init__(self, server, address="10.0.0.1"):
        self.transport = Transport(address)
        self.connection = Connection(server)
        self.connection.connection_made(self.transport)
        self.session = (0, b"")

    def hello(self, session=0, password=bytes(16)):
        self.connection.data_received(jute.ConnectRequest(0, 60_000, session, password).encode())
        found = jute.ConnectResponse.decode(self.frames()[0]) if self.transport.sent else None
        if found is not None:
            self.session = found.session_id, found.password
        return self

    def frames(self):
        buf, spans = jute.Frames(1 << 24).feed(self.transport.sent)
        self.transport.sent = b""
        return [buf[a:b] for a, b in spans]

    def send(self, *requests):
        parts = [jute.request(7, op, body) for op, body in requests]
        self.connection.data_received(b"".join(parts))

    async def ask(self, op, body=b""):
        """Return the error and the body of the reply."""
        self.send((op, body))
        async with asyncio.timeout(20):
            while not self.transport.sent:
                await asyncio.sleep(0)
        reply = self.frames()[-1]
        return jute.REPLY_HEADER.unpack_from(reply)[2], reply[jute.REPLY_HEADER.size :]

    async def authenticate(self, user="kafka"):
        client = DigestMd5Client(user, USERS[user], "n" * 24)
        message, error = client.respond(b""), 0
        while message is not None and not error:
            error, body = await self.ask(jute.SASL, jute.buffer(message))
            message = None if error else client.respond(jute.read_buffer(body, 0)[0] or b"")
        return error

    @property
    def is_open(self):
        return not self.transport.closed
