"""Who leads after an unclean election, and which records it loses, by where logs end.

Invariants: plain values in, plain values out; a log end that is not known is never taken for 0.
Apache Kafka's controller elects the first live replica, Ottla's the one with the longest log
(`controller.elections`).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

NOTHING_KNOWN: Mapping[int, int] = MappingProxyType({})


class LogEnd(NamedTuple):
    """The leader epoch of a log's last record (-1 if it is empty), and its end offset."""

    epoch: int
    offset: int


class Candidate(NamedTuple):
    """One replica; `end` is None where it is dead or did not respond."""

    broker: int
    alive: bool
    in_sync: bool
    end: LogEnd | None

    @property
    def state(self) -> str:
        return (
            f"{'in sync' if self.in_sync else 'not in sync'}, {'alive' if self.alive else 'dead'}"
        )


class Loss(NamedTuple):
    """Records that one replica has and the new leader has not: offsets `first` to `last`.

    `first` is None where it is not known where the leader's log ends, `last` where it is not known
    where the replica's does. `earlier`: the logs have different leader epochs, so records before
    `first` may be lost, too.
    """

    broker: int
    first: int | None
    last: int | None
    earlier: bool = False

    def __str__(self) -> str:
        if self.first is None:
            return f"an unknown part of what broker {self.broker} has"
        earlier = " (or from an earlier one)" if self.earlier else ""
        if self.last is None:
            return f"what broker {self.broker} has from offset {self.first} on{earlier}"
        return f"offsets {self.first} to {self.last} of broker {self.broker}{earlier}"


def leader_of(candidates: Sequence[Candidate], *, longest_log: bool) -> int | None:
    """Return who leads after an unclean election; None if no replica is alive."""
    live = [c for c in candidates if c.alive]
    in_sync = [c for c in live if c.in_sync]
    if in_sync or not live:
        return in_sync[0].broker if in_sync else None
    if not longest_log:
        return live[0].broker
    return max(live, key=lambda c: c.end or LogEnd(-2, -1)).broker  # the first among equals


def parts(candidates: Sequence[Candidate], leader: int) -> list[int]:
    """Return the replicas of which only their batches tell what the leader has not.

    Their last records are of another leader epoch than the leader's.
    """
    return [loss.broker for loss in losses(candidates, leader) if loss.earlier]


def losses(
    candidates: Sequence[Candidate], leader: int, parted: Mapping[int, int] = NOTHING_KNOWN
) -> list[Loss]:
    """Return what the other replicas have and this leader has not.

    `parted`: by replica, the first offset at which its log is not the leader's.
    """
    led = next((c.end for c in candidates if c.broker == leader), None)
    first = None if led is None else led.offset
    found = []
    for other in candidates:
        if other.broker == leader:
            continue
        if other.end is None:
            # A replica that was not in sync has nothing acknowledged that the ISR had not.
            if other.in_sync:
                found.append(Loss(other.broker, first, None))
        elif other.broker in parted:
            if parted[other.broker] < other.end.offset:
                found.append(Loss(other.broker, parted[other.broker], other.end.offset - 1))
        elif led is None:
            found.append(Loss(other.broker, None, other.end.offset - 1))
        elif other.end.offset > led.offset:
            other_epochs = other.end.epoch != led.epoch
            found.append(Loss(other.broker, first, other.end.offset - 1, other_epochs))
        elif other.end.epoch > led.epoch and other.end.offset > 0:
            found.append(Loss(other.broker, other.end.offset - 1, other.end.offset - 1, True))
    return found
