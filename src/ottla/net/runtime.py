"""The real world: clocks, sockets, threads and the event loop.

Invariants: threads exist only behind `Workers` and its queue has a bound; uvloop is used where it
is importable and never required.
"""

import asyncio
import errno
import random
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ottla.model.errors import StartupError
from ottla.model.ports import Files, Listener, World
from ottla.model.posix import fcntl
from ottla.model.time_slices import SLICE_S

T = TypeVar("T")

WORKER_THREADS = 4
WORKER_QUEUE = 64
BACKLOG = 1024


class RealClock:
    """The machine's two clocks."""

    slice_s = SLICE_S
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class RealListener:
    """A listening socket of the running loop."""

    def __init__(self, server: asyncio.AbstractServer, port: int) -> None:
        self._server = server
        self._port = port

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self._server.close()


class RealNetwork:
    """TCP through the running loop; asyncio and uvloop set TCP_NODELAY on every connection."""

    async def connect(
        self,
        host: str,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        timeout_s: float,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            try:
                transport, protocol = await loop.create_connection(factory, host, port)
            except UnicodeError as error:  # "a..b", or a label that is too long
                raise OSError(f"{host!r} is no host name: {error}") from None
            except RuntimeError as error:  # no thread for looking up the name
                raise OSError(errno.EAGAIN, f"{host!r} cannot be looked up: {error}") from None
        return transport, protocol

    async def refuses(self, host: str, port: int, *, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                for family, kind, protocol, _, address in found:
                    if not await _refuses(loop, socket.socket(family, kind, protocol), address):
                        return False
        except (OSError, UnicodeError, RuntimeError):
            # No response in time is an OSError, too; the others: no host name, no thread.
            return False
        return bool(found)

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        listening = await _listening_socket(host, port)
        # Accepted sockets inherit this. asyncio sets it only where it knows the protocol number,
        # which a socket of ours does not carry: responses would wait 40 ms for an acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            server = await asyncio.get_running_loop().create_server(
                factory, sock=listening, backlog=BACKLOG
            )
        except BaseException:
            listening.close()
            raise
        return RealListener(server, listening.getsockname()[1])


async def _refuses(
    loop: asyncio.AbstractEventLoop, probe: socket.socket, address: tuple[object, ...]
) -> bool:
    """Return whether one address refuses a connection; OSError for any other failure."""
    with probe:
        probe.setblocking(False)
        try:
            await loop.sock_connect(probe, address)
        except ConnectionRefusedError:
            return True
    return False


async def _listening_socket(host: str, port: int) -> socket.socket:
    """Bind to one address; no host means every address of the machine, IPv6 included."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
        )
    wanted = host or "0.0.0.0"  # noqa: S104 - asked for by an empty host # nosec B104
    found = await asyncio.get_running_loop().getaddrinfo(wanted, port, type=socket.SOCK_STREAM)
    if not found:
        raise OSError(errno.EADDRNOTAVAIL, f"{host} has no address")
    family, _, _, _, address = found[0]
    return socket.create_server((address[0], port), family=family, backlog=BACKLOG)


def unread_bytes(transport: asyncio.BaseTransport) -> int | None:
    """Return the received bytes of a connection that were not read yet; None if unknown."""
    channel = transport.get_extra_info("socket")
    if channel is None:
        return None
    count = bytearray(4)
    try:
        fcntl.ioctl(channel.fileno(), termios.FIONREAD, count)
    except OSError:
        return None
    # TLS reads ahead of the protocol above it.
    ahead = int(transport.get_extra_info("unread_bytes", 0))
    return int.from_bytes(count, sys.byteorder) + ahead


class RealWorkers:
    """A few threads. Callers wait for a place in the queue, so it cannot grow without bound.

    All threads start at once: later there may be none to be had (a limit of processes), and a pool
    that fails to start one raises although another thread of it does the call.
    """

    def __init__(self, threads: int = WORKER_THREADS, queue: int = WORKER_QUEUE) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ottla-worker")
        started = threading.Event()
        try:
            for _ in range(threads):
                self._pool.submit(started.wait)
        except RuntimeError as error:
            raise StartupError(
                f"worker threads do not start ({error}): raise the limit of processes (ulimit -u, "
                "or the pids limit of the container)"
            ) from None
        finally:
            started.set()
        self._places = asyncio.Semaphore(threads + queue)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        async with self._places:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        """Let the threads end once their current call has."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def real_world(files: Files, *, seed: int | None = None) -> World:
    """Return the operating system's world. `seed` fixes chance only; None takes it from the OS."""
    return World(
        clock=RealClock(),
        random=random.Random(seed),  # noqa: S311 - jitter and picks, nothing secret
        files=files,
        network=RealNetwork(),
        workers=RealWorkers(),
    )


def run(main: Callable[..., Coroutine[None, None, T]], *args: object) -> T:
    """Run a coroutine function to its end on uvloop, or on asyncio's own loop without it."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main(*args))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory, or None where it is not installed."""
    try:
        import uvloop  # optional
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
