"""The trace: what happened, one line per event, and a hash over all of it.

Invariants: the hash covers every line ever recorded and every byte that arrived; only the last
lines of other things are kept unless a sink takes them. Two runs of one seed have the same hash,
whatever PYTHONHASHSEED is: the test of that keeps set order out of every decision.
"""

import hashlib
import struct
import zlib
from collections import deque
from collections.abc import Callable

KEPT_LINES = 200
HASHED_AT_ONCE = 96
"""Pieces that are joined: an update of the hash takes longer than what it adds."""
_FACTS = struct.Struct("<dI")


def segment_label(node: str, kind: str, peer: str) -> bytes:
    """Return what the lines of one kind of segment have in common."""
    return f" {node} {kind} {peer} ".encode()


class Trace:
    """An append-only record. `sink` gets every line as it is made."""

    def __init__(self, sink: Callable[[str], object] | None = None) -> None:
        self.count = 0
        self.tail: deque[str] = deque(maxlen=KEPT_LINES)
        self._sink = sink
        self._unhashed: list[bytes] = []
        self._hash = hashlib.blake2b(digest_size=8)

    def record(self, now: float, node: str, kind: str, detail: str = "") -> None:
        line = f"{now:.6f} {node} {kind} {detail}"
        self.count += 1
        self._unhashed.append(line.encode())
        if len(self._unhashed) > HASHED_AT_ONCE:
            self._hash_all()
        self.tail.append(line)
        if self._sink is not None:
            self._sink(line)

    def segment(self, now: float, label: bytes, data: bytes) -> None:
        """Record that bytes arrived (`label`: where and what, see `segment_label`).

        The line tells their number and sum, the hash has them all.
        """
        self.count += 1
        unhashed = self._unhashed
        unhashed += (_FACTS.pack(now, len(data)), label, data)
        if len(unhashed) > HASHED_AT_ONCE:
            self._hash_all()
        if self._sink is not None:
            self._sink(f"{now:.6f}{label.decode()}{len(data)} {zlib.crc32(data):08x}")

    def _hash_all(self) -> None:
        self._hash.update(b"".join(self._unhashed))
        self._unhashed.clear()

    @property
    def digest(self) -> str:
        self._hash_all()
        return self._hash.hexdigest()
