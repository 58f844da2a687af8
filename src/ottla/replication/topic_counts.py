"""Topic counts: records and bytes that came and went on this broker, for each topic.

Invariants: a count costs one addition, and only grows while the topic is here; a topic that leaves
is forgotten, what it counted stays in the totals. Kafka: `BrokerTopicStats` and
`BrokerTopicMetrics`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.model.errors import ErrorCode

EXPECTED_OF_FETCH = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""After these a fetch of a partition has not failed: leadership moves, clients ask too late."""


@dataclass(slots=True, eq=False)
class TopicCounts:
    """What one topic, or all of them together, has seen since it came here."""

    messages_in: int = 0
    """records that clients and coordinators appended here"""
    bytes_in: int = 0
    """bytes of their batches"""
    bytes_rejected: int = 0
    """bytes of batches above `max.message.bytes`"""
    bytes_out: int = 0
    """bytes of batches sent to consumers"""
    replication_bytes_in: int = 0
    """bytes of batches copied from leaders"""
    replication_bytes_out: int = 0
    """bytes of batches sent to followers"""
    produces: int = 0
    """batches of produce requests, appended or refused"""
    failed_produces: int = 0
    fetches: int = 0
    """reads of a partition for a fetch"""
    failed_fetches: int = 0

    def add(self, other: "TopicCounts") -> None:
        """Add another topic's counts to these."""
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_rejected += other.bytes_rejected
        self.bytes_out += other.bytes_out
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out
        self.produces += other.produces
        self.failed_produces += other.failed_produces
        self.fetches += other.fetches
        self.failed_fetches += other.failed_fetches


class BrokerTopicCounts:
    """The counts of all topics of one broker."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCounts] = {}
        self._forgotten = TopicCounts()

    def __len__(self) -> int:
        return len(self._topics)

    def of(self, topic: str) -> TopicCounts:
        """Return the counts of a topic with a replica here."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicCounts()
        return found

    def forget(self, topic: str) -> None:
        """Forget a topic that is not here any more; the totals keep what it counted."""
        counts = self._topics.pop(topic, None)
        if counts is not None:
            self._forgotten.add(counts)

    def items(self) -> Iterator[tuple[str, TopicCounts]]:
        return iter(self._topics.items())

    def total(self) -> TopicCounts:
        """Return the counts of all topics together, those that left included."""
        total = TopicCounts()
        total.add(self._forgotten)
        for counts in self._topics.values():
            total.add(counts)
        return total

    def refused(self, topic: str, code: ErrorCode, size: int, *, expected: bool) -> None:
        """Note that a batch of so many bytes was not appended.

        One for a topic that the cluster does not have counts nowhere, as with Kafka. `expected`:
        it happens in the normal course of things, and is no failure.
        """
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        counts = self._topics.get(topic, self._forgotten)  # its metrics need a topic that is here
        counts.produces += 1
        counts.failed_produces += not expected
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            counts.bytes_rejected += size
