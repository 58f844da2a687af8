"""Faults: a broker's network and files, which fail as they are asked to.

Who may call: the hosts of this room. Invariants: without a fault a connection costs nothing more
than a real one, since its transport's methods are the real ones; a fault holds for connections that
exist as for new ones; a dropped connection loses no byte, as TCP does not: what was held back is
sent once the fault is over. Connections between brokers are faulted where they are opened, those of
clients where they are accepted; no request is looked at.
"""

import asyncio
import errno
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import msgspec

from ottla.log.files import OsFile, OsFiles, OsLock
from ottla.model.ports import Buffer, Listener, Network, World, address_text
from ottla.net.runtime import RealNetwork, real_world

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


class Rules(msgspec.Struct, frozen=True):
    """All that is wrong around one broker; `links` by `host:port`."""

    links: dict[str, Link] = {}
    clients: Link | None = None
    disk_full: bool = False


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
        self, layer: "FaultyNetwork", real: asyncio.Transport, protocol: Any, key: str
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

    def set_protocol(self, protocol: Any) -> None:
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
    """A real network with faults; see the module."""

    CLIENTS = "clients"

    def __init__(self, real: Network, clients_port: int) -> None:
        self._real = real
        self._clients_port = clients_port
        self._rules = Rules()
        self._transports: weakref.WeakSet[FaultyTransport] = weakref.WeakSet()
        self._listeners: list[Listener] = []
        self._dead = False
        self.given_up: list[FaultyTransport] = []

    def apply(self, rules: Rules) -> None:
        """Behave so from now on; call it in the loop."""
        self._rules = rules
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
        return self._rules.clients if key == self.CLIENTS else self._rules.links.get(key)

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
        key = self.CLIENTS if port == self._clients_port else ""
        listener = await self._real.listen(host, port, lambda: _Entry(self, factory(), key))
        self._listeners.append(listener)
        return listener


class FaultyFile(OsFile):
    """A file that does not grow while the disk is full."""

    __slots__ = ()

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        files = cast("FaultyFiles", self._files)
        if files.full and offset + sum(map(len, parts)) > self.size():
            files.check_space(self._path)
        return super().pwrite(parts, offset)


class FaultyFiles(OsFiles):
    """The operating system's files, on a disk that can be full, of a process that can die."""

    def __init__(self, max_open: int | None = None) -> None:
        super().__init__(max_open)
        self.full = False
        self._dead = False
        self._locks: list[OsLock] = []

    def check_space(self, path: str) -> None:
        """Raise OSError (ENOSPC) while the disk is full."""
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if create and not self.exists(path):
            self.check_space(path)
        fd = self._opened(path, os.O_RDWR | (os.O_CREAT if create else 0))
        file = FaultyFile(self, path, fd)
        self._admit(file)
        return file

    def write(self, path: str, data: bytes) -> None:
        self.check_space(path)
        super().write(path, data)

    def write_durable(self, path: str, data: bytes) -> None:
        self.check_space(path)
        super().write_durable(path, data)

    def make_dirs(self, path: str) -> None:
        if not self.is_dir(path):
            self.check_space(path)
        super().make_dirs(path)

    def space(self, path: str) -> tuple[int, int]:
        total, free = super().space(path)
        return total, 0 if self.full else free

    def lock(self, path: str) -> OsLock:
        lock = super().lock(path)
        self._locks.append(lock)
        return lock

    def _opened(self, path: str, flags: int) -> int:
        if self._dead:
            raise OSError(errno.EIO, "the broker was killed", path)
        return super()._opened(path, flags)

    def die(self) -> None:
        """Close every descriptor and give up every lock, as the end of a process does."""
        self._dead = True
        for file in list(self._open):
            self.forget(file)
        # Each forgets its descriptor: its number may soon be another file's.
        for lock in self._locks:
            lock.release()
        with self._guard:
            while self._reserve:
                os.close(self._reserve.pop())


class FaultLayer:
    """The world of one broker, with faults in it."""

    def __init__(self, clients_port: int, max_open: int | None = None) -> None:
        self.files = FaultyFiles(max_open)
        self.network = FaultyNetwork(RealNetwork(), clients_port)
        real = real_world(self.files)
        self.world = World(real.clock, real.random, self.files, self.network, real.workers)

    def apply(self, rules: Rules) -> None:
        """Put these faults into force, and no other; call it in the loop."""
        self.files.full = rules.disk_full
        self.network.apply(rules)

    def die(self) -> None:
        """End what a process's death ends; call it in the loop, which is to stop then."""
        self.network.die()
        self.files.die()
