"""A node's simulated disk: what survives a crash, and every way a disk fails.

Who may call: `world` and `nemesis` hold the `SimDisk`, which outlives the node; nodes see only
their `SimFiles`, the Files port of one incarnation. Invariants: what was fsynced survives any
crash; what was not may be lost, kept, or torn at a page, by seed (faults F5 and F19); renames,
creations and removals survive in their order, as a journalling file system keeps them, and an
fsync of anything makes all earlier ones durable. A dead incarnation's files refuse everything.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.model.ports import Buffer, File

PAGE_BYTES = 4096
SPACIOUS_BYTES = 1 << 40
"""The size of a disk without a capacity of its own."""


class Inode:
    """A file's bytes: as the program sees them, and as the platter has them."""

    __slots__ = ("data", "dirty", "durable")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: list[tuple[int, bytes | None]] = []
        """Since the last fsync: (offset, bytes written) or (size, None) for a truncation."""

    def write(self, offset: int, data: bytes) -> None:
        _apply(self.data, offset, data)
        self.dirty.append((offset, data))

    def truncate(self, size: int) -> None:
        _apply(self.data, size, None)
        self.dirty.append((size, None))

    def sync(self) -> None:
        for offset, data in self.dirty:
            _apply(self.durable, offset, data)
        self.dirty.clear()

    def lose(self, rng: random.Random) -> int:
        """Fall back to what the platter has after a power loss; return the lost operations."""
        operations = self.dirty
        kept, torn = _survivors(operations, rng)
        for offset, data in operations[:kept]:
            _apply(self.durable, offset, data)
        if torn:
            offset, data = operations[kept]
            if data is not None:
                _apply(self.durable, offset, _torn(offset, data, rng))
        self.data = bytearray(self.durable)
        lost = len(operations) - kept
        self.dirty = []
        return lost


def _apply(target: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        if offset < len(target):
            del target[offset:]
        else:
            target.extend(bytes(offset - len(target)))
        return
    if offset > len(target):
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


def _survivors(operations: list[tuple[int, bytes | None]], rng: random.Random) -> tuple[int, bool]:
    """Return how many unsynced operations reached the platter, and whether the next one half."""
    if not operations:
        return 0, False
    fate = rng.random()
    if fate < 0.3:
        return 0, False
    if fate < 0.5:
        return len(operations), False
    kept = rng.randrange(len(operations))
    return kept, rng.random() < 0.7


def _torn(offset: int, data: bytes, rng: random.Random) -> bytes:
    """Return the start of a write, cut at a page of the file or, rarely, anywhere."""
    cut = rng.randrange(len(data) + 1)
    if rng.random() < 0.7:
        cut = max(0, (offset + cut) // PAGE_BYTES * PAGE_BYTES - offset)
    return data[:cut]


@dataclass(slots=True)
class DiskFault:
    """Operations (`read`, `write`, `fsync`, `open`) under a path fail with an errno.

    `torn`: a failing write leaves its first half behind.
    """

    prefix: str
    operations: frozenset[str]
    error: int
    left: int = 1 << 62
    torn: bool = False


class SimDisk:
    """One node's disk. Directories are paths in a set, files are inodes by path."""

    def __init__(self) -> None:
        self.inodes: dict[str, Inode] = {}
        self.folders: set[str] = {"/"}
        self.capacity_bytes: int | None = None
        self.locks: dict[str, SimFiles] = {}
        self.faults: list[DiskFault] = []
        self.slow_fsync: Callable[[str], None] | None = None
        self.writes = 0
        self.fsyncs = 0
        self._journal: list[Callable[[], None]] = []
        """Undo steps of the directory changes that are not durable yet, oldest first."""

    # Faults.

    def fail(
        self,
        prefix: str,
        operations: Sequence[str],
        error: int = errno.EIO,
        *,
        times: int = 1 << 62,
        torn: bool = False,
    ) -> None:
        """Make operations under a path fail (faults F17 and F18)."""
        self.faults.append(DiskFault(prefix, frozenset(operations), error, times, torn))

    def mend(self) -> None:
        """Take every fault and the capacity limit away."""
        self.faults.clear()
        self.capacity_bytes = None

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Damage one bit where it lies (fault F20)."""
        inode = self.inodes[path]
        inode.data[offset] ^= 1 << bit
        if offset < len(inode.durable):
            inode.durable[offset] ^= 1 << bit

    def power_loss(self, rng: random.Random) -> int:
        """Drop what was not durable, by seed; return how many operations were lost."""
        undone = rng.randint(0, len(self._journal)) if rng.random() < 0.5 else 0
        for undo in reversed(self._journal[len(self._journal) - undone :]):
            undo()
        self._journal.clear()
        lost = undone
        for path in sorted(self.inodes):
            lost += self.inodes[path].lose(rng)
        return lost

    def wipe(self, folder: str = "/") -> None:
        """Put an empty disk in place of the one mounted at `folder` (fault F11)."""
        inside = folder.rstrip("/") + "/"
        for path in [p for p in self.inodes if p.startswith(inside)]:
            del self.inodes[path]
        self.folders = {f for f in self.folders if not f.startswith(inside)} | {"/"}
        self._journal.clear()

    def check(self, operation: str, path: str) -> None:
        """Raise what a fault says about this operation."""
        fault = self.fault(operation, path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)

    def fault(self, operation: str, path: str) -> DiskFault | None:
        """Return the fault that hits this operation, and count it."""
        for fault in self.faults:
            if operation in fault.operations and path.startswith(fault.prefix) and fault.left > 0:
                fault.left -= 1
                return fault
        return None

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self.inodes.values())

    def check_room(self, path: str, more_bytes: int) -> None:
        """Raise ENOSPC where a write would pass the capacity."""
        if self.capacity_bytes is None:
            return
        if self.used_bytes + more_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def commit(self) -> None:
        """Make all directory changes so far durable."""
        self._journal.clear()

    def sync(self, inode: Inode) -> None:
        self.fsyncs += 1
        inode.sync()
        self.commit()

    # Directory changes, each with its undo.

    def add(self, path: str) -> Inode:
        inode = self.inodes[path] = Inode()
        self._journal.append(lambda: self._drop(path, inode))
        return inode

    def _drop(self, path: str, inode: Inode) -> None:
        if self.inodes.get(path) is inode:
            del self.inodes[path]

    def remove(self, path: str) -> None:
        inode = self.inodes.pop(path)
        self._journal.append(lambda: self.inodes.__setitem__(path, inode))

    def add_folder(self, path: str) -> None:
        self.folders.add(path)
        self._journal.append(lambda: self.folders.discard(path))

    def remove_folder(self, path: str) -> None:
        self.folders.discard(path)
        self._journal.append(lambda: self.folders.add(path))

    def move(self, source: str, target: str) -> None:
        """Rename a file, or a folder with all in it."""
        if source in self.inodes:
            replaced = self.inodes.get(target)
            inode = self.inodes.pop(source)
            self.inodes[target] = inode

            def undo() -> None:
                if replaced is None:
                    self.inodes.pop(target, None)
                else:
                    self.inodes[target] = replaced
                self.inodes[source] = inode

            self._journal.append(undo)
        else:
            self._move_folder(source, target)
            self._journal.append(lambda: self._move_folder(target, source))

    def _move_folder(self, source: str, target: str) -> None:
        inside = source + "/"
        for path in [p for p in self.inodes if p.startswith(inside)]:
            self.inodes[target + path[len(source) :]] = self.inodes.pop(path)
        for path in sorted(p for p in self.folders if p == source or p.startswith(inside)):
            self.folders.discard(path)
            self.folders.add(target + path[len(source) :])

    def children(self, path: str) -> list[str]:
        inside = path.rstrip("/") + "/"
        names = {p[len(inside) :].split("/", 1)[0] for p in self.inodes if p.startswith(inside)}
        names |= {p[len(inside) :].split("/", 1)[0] for p in self.folders if p.startswith(inside)}
        return sorted(names - {""})


class SimFile:
    """An open file of one incarnation."""

    __slots__ = ("_files", "_inode", "_path", "closed")

    def __init__(self, files: "SimFiles", path: str, inode: Inode) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        self.closed = False

    @property
    def path(self) -> str:
        return self._path

    def _disk(self) -> SimDisk:
        disk = self._files.alive(self._path)
        if self.closed:
            raise ValueError(f"{self._path} is closed")
        return disk

    def _check(self, operation: str) -> SimDisk:
        disk = self._disk()
        disk.check(operation, self._path)
        return disk

    def pread(self, size: int, offset: int) -> bytes:
        self._check("read")
        return bytes(self._inode.data[offset : offset + size])

    def in_memory(self, size: int, offset: int) -> bool:
        del size, offset
        return True

    def bring(self, size: int, offset: int) -> None:
        """Nothing: all of it is in memory."""

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        disk = self._disk()
        data = b"".join(parts)
        fault = disk.fault("write", self._path)
        if fault is not None:
            if fault.torn:
                self._inode.write(offset, data[: len(data) // 2])
            raise OSError(fault.error, os.strerror(fault.error), self._path)
        end = offset + len(data)
        disk.check_room(self._path, max(0, end - len(self._inode.data)))
        disk.writes += 1
        self._inode.write(offset, data)
        return len(data)

    def size(self) -> int:
        self._check("stat")
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._check("write")
        self._inode.truncate(size)

    def fsync(self) -> None:
        disk = self._check("fsync")
        if disk.slow_fsync is not None:
            disk.slow_fsync(self._path)
        disk.sync(self._inode)

    def close(self) -> None:
        self.closed = True


class SimLock:
    """A lock file held by one incarnation."""

    def __init__(self, files: "SimFiles", path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        locks = self._files.disk.locks
        if locks.get(self._path) is self._files:
            del locks[self._path]


class SimFiles:
    """The Files port of one incarnation of a node."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.dead = False

    def kill(self) -> None:
        """End the incarnation: its locks are free, its files refuse everything."""
        self.dead = True
        for path in [p for p, owner in self.disk.locks.items() if owner is self]:
            del self.disk.locks[path]

    def alive(self, path: str) -> SimDisk:
        """Return the disk; OSError for a process that is dead."""
        if self.dead:
            raise OSError(errno.EIO, "this process is dead", path)
        return self.disk

    def _need_folder(self, path: str) -> None:
        parent = path.rsplit("/", 1)[0] or "/"
        if parent in self.disk.inodes:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if parent not in self.disk.folders:
            raise _missing(path)

    def open(self, path: str, *, create: bool = False) -> File:
        path = _clean(path)
        disk = self.alive(path)
        disk.check("open", path)
        if path in disk.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        inode = disk.inodes.get(path)
        if inode is None:
            if not create:
                raise _missing(path)
            self._need_folder(path)
            disk.check_room(path, 1)
            inode = disk.add(path)
        return SimFile(self, path, inode)

    def exists(self, path: str) -> bool:
        path = _clean(path)
        disk = self.alive(path)
        return path in disk.inodes or path in disk.folders

    def is_dir(self, path: str) -> bool:
        path = _clean(path)
        return path in self.alive(path).folders

    def listdir(self, path: str) -> list[str]:
        path = _clean(path)
        disk = self.alive(path)
        disk.check("read", path)
        if path in disk.inodes:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if path not in disk.folders:
            raise _missing(path)
        return disk.children(path)

    def size(self, path: str) -> int:
        path = _clean(path)
        disk = self.alive(path)
        if path not in disk.inodes:
            raise _missing(path)
        return len(disk.inodes[path].data)

    def make_dirs(self, path: str) -> None:
        path = _clean(path)
        disk = self.alive(path)
        disk.check("write", path)
        parts = path.strip("/").split("/")
        for end in range(1, len(parts) + 1):
            folder = "/" + "/".join(parts[:end])
            if folder in disk.inodes:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder)
            if folder not in disk.folders:
                disk.add_folder(folder)

    def rename(self, source: str, target: str) -> None:
        source, target = _clean(source), _clean(target)
        disk = self.alive(source)
        disk.check("write", source)
        if not self.exists(source):
            raise _missing(source)
        self._need_folder(target)
        if source in disk.folders:
            if target in disk.inodes:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), target)
            if target in disk.folders and disk.children(target):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        elif target in disk.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        disk.move(source, target)

    def remove(self, path: str) -> None:
        path = _clean(path)
        disk = self.alive(path)
        disk.check("write", path)
        if path in disk.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if path not in disk.inodes:
            raise _missing(path)
        disk.remove(path)

    def remove_tree(self, path: str) -> None:
        path = _clean(path)
        disk = self.alive(path)
        disk.check("write", path)
        inside = path + "/"
        for inner in [p for p in disk.inodes if p.startswith(inside)]:
            disk.remove(inner)
        for folder in sorted(p for p in disk.folders if p == path or p.startswith(inside)):
            disk.remove_folder(folder)

    def read_bytes(self, path: str) -> bytes:
        path = _clean(path)
        disk = self.alive(path)
        disk.check("read", path)
        if path in disk.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if path not in disk.inodes:
            raise _missing(path)
        return bytes(disk.inodes[path].data)

    def write_atomic(self, path: str, data: bytes) -> None:
        path = _clean(path)
        draft = path + ".tmp"
        file = self.open(draft, create=True)
        file.truncate(0)
        file.pwrite([data], 0)
        file.fsync()
        file.close()
        self.rename(draft, path)
        self.fsync_dir(path.rsplit("/", 1)[0] or "/")

    def write(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.pwrite([data], 0)
        file.close()

    def sync_tree(self, path: str) -> None:
        path = _clean(path)
        disk = self.alive(path)
        disk.check("fsync", path)
        for inner in sorted(p for p in disk.inodes if p.startswith(path + "/")):
            disk.check("fsync", inner)
            disk.sync(disk.inodes[inner])
        disk.commit()

    def fsync_dir(self, path: str) -> None:
        path = _clean(path)
        disk = self.alive(path)
        disk.check("fsync", path)
        if path not in disk.folders:
            raise _missing(path)
        disk.commit()

    def space(self, path: str) -> tuple[int, int]:
        disk = self.alive(path)
        disk.check("stat", path)
        total = SPACIOUS_BYTES if disk.capacity_bytes is None else disk.capacity_bytes
        return total, max(0, total - disk.used_bytes)

    def lock(self, path: str) -> SimLock:
        path = _clean(path)
        disk = self.alive(path)
        if path in disk.locks:
            raise BlockingIOError(errno.EAGAIN, "held by another process", path)
        if path not in disk.inodes:
            self.open(path, create=True).close()
        disk.locks[path] = self
        return SimLock(self, path)


def _clean(path: str) -> str:
    """Return the path without a slash at its end or two in a row; it must be absolute."""
    assert path.startswith("/"), f"not absolute: {path}"
    return "/" + "/".join(part for part in path.split("/") if part and part != ".")


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
