"""Which followers have not fetched yet what a LeaderAndIsr has just given them to follow.

A follower can name a new partition only in its next fetch, and what waits with acks=all waits for
that; so its fetches are parked briefly until it has asked for all of them. Kafka lets it wait for
replica.fetch.wait.max.ms.

Invariants: no wait is longer than `LONGEST_MS` after the last LeaderAndIsr; no more is
kept than each follower's partitions.
"""

from collections.abc import Iterable
from typing import Protocol

from ottla.model.protocol import UNKNOWN_OFFSET
from ottla.replication.isr import Follower

LONGEST_MS = 1_000
"""A follower that has not fetched by then has not got its LeaderAndIsr yet, or is down."""


class Led(Protocol):
    """What there is to know of a partition."""

    @property
    def followers(self) -> dict[int, Follower]:
        """Those of the present leader epoch; none where this broker does not lead."""
        ...


class _Expected:
    __slots__ = ("partitions", "until_ms")

    def __init__(self) -> None:
        self.until_ms = 0.0
        self.partitions: dict[Led, None] = {}


class ExpectedFollowers:
    """For each follower the partitions that it is to ask for."""

    def __init__(self) -> None:
        self._expected: dict[int, _Expected] = {}

    def expect(self, partitions: Iterable[Led], now_ms: float) -> list[int]:
        """Wait for the followers of partitions that are led in a new epoch; return their ids."""
        found: dict[int, list[Led]] = {}
        for partition in partitions:
            for replica in partition.followers:
                found.setdefault(replica, []).append(partition)
        for replica, theirs in found.items():
            expected = self._expected.get(replica)
            if expected is None or now_ms >= expected.until_ms:
                expected = self._expected[replica] = _Expected()
            expected.until_ms = now_ms + LONGEST_MS
            expected.partitions.update(dict.fromkeys(theirs))
        return sorted(found)

    def awaits(self, replica: int, now_ms: float) -> bool:
        """Return whether a follower has partitions left to ask for."""
        expected = self._expected.get(replica)
        if expected is None:
            return False
        partitions = expected.partitions
        if now_ms < expected.until_ms:
            while partitions:
                partition = next(reversed(partitions))
                follower = partition.followers.get(replica)
                if follower is not None and follower.log_end_offset == UNKNOWN_OFFSET:
                    return True
                del partitions[partition]
        del self._expected[replica]
        return False
