"""Faults of a network: connections that drop what is sent, end, or are slow, by address.

Invariants: without a fault a connection costs nothing more than a real one, since its transport's
methods are the real ones; a fault holds for connections that exist as for new ones; a dropped
connection loses no byte, as TCP does not: what was held back is sent once the fault is over.
Connections are faulted where they are opened, those of clients where they are accepted; no request
is looked at.
"""

import asyncio
import errno
import os
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from ottla.model.ports import Buffer, Listener, Network, address_text

POLL_S = 0.02
HELD_BYTES = 1 << 20
"""Of a connection: beyond it its protocol is asked to write no more."""


class Link(msgspec.Struct, frozen=True):
    """What is wrong with the connections to one address, or with those of clients.

    `drop`: nothing arrives in either direction. `cut`: connections end, and none can be made.
    `slow`: what this side sends arrives `delay_s` later, so a response comes that much later.
    """

    mode: Literal["drop", "cut", "slow"]
    delay_s: float = 0.0


class _Silent(asyncio.Protocol):
    """Of a connection that its owner has given up while nothing of it may be seen outside."""

    def eof_received(self) -> bool:
        return True


def _into_nothing(data: object) -> None:
    """Write of a process that is dead."""


class FaultyTransport:
    """A transport between a real one and its protocol. Without a fault, writes go to the former."""

    __slots__ = (
        "__weakref__",
        "_closing",
        "_held",
        "_held_bytes",
        "_layer",
        "_link",
        "_loop",
        "_protocol",
        "_pushed_back",
        "_reading",
        "_real",
        "_timer",
        "key",
        "write",
        "writelines",
    )

    def __init__(
        self,
        layer: "FaultyNetwork",
        real: asyncio.Transport,
        protocol: asyncio.BaseProtocol,
        key: str,
    ) -> None:
        self._layer = layer
        self._loop = asyncio.get_running_loop()
        self._real = real
        self._protocol = protocol
        self.key = key
        self._link: Link | None = None
        self._held: deque[tuple[float, bytes]] = deque()
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reading = True
        self._closing = False
        self._pushed_back = False
        self.write: Callable[[Buffer], None] = real.write
        self.writelines: Callable[[Sequence[Buffer]], None] = real.writelines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    # --- what protocols call ----------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing or self._real.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._held_bytes + self._real.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._real.set_protocol(protocol)

    def pause_reading(self) -> None:
        self._reading = False
        self._real.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        if self._link is None or self._link.mode != "drop":
            self._real.resume_reading()

    def close(self) -> None:
        """Close once what is held has left; the other side learns nothing of it before."""
        if self._closing:
            return
        if self._link is not None and self._link.mode == "drop":
            self._leave_silently()
        elif self._held:
            self._closing = True
        else:
            self._real.close()

    def abort(self) -> None:
        self._forget_held()
        if self._link is not None and self._link.mode == "drop" and not self._closing:
            self._leave_silently()
        else:
            self._real.abort()

    # --- what the layer calls ---------------------------------------------------------------

    def apply(self, link: Link | None) -> None:
        """Behave so from now on; None is as if nothing were in between."""
        before, self._link = self._link, link
        if link == before or self._real.is_closing():
            return
        if link is not None and link.mode == "cut":
            self._forget_held()
            self._real.abort()
            return
        if link is None:
            self._send_due(everything=True)
            self.write = self._real.write
            self.writelines = self._real.writelines
        else:
            self.write = self._hold
            self.writelines = self._hold_all
        if link is not None and link.mode == "drop":
            self._real.pause_reading()
        else:
            if self._reading and before is not None and before.mode == "drop":
                self._real.resume_reading()
            self._send_due()

    def stop_reading(self) -> None:
        """Read nothing while all is dropped."""
        if self._link is not None and self._link.mode == "drop" and not self.is_closing():
            # asyncio of Python 3.11.2 (Debian 12) begins to read though it was paused before.
            self._real.resume_reading()
            self._real.pause_reading()

    def end_with_the_process(self) -> None:
        """End the connection as the kernel does when a process dies: its protocol sees nothing."""
        self._forget_held()
        self._closing = True
        self.write = self.writelines = _into_nothing
        self._real.set_protocol(_Silent())
        self._real.abort()

    # --- inside -----------------------------------------------------------------------------

    def _leave_silently(self) -> None:
        self._closing = True
        self._layer.given_up.append(self)
        self._real.set_protocol(_Silent())
        self._loop.call_soon(self._protocol.connection_lost, None)

    def _hold(self, data: Buffer) -> None:
        if self._closing:
            return
        assert self._link is not None
        self._held.append((self._loop.time() + self._link.delay_s, bytes(data)))
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES and not self._pushed_back:
            self._pushed_back = True
            self._protocol.pause_writing()
        self._send_due()

    def _hold_all(self, parts: Sequence[Buffer]) -> None:
        self._hold(b"".join(parts))

    def _forget_held(self) -> None:
        self._held.clear()
        self._held_bytes = 0

    def _send_due(self, *, everything: bool = False) -> None:
        """Send what is due; it is all due once the fault is over, nothing while it drops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._link is not None and self._link.mode == "drop":
            return
        now_s = self._loop.time()
        while self._held and (everything or self._held[0][0] <= now_s):
            _, data = self._held.popleft()
            self._held_bytes -= len(data)
            self._real.write(data)
        if self._held:
            self._timer = self._loop.call_at(self._held[0][0], self._send_due)
        elif self._closing:
            self._real.close()
        if self._pushed_back and self._held_bytes <= HELD_BYTES // 2:
            self._pushed_back = False
            if not self._closing:
                self._protocol.resume_writing()


class _Entry(asyncio.Protocol):
    """The first protocol of a connection: puts the faulty transport in between, and is gone."""

    def __init__(self, layer: "FaultyNetwork", inner: asyncio.BaseProtocol, key: str) -> None:
        self._layer = layer
        self.inner = inner
        self._key = key
        self.transport: FaultyTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        real = cast("asyncio.Transport", transport)
        faulty = self.transport = FaultyTransport(self._layer, real, self.inner, self._key)
        real.set_protocol(self.inner)
        self.inner.connection_made(cast("asyncio.BaseTransport", faulty))
        self._layer.admit(faulty)


class FaultyNetwork:
    """A real network with faults; see the module. `clients_port`: of a listener for clients."""

    CLIENTS = "clients"

    def __init__(self, real: Network, clients_port: int | None = None) -> None:
        self._real = real
        self._clients_port = clients_port
        self._links: Mapping[str, Link] = {}
        self._of_clients: Link | None = None
        self._transports: weakref.WeakSet[FaultyTransport] = weakref.WeakSet()
        self._listeners: list[Listener] = []
        self._dead = False
        self.given_up: list[FaultyTransport] = []

    def apply(self, links: Mapping[str, Link], clients: Link | None = None) -> None:
        """Behave so from now on; call it in the loop. `links`: by `host:port`."""
        self._links, self._of_clients = links, clients
        given_up, self.given_up = self.given_up, []
        for transport in [*self._transports, *given_up]:
            transport.apply(self._link(transport.key))
        self.given_up += [t for t in given_up if self._link(t.key) is not None]

    def admit(self, transport: FaultyTransport) -> None:
        """Take part in what happens to this connection."""
        if self._dead:
            transport.end_with_the_process()
            return
        self._transports.add(transport)
        link = self._link(transport.key)
        transport.apply(link)
        if link is not None:  # a transport begins to read only after this call
            asyncio.get_running_loop().call_soon(transport.stop_reading)

    def die(self) -> None:
        """End every connection and listening socket as the death of a process does."""
        self._dead = True
        for listener in self._listeners:
            listener.close()
        for transport in [*self._transports, *self.given_up]:
            transport.end_with_the_process()

    def _link(self, key: str) -> Link | None:
        return self._of_clients if key == self.CLIENTS else self._links.get(key)

    async def _reach(self, key: str) -> None:
        """Wait as long as nothing gets through; OSError where connections are cut."""
        while link := self._link(key):
            if link.mode == "cut":
                raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
            if link.mode == "slow":
                await asyncio.sleep(link.delay_s)
                return
            await asyncio.sleep(POLL_S)

    async def connect(
        self,
        host: str,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        timeout_s: float,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        key = address_text(host, port)
        async with asyncio.timeout(timeout_s):
            await self._reach(key)
            if self._dead:
                raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))
            _, found = await self._real.connect(
                host, port, lambda: _Entry(self, factory(), key), timeout_s=timeout_s
            )
        entry = cast("_Entry", found)
        return cast("asyncio.Transport", entry.transport), entry.inner

    async def refuses(self, host: str, port: int, *, timeout_s: float) -> bool:
        """Return what the real network says; a connection that is cut or dropped is no refusal."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._reach(address_text(host, port))
        except OSError:
            return False
        return await self._real.refuses(host, port, timeout_s=timeout_s)

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        if self._clients_port is None:  # no fault is for what is accepted
            return await self._real.listen(host, port, factory)
        key = self.CLIENTS if port == self._clients_port else ""
        listener = await self._real.listen(host, port, lambda: _Entry(self, factory(), key))
        self._listeners.append(listener)
        return listener
