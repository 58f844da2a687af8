"""The follower's side of a fetch session: which partitions the next request must name.

Who may call: `fetcher`. Plain bookkeeping over values, no I/O. Invariants:
- a full request (epoch 0) names every partition; an incremental one only those whose parameters
  changed since they were last sent, and those that left
- after anything that leaves the leader's view in doubt (an error, a lost connection) the next
  request is full and closes the session it names
- a session speaks of topics by id (version 13 on) or by name (12), never both; when one topic
  without an id joins, everything starts over by name

Kafka: `FetchSessionHandler` (KIP-227, KIP-516).
"""

from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from ottla.wire.messages.fetch import FetchRequest

FIRST_VERSION_WITH_IDS = 13
LAST_VERSION_WITHOUT_IDS = 12
FIRST_VERSION_WITH_REPLICA_STATE = 15


class Wanted:
    """A followed partition's fetch parameters. The fetcher changes them, then says `changed`."""

    __slots__ = (
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "offset",
        "sent_offset",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, topic_id: bytes, leader_epoch: int) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.offset = 0
        self.log_start_offset = 0
        self.last_fetched_epoch = -1
        self.sent_offset = -1


class LeaderSession:
    """One fetcher's session with its leader."""

    def __init__(self, version: int) -> None:
        self._top_version = version
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._by_id = True
        self._members: dict[TopicPartition, Wanted] = {}
        self._told: dict[TopicPartition, bytes] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._gone: dict[TopicPartition, bytes] = {}
        self._without_id = 0
        self.by_key: dict[tuple[bytes | str, int], Wanted] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._members

    def add(self, wanted: Wanted) -> None:
        """Fetch a partition from the next request on."""
        self.remove(wanted.tp)
        self._members[wanted.tp] = wanted
        self._changed[wanted.tp] = None
        gone_id = self._gone.get(wanted.tp)
        if gone_id == wanted.topic_id or not self._by_id:
            self._gone.pop(wanted.tp, None)
        if wanted.topic_id == ZERO_UUID:
            self._without_id += 1

    def remove(self, tp: TopicPartition) -> None:
        """Leave a partition out from the next request on."""
        wanted = self._members.pop(tp, None)
        if wanted is not None:
            self._changed.pop(tp, None)
            if tp in self._told:
                self._gone[tp] = self._told[tp]
            if wanted.topic_id == ZERO_UUID:
                self._without_id -= 1

    def changed(self, wanted: Wanted) -> None:
        """Send a partition's parameters anew, if it is still fetched."""
        if self._members.get(wanted.tp) is wanted:
            self._changed[wanted.tp] = None

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
        members = self._members
        if full:
            if not members:
                return None
            listed = list(members.values())
            forgotten: list[tuple[TopicPartition, bytes]] = []
        else:
            listed = [members[tp] for tp in self._changed]
            forgotten = list(self._gone.items())
            if not members and not forgotten:
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
        self, listed: list[Wanted], forgotten: list[tuple[TopicPartition, bytes]], *, full: bool
    ) -> None:
        if full:
            self._told.clear()
            self.by_key.clear()
        for tp, topic_id in forgotten:
            del self._told[tp]
            self.by_key.pop((topic_id if self._by_id else tp.topic, tp.partition), None)
        for wanted in listed:
            wanted.sent_offset = wanted.offset
            self._told[wanted.tp] = wanted.topic_id
            key = wanted.topic_id if self._by_id else wanted.tp.topic
            self.by_key[(key, wanted.tp.partition)] = wanted
        self._changed.clear()
        self._gone.clear()

    @staticmethod
    def _topics(listed: list[Wanted]) -> list[FetchRequest.FetchTopic]:
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for wanted in listed:
            topic = topics.get(wanted.tp.topic)
            if topic is None:
                topic = topics[wanted.tp.topic] = FetchRequest.FetchTopic(
                    topic=wanted.tp.topic, topic_id=wanted.topic_id
                )
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=wanted.tp.partition,
                    current_leader_epoch=wanted.leader_epoch,
                    fetch_offset=wanted.offset,
                    last_fetched_epoch=wanted.last_fetched_epoch,
                    log_start_offset=wanted.log_start_offset,
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
