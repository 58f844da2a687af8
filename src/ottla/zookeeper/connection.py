"""One connection of a session; it can be dropped at any moment.

Who may call: `session`. Invariants: what arrives after `drop` never reaches the session, so a
connection the session has left cannot act for it. ZooKeeper: `ClientCnxnSocket`.
"""

import asyncio
from typing import Protocol

from ottla.zookeeper import jute
from ottla.zookeeper.errors import ConnectionLossError

MAX_REPLY_BYTES = 4 * 1024 * 1024
"""As Kafka sets its client's jute.maxbuffer: a long list of topics is larger than 1 MiB."""


class WireOwner(Protocol):
    """What a connection needs of its session."""

    def on_bytes(self, wire: "Wire", data: bytes) -> None: ...

    def on_connection_lost(self, wire: "Wire", reason: str) -> None: ...


class Wire(asyncio.Protocol):
    """One connection's bytes; after `drop` none reaches the session."""

    def __init__(self, session: WireOwner) -> None:
        self._session: WireOwner | None = session
        self.transport: asyncio.Transport | None = None
        self.frames = jute.Frames(MAX_REPLY_BYTES)
        self.awaited: asyncio.Future[bytes] | None = None
        """For the next frame, until the session uses the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._session is not None:
            self._session.on_bytes(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.awaited is not None and not self.awaited.done():
            self.awaited.set_exception(ConnectionLossError("the server closed the connection"))
        if self._session is not None:
            why = str(exc) if exc else "the server closed the connection"
            self._session.on_connection_lost(self, why)

    def drop(self) -> None:
        """Close and forget: nothing that still arrives reaches the session."""
        self._session = None
        if self.transport is not None:
            self.transport.abort()
