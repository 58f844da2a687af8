"""The real file system: `Files` of `model.ports` over POSIX.

Invariants: at most `max_open` descriptors are kept; a file whose descriptor was given up opens it
again at its next use, so an `OsFile` costs nothing while it is idle. Only the event loop's thread
opens, closes and gives up descriptors; a worker that fsyncs or reads holds a duplicate, so a
descriptor number can never change its meaning under it. Locks are POSIX record locks, which is what
Java's FileLock takes: a JVM broker and we exclude each other.
"""

# Paths are strings here: building a Path object costs more than the system call.
# ruff: noqa: PTH103, PTH104, PTH106, PTH108, PTH110, PTH112, PTH114, PTH116, PTH120, PTH208
import contextlib
import ctypes
import errno
import functools
import itertools
import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from ottla.log.results import is_shortage
from ottla.model.descriptors import split_descriptors
from ottla.model.ports import Buffer
from ottla.model.posix import fcntl

_logger = logging.getLogger(__name__)

_IOV_MAX = 1024
_READ_AHEAD = 128 << 10
"""What Linux reads at a time (/sys/block/*/queue/read_ahead_kb) unless it is set otherwise."""
_AHEAD = 4 << 20
"""What is begun to be read beyond what is waited for: who reads on, finds it."""
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
"""Where it is not known, looking is reading: it waits, and finds everything."""
_PROBE = bytearray(1)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_AT_FDCWD = -100
_STATX_MNT_ID_UNIQUE = 0x4000
_STATX_BYTES = 256
_STATX_MNT_ID_AT = 0x90
_REMOVED_FILES = 64
_REMOVED_BYTES = 256 << 20
"""What one step of a removal takes away at most."""
_RESERVED = 16
"""Descriptors held back for files."""
_SAY_EVERY_S = 60.0
_UNSYNCED_LOOKED_AT = 64
"""So many files are passed over, when one has to be given up, because no fsync covers them yet."""
_UNLIMITED = 1 << 20


class OsFile:
    """One file. The descriptor comes and goes; see the room's rule in `OsFiles`."""

    __slots__ = ("_files", "_path", "closed", "doubtful", "fd", "recent", "unsynced")

    def __init__(self, files: "OsFiles", path: str, fd: int) -> None:
        self._files = files
        self._path = path
        self.fd = fd
        self.recent = True
        self.closed = False
        self.unsynced = False
        """whether it was written to since the last fsync began"""
        self.doubtful = False
        """whether a descriptor was closed while that was so"""

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
            return True  # the read gets the error
        return True

    def prefetch(self, size: int, offset: int) -> None:
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

    def reader(self) -> "OsFile | None":
        fd = self._files.duplicate(self)
        return None if fd < 0 else OsFile(self._files, self._path, fd)

    def worker_lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        fd = self.fd
        if fd < 0:
            fd = self._files.reopen(self)
        self.recent = True
        if len(parts) == 1:
            part = parts[0]
            size = len(part)
            if os.pwrite(fd, part, offset) == size:
                self.unsynced = True  # after the write: an fsync under way may not cover it
                return size
        size = _write_all(fd, parts, offset)
        self.unsynced = True
        return size

    def size(self) -> int:
        if self.fd < 0:
            self._files.reopen(self)
        return os.fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        if self.fd < 0:
            self._files.reopen(self)
        os.ftruncate(self.fd, size)
        self.unsynced = True

    def fsync(self) -> None:
        """Make the file durable; may be called by a worker. Nothing to do once it is closed."""
        fd = self._files.duplicate(self)
        if fd < 0:
            return
        # After the opening, which may give this file's own descriptor up, and before the fsync:
        # what is written from here on is for the next one.
        doubtful, self.doubtful, self.unsynced = self.doubtful, False, False
        try:
            os.fsync(fd)
            if doubtful:
                self._files.ask_for_lost_writes(self._path)
        except OSError:
            self.doubtful = self.unsynced = True
            raise
        finally:
            os.close(fd)

    def moved(self, path: str) -> None:
        self._path = path

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
            max_open = split_descriptors(raise_descriptor_limit()).files
        self._max_open = max(max_open, 8)
        self._open: dict[OsFile, None] = {}
        self._guard = threading.Lock()
        self._locked: set[str] = set()
        self._lock_fds: dict[str, int] = {}
        self._thread = threading.get_ident()
        self._reserved = min(_RESERVED, self._max_open // 4)
        self._reserve: list[int] = []
        self._say_s = float("-inf")
        self.shortages = 0
        """how often descriptors had run out"""
        self.doubtful = 0
        """how often a file was given up before its fsync"""

    # Descriptors -----------------------------------------------------------------------

    def _admit(self, file: OsFile) -> None:
        if len(self._open) >= self._max_open:
            self._give_up_one()
        self._open[file] = None
        if len(self._reserve) < self._reserved:
            self._fill_reserve()

    def _give_up_one(self) -> None:
        """Close the descriptor that was not used for longest (second chance, cheap to keep)."""
        looked = 0
        while True:
            file = next(iter(self._open))
            del self._open[file]
            if file.recent:
                file.recent = False
            elif file.unsynced and looked < _UNSYNCED_LOOKED_AT:
                looked += 1
            else:
                break
            self._open[file] = None
        with self._guard:
            fd, file.fd = file.fd, -1
            # An fsync that has just begun clears both; it holds a duplicate, and gets the error
            # itself.
            file.doubtful = file.doubtful or file.unsynced
            os.close(fd)
        self.doubtful += file.doubtful

    def _fill_reserve(self) -> None:
        with contextlib.suppress(OSError), self._guard:
            while len(self._reserve) < self._reserved:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _make_room(self) -> bool:
        """Free a descriptor after they ran out; tell whether it could be done. In any thread."""
        self.shortages += 1
        now_s = time.monotonic()
        if now_s >= self._say_s:
            self._say_s = now_s + _SAY_EVERY_S
            _logger.warning(
                "out of file descriptors: raise the limit (ulimit -n) shortages=%d", self.shortages
            )
        if self._open and threading.get_ident() == self._thread:
            self._give_up_one()
            return True
        with self._guard:
            if not self._reserve:
                return False
            os.close(self._reserve.pop())
        return True

    def _opened(self, path: str, flags: int) -> int:
        """Open, also where descriptors have run out but for the reserve; in any thread."""
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, 0o600)
            except OSError as error:
                if not is_shortage(error) or not self._make_room():
                    raise

    def reopen(self, file: OsFile) -> int:
        if file.closed:
            raise ValueError(f"{file.path} is closed")
        fd = self._opened(file.path, os.O_RDWR)
        file.fd = fd
        file.recent = True
        self._admit(file)
        return fd

    def duplicate(self, file: OsFile) -> int:
        """Return a descriptor of the caller's own, -1 if closed; safe in a worker."""
        while True:
            try:
                with self._guard:
                    if file.fd >= 0:
                        return os.dup(file.fd)
                break
            except OSError as error:
                if not is_shortage(error) or not self._make_room():
                    raise
        if file.closed:
            return -1
        try:
            return self._opened(file.path, os.O_RDWR)
        except FileNotFoundError:
            if file.closed:  # deleted between the question and the opening
                return -1
            raise

    def ask_for_lost_writes(self, path: str) -> None:
        """Raise if any write of the log dir's file system failed; a worker may call it.

        Without a lock on the log dir there is no owner to find.
        """
        folder = os.path.dirname(os.path.realpath(path))
        while folder not in self._lock_fds and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        fd = self._lock_fds.get(folder, -1)
        syncfs = _find_syncfs() if fd >= 0 else None
        if syncfs is not None:
            _call_syncfs(syncfs, fd, path)

    def forget(self, file: OsFile) -> None:
        file.closed = True
        self._open.pop(file, None)
        with self._guard:
            fd, file.fd = file.fd, -1
            if fd >= 0:
                os.close(fd)

    def mutex(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def unlocked(self, path: str) -> None:
        """Forget a lock that is released."""
        self._locked.discard(path)
        self._lock_fds.pop(os.path.dirname(path), None)

    def statistics(self) -> dict[str, int]:
        return {
            "open": len(self._open),
            "max_open": self._max_open,
            "shortages": self.shortages,
            "doubtful": self.doubtful,
        }

    # Files -----------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> OsFile:
        fd = self._opened(path, os.O_RDWR | (os.O_CREAT if create else 0))
        file = OsFile(self, path, fd)
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

    def remove_some(self, path: str) -> bool:
        """Remove at most 64 files and 256 MiB of a file or folder; tell whether all is gone."""
        try:
            with os.scandir(path) as entries:
                some = [entry.path for entry in itertools.islice(entries, _REMOVED_FILES)]
        except NotADirectoryError:
            return self._remove_part(path, _REMOVED_BYTES) >= 0
        except FileNotFoundError:
            return True
        left = _REMOVED_BYTES
        for inner in some:
            if os.path.isdir(inner) and not os.path.islink(inner):
                if not self.remove_some(inner):
                    return False
                continue
            left = self._remove_part(inner, left)
            if left <= 0:
                return False
        if len(some) == _REMOVED_FILES:
            return False
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False  # something came since it was listed
        return True

    @staticmethod
    def _remove_part(path: str, most: int) -> int:
        """Remove a file, or cut off `most` bytes; return how many are left of those, -1 if any is.

        A file system frees a file's blocks in the call that removes it: so many at a time.
        """
        try:
            found = os.lstat(path)
            if min(found.st_size, found.st_blocks * 512) > most:
                os.truncate(path, max(found.st_size - most, 0))
                return -1
            os.unlink(path)
        except FileNotFoundError:
            return most
        return most - min(found.st_size, found.st_blocks * 512)

    def read_bytes(self, path: str) -> bytes:
        fd = self._opened(path, os.O_RDONLY)
        try:
            return _read_all(fd)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes) -> None:
        """Give `path` this content, neither atomically nor durably; thread-safe."""
        fd = self._opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _write_all(fd, (data,), 0)
        finally:
            os.close(fd)

    def write_durable(self, path: str, data: bytes) -> None:
        """Give `path` this content and fsync it, its folder not; thread-safe."""
        fd = self._opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _write_all(fd, (data,), 0)
            os.fsync(fd)
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write `path` whole through `path.tmp`: in any thread, but one at a time."""
        temporary = path + ".tmp"
        self.write_durable(temporary, data)
        os.rename(temporary, path)
        self.fsync_dir(os.path.dirname(path))

    def fsync_dir(self, path: str) -> None:
        fd = self._opened(path, os.O_RDONLY | os.O_DIRECTORY)
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
        else:
            _call_syncfs(syncfs, fd, path)

    def _sync_path(self, path: str) -> None:
        try:
            fd = self._opened(path, os.O_RDONLY)
        except FileNotFoundError:
            return  # removed meanwhile
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def boot_id(self, path: str) -> str:
        """Return Linux's boot id and the folder's unique mount id (Linux 6.8), else "".

        The mount counts too: a device that was taken away and mounted again lost writes that were
        not durable, within one boot.
        """
        mount = _unique_mount_id(path)
        boot = self._boot() if mount else ""
        return f"{boot} {mount}" if boot else ""

    def _boot(self) -> str:
        """Return Linux's boot id, "" where there is none."""
        try:
            return self.read_bytes(_BOOT_ID).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def lock_id(self, path: str) -> str:
        # Inode numbers are given out again; the time of the last change cannot be copied.
        stat = os.stat(path)
        return f"{self._boot()} {stat.st_dev} {stat.st_ino} {stat.st_ctime_ns}"

    def space(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: str) -> OsLock:
        real = os.path.realpath(path)
        if real in self._locked:
            # POSIX record locks do not exclude their own process; two brokers in one could meet.
            raise BlockingIOError(f"{path} is locked by this process")
        fd = self._opened(path, os.O_RDWR | os.O_CREAT)
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


def _call_syncfs(syncfs: Callable[[int], int], fd: int, path: str) -> None:
    if syncfs(fd):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), path)


@functools.cache
def _find_syncfs() -> Callable[[int], int] | None:
    """Return the C library's syncfs, None where there is none."""
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None


def _unique_mount_id(path: str) -> int:
    """Return the id of a folder's mount that no other one gets until the next boot, else 0."""
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return 0
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_MNT_ID_UNIQUE, found):
        return 0
    (mask,) = struct.unpack_from("=I", found)
    if not mask & _STATX_MNT_ID_UNIQUE:
        return 0
    (mount,) = struct.unpack_from("=Q", found, _STATX_MNT_ID_AT)
    return int(mount)


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


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; return what it is then.

    Each partition needs a few. `model.descriptors` says who may take how many.
    """
    import resource  # only POSIX has it, only this function needs it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft
