"""A node's simulated disk: what survives a crash, and every way a disk fails.

Invariants: what was fsynced survives any crash; what was not may be lost or kept, page by page, by
seed (`pages`; faults F5 and F19); renames, creations and removals survive in their order, as a
journalling file system keeps them, and an fsync of anything makes all earlier ones durable. A
worker's job gives the loop a turn before each of its operations. A dead incarnation's files refuse
everything.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from ottla.model.ports import Buffer, File
from ottla.sim.costs import FREE, Costs
from ottla.sim.pages import Inode

READ_AHEAD_BYTES = 128 << 10
SPACIOUS_BYTES = 1 << 40
"""The size of a disk without a capacity of its own."""


@dataclass(slots=True)
class DiskFault:
    """Operations (`read`, `write`, `fsync`, `open`) under a path fail with an errno.

    `torn`: a failing write leaves its first half behind. `drops`: a failing fsync loses what it
    was to write, and the next one does not tell of it.
    """

    prefix: str
    operations: frozenset[str]
    error: int
    left: int = 1 << 62
    torn: bool = False
    drops: bool = False


@dataclass(frozen=True, slots=True)
class DiskCopy:
    """A whole disk as programs saw it at one moment: a snapshot of a volume, a backup, a clone."""

    folders: frozenset[str]
    files: dict[str, bytes]


class DiedError(BaseException):
    """The process ended at this file operation."""


class Job(Protocol):
    """A worker's call that is running now."""

    mutexes: int
    """How many it holds: the event loop may want them, so it does not stop meanwhile."""

    def hand_over(self, cost_s: float) -> None:
        """Let others run before the next operation, which takes so long."""

    def wait(self) -> None:
        """Let others run for a while: what the call needs is taken."""


class SimDisk:
    """One node's disk. Directories are paths in a set, files are inodes by path."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        """Tells its inodes from those of other disks."""
        self._last_inode = 0
        self.inodes: dict[str, Inode] = {}
        self.folders: set[str] = {"/"}
        self.capacity_bytes: int | None = None
        self.locks: dict[str, SimFiles] = {}
        self.faults: list[DiskFault] = []
        self.slow_fsync: Callable[[str], None] | None = None
        self.power_losses = 0
        self.replaced = 0
        """How often an empty or another disk took its place."""
        self.writes = 0
        self.fsyncs = 0
        self.changes = 0
        """Counts files that came, went and were renamed."""
        self.in_order = False
        """Whether a power loss keeps what was written in its order."""
        self.chance: random.Random | None = None
        """What pages in memory depend on, with the next; None: what is read stays in memory."""
        self.evicted_share = 0.0
        """How often what is looked for is not in memory any more."""
        self.on_replaced: Callable[[str, bytes, bytes], object] | None = None
        """Hears of a file that is renamed over another: path, what was there, what is."""
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
        drops: bool = False,
    ) -> DiskFault:
        """Make operations under a path fail (faults F17 and F18)."""
        fault = DiskFault(prefix, frozenset(operations), error, times, torn, drops)
        self.faults.append(fault)
        return fault

    def mend(self) -> None:
        """Take every fault and the capacity limit away."""
        self.faults.clear()
        self.capacity_bytes = None

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Damage one bit where it lies (fault F20)."""
        inode = self.inodes[path]
        inode.changes += 1
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
            lost += self.inodes[path].lose(rng, in_order=self.in_order)
        self.power_losses += 1
        self.changes += 1
        self.evict()
        return lost

    def undo_until(self, reached: Callable[[], bool]) -> None:
        """Undo directory changes that are not durable, the newest first: a power loss may."""
        while self._journal and not reached():
            self._journal.pop()()

    def evict(self) -> None:
        """Empty the page cache, as a restarted machine or a crowded one has it."""
        for inode in self.inodes.values():
            inode.evict()

    def wipe(self, folder: str = "/") -> None:
        """Put an empty disk in place of the one mounted at `folder` (fault F11)."""
        inside = folder.rstrip("/") + "/"
        for path in [p for p in self.inodes if p.startswith(inside)]:
            del self.inodes[path]
        self.folders = {f for f in self.folders if not f.startswith(inside)} | {"/"}
        self.changes += 1
        self.replaced += 1
        self._journal.clear()

    def copy(self) -> DiskCopy:
        """Return all that is there, synced or not (F51 to F53)."""
        files = {path: bytes(inode.data) for path, inode in self.inodes.items()}
        return DiskCopy(frozenset(self.folders), files)

    def restore(self, copy: DiskCopy) -> None:
        """Have what a copy holds and nothing else, in files of their own, all of it durable."""
        self.wipe()
        self.folders |= copy.folders
        for path, data in sorted(copy.files.items()):
            inode = self.add(path)
            inode.data += data
            inode.durable += data
            inode.evict()
        self.commit()

    def exchange(self, other: "SimDisk") -> None:
        """Have what the other disk holds, and it what this one does: cables were mixed up."""
        self.inodes, other.inodes = other.inodes, self.inodes
        self.folders, other.folders = other.folders, self.folders
        self.commit()
        other.commit()
        most = max(self.changes, other.changes)  # readers that cache must read again
        self.changes, other.changes = most + 1, most + 2

    def check(self, operation: str, path: str) -> None:
        """Raise what a fault says about this operation; disks of tests die in `fault`."""
        if (fault := self.fault(operation, path)) is not None:
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

    def sync_one(self, path: str, inode: Inode) -> None:
        """Make one file durable, or fail as a fault says."""
        fault = self.fault("fsync", path)
        if fault is not None:
            if fault.drops:
                inode.fail_sync()
            raise OSError(fault.error, os.strerror(fault.error), path)
        if self.slow_fsync is not None:
            self.slow_fsync(path)
        self.fsyncs += 1
        inode.sync()
        self.commit()

    # Directory changes, each with its undo.

    def add(self, path: str) -> Inode:
        self.changes += 1
        self._last_inode += 1
        inode = self.inodes[path] = Inode(self._last_inode)
        self._journal.append(lambda: self._drop(path, inode))
        return inode

    def _drop(self, path: str, inode: Inode) -> None:
        if self.inodes.get(path) is inode:
            del self.inodes[path]
            self.changes += 1

    def remove(self, path: str) -> None:
        self.changes += 1
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
        self.changes += 1
        if source in self.inodes:
            replaced = self.inodes.get(target)
            inode = self.inodes.pop(source)
            self.inodes[target] = inode
            if replaced is not None and self.on_replaced is not None:
                self.on_replaced(target, bytes(replaced.data), bytes(inode.data))

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
        self.changes += 1
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


class SimWorkerLock:
    """A lock for which a worker waits in simulated time: a real one would stop the simulation."""

    def __init__(self, files: "SimFiles") -> None:
        self._files = files
        self._held = False

    def __enter__(self) -> None:
        while self._held:
            assert self._files.job is not None, "the event loop never takes a lock of workers"
            self._files.job.wait()
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False


class SimMutex:
    """A mutex of workers and the event loop: a worker's call does not stop while it holds one."""

    __slots__ = ("_files", "_held", "_job")

    def __init__(self, files: "SimFiles") -> None:
        self._files = files
        self._held = False
        self._job: Job | None = None

    def __enter__(self) -> None:
        assert not self._held, "a call stopped while it held a mutex, or takes it twice"
        self._held = True
        job = self._job = self._files.job
        if job is not None:
            job.mutexes += 1

    def __exit__(self, *_: object) -> None:
        self._held = False
        if self._job is not None:
            self._job.mutexes -= 1


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
        files, inode = self._files, self._inode
        costs = files.costs
        cost_s = costs.file_s + min(costs.read_byte_s * size, costs.read_most_s)
        if inode.cold and not inode.is_warm(offset, size):
            cost_s += costs.seek_s
        files.step(cost_s)
        self._check("read")
        if inode.cold:
            inode.warm(offset, size)
        return bytes(inode.data[offset : offset + size])

    def in_memory(self, size: int, offset: int) -> bool:
        disk, inode = self._files.disk, self._inode
        if disk.chance is not None and disk.chance.random() < disk.evicted_share:
            inode.evict()
        return not inode.cold or inode.is_warm(offset, size)

    def prefetch(self, size: int, offset: int) -> None:
        """Read these bytes and some more, as the kernel reads ahead."""
        self._files.step(self._files.costs.seek_s)
        if self.closed:
            return
        self._check("read")
        self._inode.warm(offset, size + READ_AHEAD_BYTES)

    def reader(self) -> "SimFile | None":
        return None if self.closed else SimFile(self._files, self._path, self._inode)

    def worker_lock(self) -> "SimWorkerLock":
        return SimWorkerLock(self._files)

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        files = self._files
        data = b"".join(parts)
        files.step(files.costs.file_s + files.costs.write_byte_s * len(data))
        disk = self._disk()
        if disk.faults and (fault := disk.fault("write", self._path)) is not None:
            if fault.torn:
                self._inode.write(offset, data[: len(data) // 2])
            raise OSError(fault.error, os.strerror(fault.error), self._path)
        end = offset + len(data)
        if disk.capacity_bytes is not None:
            disk.check_room(self._path, max(0, end - len(self._inode.data)))
        disk.writes += 1
        self._inode.write(offset, data)
        return len(data)

    def size(self) -> int:
        self._check("stat")
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._files.step(self._files.costs.file_s)
        self._check("write")
        self._inode.truncate(size)

    def fsync(self) -> None:
        """Make the file durable. Nothing to do once it is closed."""
        self._files.step(self._files.costs.fsync_s)
        disk = self._files.alive(self._path)
        if self.closed:
            return
        disk.check("open", self._path)  # of a descriptor of the worker's own
        disk.sync_one(self._path, self._inode)

    def moved(self, path: str) -> None:
        self._path = path

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

    def __init__(
        self,
        disk: SimDisk,
        costs: Costs = FREE,
        spend: Callable[[float], None] | None = None,
    ) -> None:
        self.disk = disk
        self.costs = costs
        self.dead = False
        self.job: Job | None = None
        """The worker's call in which the present operation happens."""
        self.last_operations: int | None = None
        """After so many operations the process ends, in the middle of what it does."""
        self.ended: Callable[[], None] = lambda: None
        """Called when it does so in a callback; a worker's call notices on its own."""
        self._spend = spend

    def kill(self) -> None:
        """End the incarnation: its locks are free, its files refuse everything."""
        self.dead = True
        self.last_operations = None
        for path in [p for p, owner in self.disk.locks.items() if owner is self]:
            del self.disk.locks[path]

    def step(self, cost_s: float) -> None:
        """Come to the next operation: time passes, a job lets others run, a process may end."""
        job = self.job
        if job is not None:
            job.hand_over(cost_s)
        elif self._spend is not None:
            self._spend(cost_s)
        if self.last_operations is not None:
            self.last_operations -= 1
            if self.last_operations < 0:
                self.last_operations = None
                if job is None:
                    self.ended()
                raise DiedError("the process ended at a file operation")

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
        self.step(self.costs.folder_s)
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
        self.step(self.costs.folder_s)
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
        self.step(self.costs.folder_s)
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
        self.step(self.costs.folder_s)
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
        self.step(self.costs.folder_s)
        disk = self.alive(path)
        disk.check("write", path)
        if path in disk.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if path not in disk.inodes:
            raise _missing(path)
        disk.remove(path)

    def remove_some(self, path: str) -> bool:
        """Remove one file, or one folder that is empty."""
        path = _clean(path)
        self.step(self.costs.folder_s)
        disk = self.alive(path)
        disk.check("write", path)
        inside = path + "/"
        files = sorted(p for p in disk.inodes if p == path or p.startswith(inside))
        if files:
            if self.job is None and self._spend is not None:
                self._spend(self.costs.unlink_byte_s * len(disk.inodes[files[0]].data))
            disk.remove(files[0])
            return files == [path]
        folders = sorted(p for p in disk.folders if p == path or p.startswith(inside))
        if folders:
            disk.remove_folder(folders[-1])
        return len(folders) <= 1

    def read_bytes(self, path: str) -> bytes:
        path = _clean(path)
        self.step(self.costs.folder_s)
        disk = self.alive(path)
        disk.check("open", path)
        disk.check("read", path)
        if path in disk.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if path not in disk.inodes:
            raise _missing(path)
        inode = disk.inodes[path]
        inode.cold.clear()
        return bytes(inode.data)

    def write_durable(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.pwrite([data], 0)
        file.fsync()
        file.close()

    def write_atomic(self, path: str, data: bytes) -> None:
        path = _clean(path)
        self.write_durable(path + ".tmp", data)
        self.rename(path + ".tmp", path)
        self.fsync_dir(path.rsplit("/", 1)[0] or "/")

    def write(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.pwrite([data], 0)
        file.close()

    def sync_tree(self, path: str) -> None:
        path = _clean(path)
        disk = self.alive(path)
        inside = path + "/"
        # As syncfs: the files there are now, whatever they are called by the time it comes to them.
        for inner, inode in sorted((p, i) for p, i in disk.inodes.items() if p.startswith(inside)):
            if inode.dirty:
                self.step(self.costs.fsync_s)
                self.alive(path).sync_one(inner, inode)
        self.step(self.costs.fsync_s)
        self.alive(path).check("fsync", path)
        disk.commit()

    def fsync_dir(self, path: str) -> None:
        path = _clean(path)
        self.step(self.costs.folder_s)
        disk = self.alive(path)
        disk.check("fsync", path)
        if path not in disk.folders:
            raise _missing(path)
        disk.commit()

    def mutex(self) -> SimMutex:
        return SimMutex(self)

    def boot_id(self, path: str) -> str:
        disk = self.alive(path)
        return f"boot {disk.power_losses} of {disk.name}"

    def lock_id(self, path: str) -> str:
        disk = self.alive(path)
        path = _clean(path)
        if path not in disk.inodes:
            raise _missing(path)
        return f"boot {disk.power_losses} disk {disk.name} inode {disk.inodes[path].number}"

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


@lru_cache(maxsize=4096)
def _clean(path: str) -> str:
    """Return the path without a slash at its end or two in a row; it must be absolute."""
    assert path.startswith("/"), f"not absolute: {path}"
    return "/" + "/".join(part for part in path.split("/") if part and part != ".")


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
