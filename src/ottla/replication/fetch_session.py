"""Fetch sessions: what a fetcher asked for, so that the next request names only changes. A decider.

Time and chance are arguments.

Theory of operation. A session (KIP-227) remembers each partition's request parameters and what the
fetcher was last sent. Kafka walks every partition of the session at every fetch. Here a partition
is *dirty* until it was answered and has nothing more to say, and only dirty ones are walked: a
source (`watch`) marks an entry dirty when its log or its leadership moves. The response is the
same; the cost is that of what changed.

Invariants:
- a session's epoch goes up by one with each request; another epoch means a lost or doubled request
- a session is used with topic ids (version 13 on) or with names, never both
- the cache holds at most `slots` sessions; which one gives way is Kafka's rule (`_evict`)
- an entry that is not dirty is watched by its source, or it would never be looked at again

Kafka: `FetchSession`, `FetchSessionCache` and `FetchManager` (KIP-227, KIP-516).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ottla.model.errors import ErrorCode

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
ENTRY_BYTES = 400
MOST_CLIENT_BYTES = 64 << 20
"""What all sessions of clients may take. Beyond it new ones are not kept, and one that has grown
since is closed: its client goes on with full fetches, as where Kafka has no slot."""
EVICTION_MS = 120_000
"""A session unused, or old, for this long may be evicted by one that is worth no more."""

EntryKey = tuple[bytes | str, int]


class Source(Protocol):
    """What an entry reads from: a partition on this broker."""

    def unwatch(self, entry: "FetchEntry") -> None:
        """Stop marking the entry; it may be unknown already."""
        ...


@dataclass(slots=True, eq=False)
class FetchEntry:
    """One partition of a fetch: what is asked, and what was sent last."""

    session: "FetchSession"
    topic: str | None
    topic_id: bytes
    index: int
    source: Source | None = None
    denied: bool = False
    """whether the fetcher may not read the topic"""
    fetch_offset: int = -1
    log_start_offset: int = -1
    max_bytes: int = -1
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    sent_high_watermark: int = -1
    sent_log_start: int = -1

    @property
    def key(self) -> EntryKey:
        return (self.topic_id if self.session.uses_topic_ids else self.topic or "", self.index)

    def detach(self) -> None:
        """Leave the source, if any."""
        if self.source is not None:
            self.source.unwatch(self)
            self.source = None

    def __repr__(self) -> str:
        return f"FetchEntry({self.topic}-{self.index} at {self.fetch_offset})"


class Waiting(Protocol):
    """A fetch that is parked."""

    def reconsider(self) -> None:
        """Look again, soon; called when an entry of the session became dirty."""
        ...


class FetchSession:
    """A fetcher's partitions. `id` is 0 until the cache took it in, or forever if it never does.

    `unnamed` tells that some topic id was not known when it was listed.

    `dirty` is ordered: who was answered with records moves to the end, so that a response that is
    too small for all serves them in turn.

    `replica_epoch` is the broker epoch of the follower's last fetch, -1 for none.
    """

    __slots__ = (
        "authorized_for",
        "bytes",
        "cached_bytes",
        "cached_size",
        "created_ms",
        "dirty",
        "entries",
        "epoch",
        "id",
        "kept_bytes",
        "last_used_ms",
        "privileged",
        "replica_epoch",
        "replica_id",
        "topics_allowed",
        "unnamed",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(self, *, privileged: bool, uses_topic_ids: bool, now_ms: float) -> None:
        self.id = INVALID_SESSION_ID
        self.epoch = INITIAL_EPOCH
        self.privileged = privileged
        self.replica_id = -1
        self.replica_epoch = -1
        self.unnamed = False
        self.uses_topic_ids = uses_topic_ids
        self.entries: dict[EntryKey, FetchEntry] = {}
        self.dirty: dict[FetchEntry, None] = {}
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.cached_size = 0
        self.bytes = self.cached_bytes = 0
        """about what the entries take: now, and when the cache counted them"""
        self.kept_bytes = 0
        """the same when the session was kept"""
        self.waiting: Waiting | None = None
        self.authorized_for: object = None
        """the client that `topics_allowed` is about, and the generation of the ACLs"""
        self.topics_allowed: dict[str, bool] = {}

    def entry(self, topic: str | None, topic_id: bytes, index: int) -> FetchEntry:
        """Return the entry of a listed partition, made if it is new, and dirty in any case."""
        key: EntryKey = (topic_id if self.uses_topic_ids else topic or "", index)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = FetchEntry(self, topic, topic_id, index)
            self.bytes += _size(topic)
            if topic is None:
                self.unnamed = True
        elif entry.topic is None and topic is not None:
            entry.topic = topic
            self.bytes += _size(topic) - _size(None)
        self.dirty[entry] = None
        return entry

    def registered_again(self, replica_epoch: int) -> None:
        """Have every partition looked at: the same process fetches on in a later broker epoch.

        A new ZooKeeper session ended nothing of what its logs have. Of idle partitions the leader
        would still know the former epoch, and no controller accepts an ISR named by that (KIP-903).
        """
        self.replica_epoch = replica_epoch
        for entry in self.entries.values():
            self.dirty.setdefault(entry, None)

    def forget(self, topic: str | None, topic_id: bytes, index: int) -> None:
        """Drop a partition; unknown ones are ignored."""
        entry = self.entries.pop((topic_id if self.uses_topic_ids else topic or "", index), None)
        if entry is not None:
            self.bytes -= _size(entry.topic)
            self.dirty.pop(entry, None)
            entry.detach()

    def move_to_end(self, entry: FetchEntry) -> None:
        """Let the others go first next time."""
        self.dirty.pop(entry, None)
        self.dirty[entry] = None

    def close(self) -> None:
        """Detach every entry; the session serves nothing any more."""
        for entry in self.entries.values():
            entry.detach()
        # Entries know their session: a full fetch that is not kept leaves no cycle behind.
        self.entries.clear()
        self.dirty.clear()

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        kind = "replica" if self.privileged else "client"
        return f"FetchSession({kind} id={self.id} epoch={self.epoch} entries={len(self.entries)})"


def _size(topic: str | None) -> int:
    """Return what an entry takes; Python has up to four bytes for a character."""
    return ENTRY_BYTES if topic is None else ENTRY_BYTES + 4 * len(topic)


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`; it wraps to 1, for 0 means a new session."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1


class SessionCache:
    """The sessions that may be continued, bounded. Followers' are privileged."""

    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_id = new_id
        # Ordered by last use, the oldest first.
        self._sessions: dict[int, FetchSession] = {}
        self._entries = 0
        self._client_bytes = 0
        self.evicted_total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session_id: int,
        epoch: int,
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: float,
    ) -> FetchSession | ErrorCode:
        """Return the session a request belongs to, its epoch moved on, or why it has none.

        Epoch 0 or -1 is a full request: it closes the session it names and starts afresh.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != INVALID_SESSION_ID:
                self.remove(session_id)
            session = FetchSession(
                privileged=is_follower, uses_topic_ids=uses_topic_ids, now_ms=now_ms
            )
            session.epoch = next_epoch(epoch)
            return session
        known = self._sessions.get(session_id)
        if known is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if known.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if known.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        grown = not known.privileged and known.bytes > known.kept_bytes
        if grown and self._client_bytes > MOST_CLIENT_BYTES:
            self.remove(session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        known.epoch = next_epoch(epoch)
        self._touch(known, now_ms)
        return known

    def settle(self, session: FetchSession) -> None:
        """Close a session that its request left without partitions; else count its size again."""
        if session.id == INVALID_SESSION_ID:
            return
        if not session.entries:
            self.remove(session.id)
            return
        self._count(session)

    def _count(self, session: FetchSession) -> None:
        self._entries += len(session) - session.cached_size
        session.cached_size = len(session)
        if not session.privileged:
            self._client_bytes += session.bytes - session.cached_bytes
            session.cached_bytes = session.bytes

    def keep(self, session: FetchSession, now_ms: float) -> int:
        """Take in the session of a full request if there is room; return its id, 0 if not."""
        assert session.id == INVALID_SESSION_ID
        if not session.entries:
            return INVALID_SESSION_ID
        if not session.privileged and self._client_bytes + session.bytes > MOST_CLIENT_BYTES:
            return INVALID_SESSION_ID
        if len(self._sessions) >= self._slots and not self._evict(session, now_ms):
            return INVALID_SESSION_ID
        session_id = self._new_id()
        while session_id in self._sessions or session_id == INVALID_SESSION_ID:
            session_id = self._new_id()
        session.id = session_id
        session.kept_bytes = session.bytes
        self._count(session)
        self._sessions[session_id] = session
        return session_id

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._entries -= session.cached_size
            self._client_bytes -= session.cached_bytes
            session.close()
            session.id = INVALID_SESSION_ID

    def _touch(self, session: FetchSession, now_ms: float) -> None:
        session.last_used_ms = now_ms
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def _evict(self, newcomer: FetchSession, now_ms: float) -> bool:
        """Make room: the stalest if unused for long, else the smallest that may be displaced.

        A follower displaces any client; others only give way once they are old, and then to one
        that is at least as valuable (privileged first, then by partitions).
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            victim = oldest
        else:
            candidates = [
                s for s in self._sessions.values() if self._evictable(s, newcomer, now_ms)
            ]
            if not candidates:
                return False
            victim = min(candidates, key=_worth)
            if (newcomer.privileged, len(newcomer), 0) < _worth(victim):
                return False
        self.remove(victim.id)
        self.evicted_total += 1
        return True

    @staticmethod
    def _evictable(session: FetchSession, newcomer: FetchSession, now_ms: float) -> bool:
        old = now_ms - session.created_ms > EVICTION_MS
        return old or (newcomer.privileged and not session.privileged)

    def statistics(self) -> dict[str, int]:
        return {
            "sessions": len(self._sessions),
            "partitions": self._entries,
            "evicted_total": self.evicted_total,
        }


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return (session.privileged, session.cached_size, session.id)
