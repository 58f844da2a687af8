"""The follower's side of a fetch session: which partitions the next request must name.

It does no I/O. Invariants:
- a full request (epoch 0) names every partition; an incremental one only those whose parameters
  changed since they were last sent, and those that left
- after anything that leaves the leader's view in doubt (an error, a lost connection) the next
  request is full and closes the session it names
- a session names topics by id (version 13 on) or by name (12), never both; when a topic without an
  id joins, a full request by name begins a new session

Kafka: `FetchSessionHandler` (KIP-227, KIP-516).
"""

from dataclasses import dataclass

from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from ottla.wire.messages.records import FetchRequest

FIRST_VERSION_WITH_IDS = 13
LAST_VERSION_WITHOUT_IDS = 12
FIRST_VERSION_WITH_REPLICA_STATE = 15


@dataclass(slots=True, eq=False)
class FetchPosition:
    """A partition's parameters in Fetch. The fetcher changes them, then calls `changed`.

    `sent_offset`: `offset` as it was in the last request that named the partition.
    """

    tp: TopicPartition
    topic_id: bytes
    leader_epoch: int
    offset: int = 0
    log_start_offset: int = 0
    last_fetched_epoch: int = -1
    sent_offset: int = -1


class LeaderSession:
    """One fetcher's session with its leader."""

    def __init__(self, version: int) -> None:
        self._top_version = version
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._by_id = True
        self._partitions: dict[TopicPartition, FetchPosition] = {}
        self._sent: dict[TopicPartition, bytes] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._to_forget: dict[TopicPartition, bytes] = {}
        self._without_id = 0
        self.by_key: dict[tuple[bytes | str, int], FetchPosition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._partitions

    def add(self, position: FetchPosition) -> None:
        """Fetch a partition from the next request on."""
        self.remove(position.tp)
        self._partitions[position.tp] = position
        self._changed[position.tp] = None
        gone_id = self._to_forget.get(position.tp)
        if gone_id == position.topic_id or not self._by_id:
            self._to_forget.pop(position.tp, None)
        if position.topic_id == ZERO_UUID:
            self._without_id += 1

    def remove(self, tp: TopicPartition) -> None:
        """Stop fetching a partition with the next request."""
        position = self._partitions.pop(tp, None)
        if position is not None:
            self._changed.pop(tp, None)
            if tp in self._sent:
                self._to_forget[tp] = self._sent[tp]
            if position.topic_id == ZERO_UUID:
                self._without_id -= 1

    def changed(self, position: FetchPosition) -> None:
        """Send a partition's parameters in the next request, if it is still fetched."""
        if self._partitions.get(position.tp) is position:
            self._changed[position.tp] = None

    def start_over(self) -> None:
        """Make the next request a full one."""
        self._epoch = INITIAL_EPOCH

    def build(self) -> tuple[FetchRequest, int] | None:
        """Return the next request's session part and its version; None if there is none to send."""
        by_id = self._top_version >= FIRST_VERSION_WITH_IDS and not self._without_id
        if by_id != self._by_id:
            self._by_id = by_id
            self._epoch = INITIAL_EPOCH
        full = self._epoch == INITIAL_EPOCH
        partitions = self._partitions
        if full:
            if not partitions:
                return None
            listed = list(partitions.values())
            forgotten: list[tuple[TopicPartition, bytes]] = []
        else:
            listed = [partitions[tp] for tp in self._changed]
            forgotten = list(self._to_forget.items())
            if not partitions and not forgotten:
                return None
        version = self._top_version if by_id else min(self._top_version, LAST_VERSION_WITHOUT_IDS)
        request = FetchRequest(
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=self._topics(listed),
            forgotten_topics_data=self._forgotten(forgotten),
        )
        self._note_sent(listed, forgotten, full=full)
        return request, version

    def _note_sent(
        self,
        listed: list[FetchPosition],
        forgotten: list[tuple[TopicPartition, bytes]],
        *,
        full: bool,
    ) -> None:
        if full:
            self._sent.clear()
            self.by_key.clear()
        for tp, topic_id in forgotten:
            del self._sent[tp]
            self.by_key.pop((topic_id if self._by_id else tp.topic, tp.partition), None)
        for position in listed:
            position.sent_offset = position.offset
            self._sent[position.tp] = position.topic_id
            key = position.topic_id if self._by_id else position.tp.topic
            self.by_key[(key, position.tp.partition)] = position
        self._changed.clear()
        self._to_forget.clear()

    @staticmethod
    def _topics(listed: list[FetchPosition]) -> list[FetchRequest.FetchTopic]:
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for position in listed:
            topic = topics.get(position.tp.topic)
            if topic is None:
                topic = topics[position.tp.topic] = FetchRequest.FetchTopic(
                    topic=position.tp.topic, topic_id=position.topic_id
                )
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=position.tp.partition,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                )
            )
        return list(topics.values())

    @staticmethod
    def _forgotten(
        gone: list[tuple[TopicPartition, bytes]],
    ) -> list[FetchRequest.ForgottenTopic]:
        topics: dict[tuple[str, bytes], FetchRequest.ForgottenTopic] = {}
        for tp, topic_id in gone:
            topic = topics.get((tp.topic, topic_id))
            if topic is None:
                topic = topics[tp.topic, topic_id] = FetchRequest.ForgottenTopic(
                    topic=tp.topic, topic_id=topic_id
                )
            topic.partitions.append(tp.partition)
        return list(topics.values())

    def accept(self, session_id: int, code: ErrorCode) -> bool:
        """Note a response's session; False if the response is void and a full request follows."""
        if code is not ErrorCode.NONE:
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = INVALID_SESSION_ID
            self.start_over()
            return False
        if session_id == INVALID_SESSION_ID:
            # No room in the leader's cache, or the session has ended: go on with full requests.
            self._session_id = INVALID_SESSION_ID
            self._epoch = INITIAL_EPOCH
            return True
        self._session_id = session_id
        self._epoch = next_epoch(self._epoch)
        return True
