"""The replicas on the simulated disks, read from outside: what each broker really has.

Invariants: nothing of a broker's inside is asked, only files and what ZooKeeper says of
assignments; what was read once is kept until the file changes.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.checkers import LogRecord
from ottla.sim.pages import Inode
from ottla.sim.world import Node
from ottla.wire.records import iter_batches, iter_records

Assignment = Mapping[TopicPartition, AbstractSet[int]]


class ReplicaFiles:
    """All brokers' logs. Broker n is `nodes[n]`."""

    def __init__(
        self,
        nodes: Sequence[Node],
        log_dirs: Sequence[str],
        assignment: Callable[[], Assignment],
    ) -> None:
        self._nodes = nodes
        self._log_dirs = log_dirs
        self._assignment = assignment
        self._segments: dict[str, tuple[int, dict[str, list[str]]]] = {}
        self._known_ends: dict[tuple[str, str], tuple[Inode, int, int]] = {}
        self._parsed: dict[TopicPartition, tuple[bytes, list[LogRecord]]] = {}

    def paths(self, node: Node, tp: TopicPartition) -> list[str]:
        """Return a replica's segments, sorted; looked up again when files were added or removed."""
        changes, folders = self._segments.get(node.name, (-1, {}))
        if changes != node.disk.changes:
            folders = {}
            for path in sorted(p for p in node.disk.inodes if p.endswith(".log")):
                folders.setdefault(path.rpartition("/")[0], []).append(path)
            self._segments[node.name] = node.disk.changes, folders
        return [path for log_dir in self._log_dirs for path in folders.get(f"{log_dir}/{tp}", ())]

    def ends(self, tp: TopicPartition) -> dict[int, int]:
        """Return the offset after the last record of every replica there is."""
        found = {}
        for broker_id, node in enumerate(self._nodes):
            paths = self.paths(node, tp)
            if paths:
                found[broker_id] = self._end(node, paths[-1])
        return found

    def _end(self, node: Node, path: str) -> int:
        inode = node.disk.inodes[path]
        known, changes, end = self._known_ends.get((node.name, path), (None, -1, -1))
        if known is not inode or changes != inode.changes:
            end = _end_offset(path, bytes(inode.data))
            self._known_ends[node.name, path] = inode, inode.changes, end
        return end

    def raw(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, dict[int, bytes]]:
        """Return the bytes of every assigned replica."""
        found: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in tps}
        assignment = self._assignment()
        for broker_id, node in enumerate(self._nodes):
            for tp, replicas in found.items():
                paths = self.paths(node, tp)
                if paths and broker_id in assignment.get(tp, ()):
                    replicas[broker_id] = b"".join(node.disk.inodes[p].data for p in paths)
        return found

    def records(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, dict[int, list[LogRecord]]]:
        """Return every assigned replica's records, without markers."""
        found: dict[TopicPartition, dict[int, list[LogRecord]]] = {}
        for tp, replicas in self.raw(tps).items():
            found[tp] = {}
            for broker_id, data in replicas.items():
                # Replicas are equal as a rule: each log is read once, unless they differ.
                before, records = self._parsed.get(tp, (b"", []))
                if before != data:
                    records = _records(data)
                    self._parsed[tp] = (data, records)
                found[tp][broker_id] = records
        return found

    def caught_up(self, broker_id: int, tps: Iterable[TopicPartition]) -> bool:
        """Whether a broker's disk holds, of what it is assigned, what all the others hold."""
        assignment = self._assignment()
        for tp in tps:
            if broker_id not in assignment.get(tp, ()):
                continue
            ends = self.ends(tp)
            ours = ends.pop(broker_id, 0)
            if ours < min(ends.values(), default=0):
                return False
        return True

    def has_all(
        self, broker_id: int, tps: Iterable[TopicPartition], lacking: Collection[int]
    ) -> bool:
        """Whether a broker has, of what it is assigned, all that those have who lack nothing."""
        assignment = self._assignment()
        for tp in tps:
            replicas = assignment.get(tp, frozenset())
            ends = self.ends(tp)
            whole = [ends[b] for b in replicas if b in ends and b not in lacking]
            if broker_id in replicas and ends.get(broker_id, 0) < max(whole, default=0):
                return False
        return True


def _records(data: bytes) -> list[LogRecord]:
    """Return the records up to what cannot be read: a flipped bit that no one has found yet."""
    found: list[LogRecord] = []
    with contextlib.suppress(OttlaError):
        for position, header in iter_batches(data, allow_partial=True):
            if not header.is_control:
                found += [
                    LogRecord(r.offset, header.partition_leader_epoch, r.value or b"")
                    for r in iter_records(data, position)
                ]
    return found


def _end_offset(path: str, data: bytes) -> int:
    """Return the offset after the last whole batch of a segment, its base where it is empty."""
    end = int(path.rpartition("/")[2].removesuffix(".log"))
    with contextlib.suppress(OttlaError):  # what a power loss has left is not all batches
        for _, header in iter_batches(data, allow_partial=True):
            end = header.next_offset
    return end
