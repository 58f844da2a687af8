"""A simulated disk as a crash at each file operation of a process would leave it.

The process runs on: before each operation its disk is copied. A process that is killed leaves what
it has written; of a power loss there are several kinds. Names come and go in their order, as a
journalling file system keeps them; of what was not synced any page may be lost, as on ext4.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from ottla.sim.files import SimDisk, SimFiles
from ottla.sim.pages import PAGE_BYTES, Inode, after, touched

Files = dict[str, bytes]
"""Contents by path."""


@dataclass
class Point:
    """The disk before one operation. `names`: the files by path, after each change of names
    that is not durable yet. `note`: what the test knew at this moment."""

    number: int
    names: list[dict[str, Inode]]
    note: int

    def left(self, drawn: int) -> Iterator[tuple[str, Files]]:
        """Yield what each kind of crash leaves, with its name; so many are drawn by seed."""
        now = self.names[-1]
        yield "killed", {path: bytes(inode.data) for path, inode in now.items()}
        yield "no name", {path: bytes(inode.durable) for path, inode in self.names[0].items()}
        yield "names", {path: bytes(inode.durable) for path, inode in now.items()}
        yield "sizes", {path: _sized(inode) for path, inode in now.items()}
        yield "ends", {path: _without(inode, slice(1, -1)) for path, inode in now.items()}
        yield "no first", {path: _without(inode, slice(0, 1)) for path, inode in now.items()}
        for number in range(drawn):
            rng = random.Random(f"{self.number} {number}")
            names = rng.choice(self.names)
            # A quarter has what was written in its order, torn anywhere.
            in_order = number % 4 == 3
            lost = {path: _copy(inode) for path, inode in sorted(names.items())}
            for inode in lost.values():
                inode.lose(rng, in_order=in_order)
            kind = f"{'cut' if in_order else 'pages'} {number}"
            yield kind, {path: bytes(inode.data) for path, inode in lost.items()}


def _sized(inode: Inode) -> bytes:
    """Return a file that has its new size, and none of its new bytes."""
    size = after(inode.dirty, len(inode.durable))
    return bytes(inode.durable[:size]).ljust(size, b"\0")


def _without(inode: Inode, lost: slice) -> bytes:
    """Return a file of whose pages with new bytes some are lost, and the others are not."""
    writes = [(offset, data) for offset, data in inode.dirty if data]
    old, new = inode.durable.ljust(len(inode.data), b"\0"), bytearray(inode.data)
    for page in sorted(touched(writes, len(inode.data)))[lost]:
        place = slice(page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, len(new)))
        new[place] = old[place]
    return bytes(new)


def _copy(inode: Inode) -> Inode:
    copy = Inode(inode.number)  # the same disk, a moment earlier
    copy.data, copy.durable = bytearray(inode.data), bytearray(inode.durable)
    copy.dirty = list(inode.dirty)
    return copy


class Recorder:
    """Keeps a point for each operation that has a disk of its own."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.note = 0
        self.operations = 0
        self._disk: SimDisk | None = None
        self._names: list[dict[str, Inode]] = []
        self._copies: dict[tuple[int, int, int], Inode] = {}
        self._known: dict[int, Inode] = {}
        """All files there ever were: no later one gets the same id."""

    def watch(self, files: SimFiles) -> None:
        """Record what one incarnation does."""
        self._disk, step = files.disk, files.step

        def watched(cost_s: float) -> None:
            step(cost_s)
            self.record()

        files.step = watched

    def record(self) -> None:
        """Keep the disk as it is now, unless it is as before."""
        disk = self._disk
        assert disk is not None, "nothing is watched"
        self.operations += 1
        open_changes = len(disk._journal)
        now = {path: self._copied(inode) for path, inode in disk.inodes.items()}
        # A file that has lost its name may get it back: it is as it was then.
        kept = self._names[:open_changes]
        while len(kept) < open_changes:
            kept.append(kept[-1] if kept else {})
        self._names = [{p: self._newest(i, now) for p, i in names.items()} for names in kept]
        self._names.append(now)
        if not self.points or self.points[-1].names != self._names:
            self.points.append(Point(self.operations, list(self._names), self.note))
        self.points[-1].note = self.note

    def _copied(self, inode: Inode) -> Inode:
        self._known[id(inode)] = inode
        key = (id(inode), inode.changes, len(inode.dirty))
        if key not in self._copies:
            self._copies[key] = copy = _copy(inode)
            copy.changes = id(inode)
        return self._copies[key]

    @staticmethod
    def _newest(inode: Inode, now: dict[str, Inode]) -> Inode:
        """Return the copy that was made now of the same file, whatever its name is."""
        return next((i for i in now.values() if i.changes == inode.changes), inode)
