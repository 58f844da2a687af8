"""Replica selector: which replica a consumer had better read from, by its rack. A decider.

Invariants: only replicas that are in sync and hold the offset are candidates, which is for the
caller to see to; without a rack, with the leader in it, or with no replica in it the consumer stays
with the leader.

Kafka: `RackAwareReplicaSelector` and `ReplicaView` (KIP-392).
"""

from collections.abc import Iterable

import msgspec

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one class that replica.selector.class may name: it is what this module does."""


class Candidate(msgspec.Struct, frozen=True):
    """A replica that a consumer may read from. `rack` is None where its broker has none."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: float
    """how long ago it was caught up"""


def nearest(rack: str, leader_rack: str | None, candidates: Iterable[Candidate]) -> int | None:
    """Return the broker to read from instead of the leader; None if that is the one to read from.

    Of several in the consumer's rack the one that is furthest, then caught up last, then of the
    highest id.
    """
    if not rack or leader_rack == rack:
        return None
    near = [c for c in candidates if c.rack == rack]
    best = max(near, key=lambda c: (c.log_end_offset, -c.behind_ms, c.broker_id), default=None)
    return None if best is None else best.broker_id
