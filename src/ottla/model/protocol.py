"""Numbers of Kafka's protocol that mean something of their own, each under one name.

`ids` has those of partitions: NO_LEADER and NO_EPOCH. Kafka: `RecordBatch`, `ListOffsetsRequest`,
`FetchRequest`, `IsolationLevel`, `LeaderAndIsr`, `AbstractControlRequest`.
"""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
"""Of a record batch whose producer is neither idempotent nor transactional."""
MAX_SEQUENCE = 2**31 - 1
"""The next one is 0."""

UNKNOWN_OFFSET = -1
"""An offset that is not known, or that there is none."""

LATEST, EARLIEST, OF_MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
"""What ListOffsets takes for a timestamp: the log's end, its start, the offset of the record with
the largest timestamp (KIP-734), and the two of tiered storage (KIP-405, KIP-1005)."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels of Fetch and ListOffsets."""

ACKS_ALL = -1
"""A produce request is answered when all in-sync replicas have its records."""

CONSUMER, DEBUGGING_CONSUMER, FUTURE_LOCAL_REPLICA = -1, -2, -3
"""Replica ids of those that are no broker: clients, clients that may read a follower, and the copy
of a log in another folder of the same broker (KIP-113). A replica tells its log end to the second
(ListOffsets), and gives its log up to that end to the third (Fetch); to a JVM broker the second is
a consumer in a Fetch, which gets nothing above the high watermark (`FetchIsolation.of`)."""

UNKNOWN_BROKER_EPOCH = -1
"""A request does not tell its sender's, or its receiver's, broker epoch (KIP-380)."""

LEADER_DURING_DELETE = -2
"""UpdateMetadata names it as the leader of a partition whose topic is deleted."""

EPOCH_DURING_DELETE = -2
"""StopReplica carries it as the leader epoch of a partition whose topic is deleted."""

UNDEFINED = -1
"""OffsetForLeaderEpoch: the epoch, or its end offset, is not known there (KIP-101)."""

NO_GENERATION = -1
"""OffsetCommit of a consumer that is no member of a group."""


def is_stale_broker_epoch(given: int, current: int) -> bool:
    """Return whether a request names an earlier registration of a broker (R8, KIP-380)."""
    return UNKNOWN_BROKER_EPOCH != given < current
