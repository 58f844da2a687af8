"""Descriptors: how the process's limit of open files is divided (F45).

A pure function: the caller reads the limit (RLIMIT_NOFILE, the soft one). Invariant: the three
parts together never exceed the limit, so that connections never take the descriptors that files
need: without one for its checkpoint a broker's disk would seem bad.
"""

from dataclasses import dataclass

_LEAST_OTHER = 16
_MOST_OTHER = 256
_MOST_FILES = 32_768
_LEAST_LIMIT = 48


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """The parts of one process."""

    files: int
    """log and index files that may stay open; beyond it the least recently used one is closed"""
    connections: int
    """sockets of clients and of other brokers, accepted and opened, of all listeners together"""
    other: int
    """the rest: what workers open for a moment (duplicates for fsync, folders, temporary files),
    locks, listeners, the ZooKeeper session, the event loop, log output, sockets that were accepted
    only to be closed again"""


def split_descriptors(soft_limit: int) -> DescriptorBudget:
    """Share out `soft_limit` descriptors, at least 48 of which are taken for granted.

    An eighth (16 to 256) is kept for everything that is open for a moment only; files and
    connections get half of the rest each, and connections also what 32,768 files leave over.
    """
    limit = max(soft_limit, _LEAST_LIMIT)
    other = min(max(limit // 8, _LEAST_OTHER), _MOST_OTHER)
    files = min((limit - other) // 2, _MOST_FILES)
    return DescriptorBudget(files=files, connections=limit - other - files, other=other)
