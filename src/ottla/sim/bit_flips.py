"""Bit flips: one bit of one batch on one disk is not what was written (F20).

Invariants: one flip at a time in the whole cluster; the bit lies under the batch's checksum, in a
batch that is committed, and another member of the in-sync set has it whole; the replica that has
the flip counts as incomplete until its log is whole again. What no one reads is not found (there is
no scrubbing): such a bit is put right when its time is over.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from ottla.model.ids import TopicPartition
from ottla.sim.pages import Inode
from ottla.sim.world import Node
from ottla.wire.batch_header import CRC_START, BatchHeader
from ottla.wire.records import crc_ok, iter_batches


@dataclass(slots=True)
class Flip:
    """A flipped bit, and the byte that was there."""

    node: Node
    path: str
    inode: Inode
    position: int
    before: int
    bit: int

    def there(self) -> bool:
        """Whether the log still has it: its file is in its place, and no one wrote it anew."""
        data = self.inode.data
        return (
            self.node.disk.inodes.get(self.path) is self.inode
            and self.position < len(data)
            and data[self.position] == self.before ^ (1 << self.bit)
        )


class BitFlips:
    """All flips of a run."""

    def __init__(self, paths: Callable[[Node, TopicPartition], list[str]]) -> None:
        self._paths = paths
        self._flips: list[Flip] = []

    @property
    def count(self) -> int:
        return len(self._flips)

    def there(self, node: Node | None = None) -> bool:
        """Whether a log (of a node) has one now."""
        return any((node is None or f.node is node) and f.there() for f in self._flips)

    def find(self, node: Node, tp: TopicPartition, below: int, rng: Random) -> Flip | None:
        """Draw a bit of a batch below an offset."""
        found = []
        for path in self._paths(node, tp):
            inode = node.disk.inodes[path]
            data = bytes(inode.data)
            found += [
                (path, inode, position + CRC_START, position + header.size)
                for position, header in iter_batches(data, allow_partial=True)
                if header.next_offset <= below
            ]
        if not found:
            return None
        path, inode, low, high = rng.choice(found)
        position = rng.randrange(low, high)
        return Flip(node, path, inode, position, inode.data[position], rng.randrange(8))

    def do(self, flip: Flip) -> None:
        flip.inode.sync()  # as a kernel does it, some time after the write
        flip.node.disk.flip_bit(flip.path, flip.position, flip.bit)
        self._flips.append(flip)

    def undo(self) -> None:
        """Put right what is still there."""
        for flip in self._flips:
            if flip.there():
                flip.node.disk.flip_bit(flip.path, flip.position, flip.bit)


def check_checksums(logs: Mapping[TopicPartition, Mapping[int, bytes]]) -> list[str]:
    """Return the batches of replicas that are not what their checksums say."""
    return [
        f"{tp} on broker {broker} at offset {header.base_offset}"
        for tp, replicas in logs.items()
        for broker, data in replicas.items()
        for header in _damaged(data)
    ]


def _damaged(data: bytes) -> list[BatchHeader]:
    return [
        header
        for position, header in iter_batches(data, allow_partial=True)
        if not crc_ok(data, position, header)
    ]
