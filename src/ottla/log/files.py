"""The real file system: `Files` of `model.ports` over POSIX.

Who may call: `net.runtime` builds one `OsFiles` per process; everybody else gets it as
`world.files`. Invariants: at most `max_open` descriptors are kept; a file whose descriptor was
given up opens it again at its next use, so an `OsFile` costs nothing while it is idle. Only the
event loop's thread opens, closes and gives up descriptors; a worker that fsyncs or reads holds a
duplicate, so a descriptor number can never change its meaning under it. Locks are POSIX record
locks, which is what Java's FileLock takes: a JVM broker and we exclude each other.
"""

# Paths are strings here: building a Path object costs more than the system call.
# ruff: noqa: PTH103, PTH104, PTH108, PTH110, PTH112, PTH116, PTH120, PTH208
import contextlib
import ctypes
import fcntl
import functools
import os
import shutil
import threading
from collections.abc import Callable, Sequence

from ottla.model.ports import Buffer

_IOV_MAX = 1024
_READ_AHEAD = 128 << 10
"""What Linux reads at a time (/sys/block/*/queue/read_ahead_kb) unless it was told otherwise."""
_AHEAD = 4 << 20
"""What is begun to be read beyond what is waited for: who reads on, finds it."""
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
"""Where it is not known, looking is reading: it waits, and finds everything."""
_PROBE = bytearray(1)
_SOME_SPARE_DESCRIPTORS = 256


class OsFile:
    """One file. The descriptor comes and goes; see the room's rule in `OsFiles`."""

    __slots__ = ("_files", "_path", "closed", "fd", "recent")

    def __init__(self, files: "OsFiles", path: str, fd: int) -> None:
        self._files = files
        self._path = path
        self.fd = fd
        self.recent = True
        self.closed = False

    def pread(self, size: int, offset: int) -> bytes:
        fd = self.fd
        if fd < 0:
            fd = self._files.reopen(self)
        self.recent = True
        data = os.pread(fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        have = len(data)
        while have < size:
            more = os.pread(fd, size - have, offset + have)
            if not more:
                break
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def in_memory(self, size: int, offset: int) -> bool:
        """Look at one byte of each piece that the kernel reads ahead at a time, and at the last.

        True where the file system cannot tell.
        """
        fd = self.fd
        if fd < 0:
            fd = self._files.reopen(self)
        self.recent = True
        last = offset + size - 1
        try:
            for position in (*range(offset, last, _READ_AHEAD), last):
                os.preadv(fd, (_PROBE,), position, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # whoever reads is told
        return True

    def bring(self, size: int, offset: int) -> None:
        fd = self._files.duplicate(self)
        if fd < 0:
            return
        try:
            _advise(fd, offset, size + _AHEAD)
            end = offset + size
            while offset < end and (read := os.pread(fd, min(end - offset, _READ_AHEAD), offset)):
                offset += len(read)
        finally:
            os.close(fd)

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        fd = self.fd
        if fd < 0:
            fd = self._files.reopen(self)
        self.recent = True
        if len(parts) == 1:
            part = parts[0]
            size = len(part)
            if os.pwrite(fd, part, offset) == size:
                return size
        return _write_all(fd, parts, offset)

    def size(self) -> int:
        if self.fd < 0:
            self._files.reopen(self)
        return os.fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        if self.fd < 0:
            self._files.reopen(self)
        os.ftruncate(self.fd, size)

    def fsync(self) -> None:
        """Make the file durable; may be called by a worker. Nothing to do once it is closed."""
        fd = self._files.duplicate(self)
        if fd < 0:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close for good; closing twice is fine."""
        self._files.forget(self)

    @property
    def path(self) -> str:
        return self._path


def _advise(fd: int, offset: int, size: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, size, os.POSIX_FADV_WILLNEED)


def _write_all(fd: int, parts: Sequence[Buffer], offset: int) -> int:
    views = [memoryview(part).cast("B") for part in parts if len(part)]
    done = 0
    first = 0
    while first < len(views):
        written = os.pwritev(fd, views[first : first + _IOV_MAX], offset + done)
        done += written
        while written and first < len(views):
            size = len(views[first])
            if written < size:
                views[first] = views[first][written:]
                break
            written -= size
            first += 1
    return done


class OsLock:
    """An exclusive lock on a file, released with the process at the latest."""

    def __init__(self, fd: int, path: str, files: "OsFiles") -> None:
        self._fd = fd
        self._path = path
        self._files = files

    def release(self) -> None:
        if self._fd >= 0:
            self._files.unlocked(self._path)
            os.close(self._fd)
            self._fd = -1


class OsFiles:
    """The operating system's files, with a bound on open descriptors."""

    def __init__(self, max_open: int | None = None) -> None:
        if max_open is None:
            max_open = _raise_descriptor_limit() // 2
        self._max_open = max(max_open, 8)
        self._open: dict[OsFile, None] = {}
        self._guard = threading.Lock()
        self._locked: set[str] = set()
        self._lock_fds: dict[str, int] = {}

    # Descriptors -----------------------------------------------------------------------

    def _admit(self, file: OsFile) -> None:
        self._open[file] = None
        if len(self._open) > self._max_open:
            self._give_up_one()

    def _give_up_one(self) -> None:
        """Close the descriptor that was not used for longest (second chance, cheap to keep)."""
        while True:
            file = next(iter(self._open))
            del self._open[file]
            if file.recent:
                file.recent = False
                self._open[file] = None
                continue
            with self._guard:
                fd, file.fd = file.fd, -1
                os.close(fd)
            return

    def reopen(self, file: OsFile) -> int:
        if file.closed:
            raise ValueError(f"{file.path} is closed")
        fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        file.fd = fd
        file.recent = True
        self._admit(file)
        return fd

    def duplicate(self, file: OsFile) -> int:
        """Return a descriptor of the caller's own, -1 if closed; safe in a worker."""
        with self._guard:
            if file.fd >= 0:
                return os.dup(file.fd)
        if file.closed:
            return -1
        try:
            return os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if file.closed:  # deleted between the question and the opening
                return -1
            raise

    def forget(self, file: OsFile) -> None:
        file.closed = True
        self._open.pop(file, None)
        with self._guard:
            fd, file.fd = file.fd, -1
            if fd >= 0:
                os.close(fd)

    def unlocked(self, path: str) -> None:
        """Forget a lock that is released."""
        self._locked.discard(path)
        self._lock_fds.pop(os.path.dirname(path), None)

    def statistics(self) -> dict[str, int]:
        return {"open": len(self._open), "max_open": self._max_open}

    # Files -----------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        file = OsFile(self, path, os.open(path, flags, 0o644))
        self._admit(file)
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def read_bytes(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read_all(fd)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes) -> None:
        """Give `path` this content, neither atomically nor durably; thread-safe."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write_all(fd, (data,), 0)
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write `path` whole through `path.tmp`, as Kafka's checkpoint files are; thread-safe."""
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write_all(fd, (data,), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        self.fsync_dir(os.path.dirname(path))

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_tree(self, path: str) -> None:
        """Make all below a folder durable with one syncfs, or file by file; thread-safe.

        The kernel tells a descriptor of every error since it was opened (Linux 5.8 and newer),
        so the one to ask is that of the folder's lock, which is as old as our first write.
        """
        folder = os.path.realpath(path)
        fd = self._lock_fds.get(folder, -1)
        syncfs = _find_syncfs() if fd >= 0 else None
        if syncfs is None:
            for parent, _, names in os.walk(folder, topdown=False):
                for name in names:
                    self._sync_path(f"{parent}/{name}")
                self._sync_path(parent)
        elif syncfs(fd):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), path)

    @staticmethod
    def _sync_path(path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # removed meanwhile
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: str) -> OsLock:
        real = os.path.realpath(path)
        if real in self._locked:
            # POSIX record locks do not exclude their own process; two brokers in one could meet.
            raise BlockingIOError(f"{path} is locked by this process")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if isinstance(error, (BlockingIOError, PermissionError)):
                raise BlockingIOError(f"{path} is locked by another process") from error
            raise
        self._locked.add(real)
        self._lock_fds[os.path.dirname(real)] = fd
        return OsLock(fd, real, self)


@functools.cache
def _find_syncfs() -> Callable[[int], int] | None:
    """Return the C library's syncfs, None where there is none."""
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None


def _read_all(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts = []
    have = 0
    while chunk := os.pread(fd, max(size - have, 4096), have):
        parts.append(chunk)
        have += len(chunk)
        if have == size:
            break
    return b"".join(parts)


def _raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; return what may be used."""
    import resource  # noqa: PLC0415 - only POSIX has it, only this function needs it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return max(soft - _SOME_SPARE_DESCRIPTORS, 16)
