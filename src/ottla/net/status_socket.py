"""Status socket: a Unix socket that gives each connection one document, then closes it.

Paths are text: `pathlib` would take 0.8 MB of each broker, with what it imports. Invariants: the
socket's file belongs to the user who runs the process and no other may connect; nothing that a
reader sends is read; the number of readers and their time are limited, so that none blocks
anything.
"""

# ruff: noqa: PTH101, PTH108, PTH116

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator
from typing import cast

logger = logging.getLogger(__name__)

MAX_READERS = 8
READ_WITHIN_S = 5.0
LONGEST_PATH = 100
"""Unix knows no socket with a longer path (108 bytes on Linux, 104 elsewhere)."""

MAX_BYTES = 4_194_304


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """Yield a path that is short enough: a long one goes through a descriptor of its folder."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield path
        return
    parent, name = os.path.split(path)
    folder = os.open(parent or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)


class _Reader(asyncio.Protocol):
    """One reader: is given the page, and the connection is closed."""

    def __init__(self, page: "StatusSocket") -> None:
        self._page = page
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        stream.pause_reading()
        self._page.readers += 1
        if self._page.readers > MAX_READERS:
            stream.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(READ_WITHIN_S, stream.abort)
        stream.write(self._page.make())
        stream.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._page.readers -= 1
        if self._timer is not None:
            self._timer.cancel()


class StatusSocket:
    """A document at a path, created for each reader."""

    def __init__(self, path: str, make: Callable[[], bytes]) -> None:
        self.make = make
        self.readers = 0
        self._path = path
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Start listening; removes a stale socket. OSError if the path cannot be bound."""
        self._server = await listen(self._path, lambda: _Reader(self))

    def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            self._server = None
            remove_socket(self._path)


async def listen(path: str, factory: Callable[[], asyncio.Protocol]) -> asyncio.AbstractServer:
    """Listen at a path; removes a stale socket. OSError if it cannot be bound."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before it has a name: there is no moment at which another user could connect.
        os.fchmod(listening.fileno(), 0o600)
        with _short(path) as name:
            remove_socket(path)
            listening.bind(name)
        os.chmod(path, 0o600)
        return await asyncio.get_running_loop().create_unix_server(
            factory, sock=listening, backlog=MAX_READERS
        )
    except BaseException:
        listening.close()
        raise


def remove_socket(path: str) -> None:
    """Remove the socket that a process which is gone has left, but no other file."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)


def read(path: str, timeout_s: float, request: bytes = b"") -> bytes:
    """Return the page at a path, or the response to a request there.

    OSError (TimeoutError included) if no process listens there.
    """
    parts = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking, _short(path) as name:
        asking.settimeout(timeout_s)
        asking.connect(name)
        if request:
            asking.sendall(request)
        while part := asking.recv(65_536):
            parts.append(part)
            if sum(map(len, parts)) > MAX_BYTES:
                raise OSError(f"{path}: more than {MAX_BYTES:,} bytes")
    return b"".join(parts)
