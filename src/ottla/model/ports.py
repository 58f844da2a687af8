"""Ports: what the product needs of the operating system, as small protocols.

The real ones are in `net.runtime` and `log.files`; the simulator has its own. A `World` is created
once per process (or per simulated node) and passed down; nothing below the broker gets time,
randomness, files or sockets in another way. asyncio's own timers are allowed: the simulator has its
own event loop.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:  # names of types only: deciders may import this module
    import asyncio
    import random

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Two clocks: one for durations, one for what users read. Never mix them (fault F23)."""

    slice_s: float
    """How long work may share the event loop before it yields (`model.time_slices`)."""

    def monotonic(self) -> float:
        """Return seconds since some start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; may jump either way."""
        ...


class File(Protocol):
    """One open file. Positions are absolute; there is no cursor. Errors are OSError."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes at `offset`; fewer only at the end of the file."""
        ...

    def in_memory(self, size: int, offset: int) -> bool:
        """Return whether these bytes can be read without waiting for a disk, as far as is known."""
        ...

    def prefetch(self, size: int, offset: int) -> None:
        """Read these bytes into the page cache; may be called by a worker."""
        ...

    def reader(self) -> "File | None":
        """Return the same file for a worker to read and to close, None if it is closed here.

        A worker calls it.
        """
        ...

    def worker_lock(self) -> AbstractContextManager[object]:
        """Return a new lock for workers to take turns with; never for the event loop."""
        ...

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write all parts one after another at `offset`; return the bytes written (all of them)."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None:
        """Make what was written durable; OSError if any write since the last fsync was lost.

        A worker may call it; nothing to do once the file is closed.
        """
        ...

    def moved(self, path: str) -> None:
        """Note that the file has this path now: it, or its folder, was renamed."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock on a file, held until released or until the process ends."""

    def release(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are absolute strings; errors are OSError as the real ones raise."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless `create`."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        ...

    def size(self, path: str) -> int: ...

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents; fine if it is there."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically rename a file or folder, replacing a file of that name."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; FileNotFoundError if it is not there."""
        ...

    def remove_some(self, path: str) -> bool:
        """Remove a bounded part of a file, or of a folder and all in it; a worker may call it.

        Return whether nothing is left of it; fine if it is not there.
        """
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write `path` whole: temporary file, fsync, rename, fsync of the folder."""
        ...

    def write_durable(self, path: str, data: bytes) -> None:
        """Give `path` this content and fsync it, its folder not; a worker may call it."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Give `path` this content, neither atomically nor durably; a worker may call it."""
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """Return a new lock for workers and the event loop.

        Its holder waits for nothing: no fsync, no read that may be cold, no other lock.
        """
        ...

    def fsync_dir(self, path: str) -> None: ...

    def sync_tree(self, path: str) -> None:
        """Make all that was written below a locked folder durable, at the lowest cost.

        A worker may call it. OSError if any write of the past could not be kept.
        """
        ...

    def boot_id(self, path: str) -> str:
        """Identify the run of the operating system, and the mount, that hold a folder's writes.

        While it stays the same, what a process wrote below the folder is there for the next one,
        also without an fsync. "" where that is not known.
        """
        ...

    def lock_id(self, path: str) -> str:
        """Identify a lock file in this run of the system; OSError if it is not there.

        A copy of it has another id, and it has another one once it was copied over.
        """
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Return (bytes in all, bytes that can still be written) of the volume of a folder."""
        ...

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock; BlockingIOError if another process holds it."""
        ...


class Workers(Protocol):
    """Threads for calls that wait with the GIL released: fsync, cold reads, large codecs."""

    async def run(self, function: Callable[..., T], *args: object) -> T: ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The bound port, also when 0 was asked for."""
        ...

    def close(self) -> None:
        """Stop accepting; connections already made live on."""
        ...


def address_text(host: str, port: int) -> str:
    """Return `host:port`, an IPv6 address between brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Network(Protocol):
    """TCP. Protocols and transports are asyncio's own."""

    async def connect(
        self,
        host: str,
        port: int,
        factory: "Callable[[], asyncio.BaseProtocol]",
        *,
        timeout_s: float,
    ) -> "tuple[asyncio.Transport, asyncio.BaseProtocol]":
        """Connect within `timeout_s`; OSError (TimeoutError included) if that fails."""
        ...

    async def refuses(self, host: str, port: int, *, timeout_s: float) -> bool:
        """Return whether every address of `host` refuses a connection (ECONNREFUSED).

        False for everything else: accepted, no answer within `timeout_s`, unreachable, no address.
        """
        ...

    async def listen(
        self, host: str, port: int, factory: "Callable[[], asyncio.BaseProtocol]"
    ) -> Listener:
        """Listen on one address; OSError (errno EADDRINUSE) if it is taken."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside: one per process, or one per node of a simulation."""

    clock: Clock
    random: "random.Random"
    files: Files
    network: Network
    workers: Workers
