"""Metadata blobs: the encoded topics of Metadata responses, kept until they change.

Invariants: a blob is what `encode_response` gives for that topic (it is cut out of it), so the
codec stays the only writer; blobs of a topic are dropped when an UpdateMetadata names it, all of
them when the live brokers change. Bound: the topics of the cluster, times the Metadata versions and
listeners in use.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ottla.broker.metadata.metadata_cache import Change, MetadataCache, Snapshot, TopicState
from ottla.model.errors import ErrorCode
from ottla.model.ids import INTERNAL_TOPICS
from ottla.model.ports import Buffer
from ottla.wire.codec import encode_response
from ottla.wire.messages.cluster import MetadataResponse

FIRST_FLEXIBLE_VERSION = 9


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS


def _encode(response: MetadataResponse, version: int) -> bytes:
    return b"".join(encode_response(response, version))


def _tail_size(version: int) -> int:
    """Return the bytes after the topics: cluster operations (v8-10), tagged fields (v9+)."""
    return (4 if 8 <= version <= 10 else 0) + (1 if version >= FIRST_FLEXIBLE_VERSION else 0)


def _count(number: int, version: int) -> bytes:
    if version < FIRST_FLEXIBLE_VERSION:
        return number.to_bytes(4, "big")
    number += 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


@cache
def _frame(version: int) -> tuple[int, int]:
    """Return how many bytes stand before and after the one topic of an else empty response."""
    tail = _tail_size(version)
    return len(_encode(MetadataResponse(), version)) - tail, tail


class EncodedTopic(NamedTuple):
    """One topic as it stands inside a response."""

    data: bytes
    errors: tuple[tuple[int, int], ...]
    """(error code, how often it is in it)"""


def encode_topic(topic: MetadataResponse.MetadataResponseTopic, version: int) -> EncodedTopic:
    """Return one topic as it stands inside a response of that version."""
    start, tail = _frame(version)
    whole = _encode(MetadataResponse(topics=[topic]), version)
    errors = Counter([int(topic.error_code), *(int(p.error_code) for p in topic.partitions)])
    return EncodedTopic(whole[start : len(whole) - tail], tuple(errors.items()))


def assemble(head: MetadataResponse, version: int, topics: Sequence[EncodedTopic]) -> list[Buffer]:
    """Return the body of `head` (which names no topics) with encoded topics put in."""
    assert not head.topics
    empty = _encode(head, version)
    tail = len(empty) - _tail_size(version)
    start = tail - len(_count(0, version))
    return [empty[:start], _count(len(topics), version), *(t.data for t in topics), empty[tail:]]


def describe_topic(
    snapshot: Snapshot, state: TopicState, listener: str, version: int
) -> MetadataResponse.MetadataResponseTopic:
    """Describe a known topic as clients of one listener and version see it."""
    reachable = snapshot.reachable(listener)
    partitions = []
    for p in state.partitions.values():
        error, leader = ErrorCode.NONE, p.leader
        replicas, isr = p.replicas, p.isr
        if version == 0:
            # The first version had no way to name a broker that is away.
            replicas = tuple(r for r in replicas if r in reachable)
            isr = tuple(r for r in isr if r in reachable)
        if leader not in reachable:
            lacks_listener = p.leader in snapshot.brokers and version >= 6
            error = (
                ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE
            )
            leader = -1
        elif len(replicas) < len(p.replicas) or len(isr) < len(p.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        partitions.append(
            MetadataResponse.MetadataResponsePartition(
                error_code=error,
                partition_index=p.partition,
                leader_id=leader,
                leader_epoch=p.leader_epoch,
                replica_nodes=list(replicas),
                isr_nodes=list(isr),
                offline_replicas=list(p.offline_replicas),
            )
        )
    return MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=state.name,
        topic_id=state.topic_id,
        is_internal=is_internal(state.name),
        partitions=partitions,
    )


class MetadataBlobs:
    """Encoded topics by (version, listener), then by name."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._blobs: dict[tuple[int, str], dict[str, EncodedTopic]] = {}
        cache.on_change(self._changed)

    def _changed(self, change: Change) -> None:
        if change.brokers_changed:
            self._blobs.clear()
            return
        for blobs in self._blobs.values():
            for topic in change.topics:
                blobs.pop(topic, None)

    def topic(self, name: str, listener: str, version: int) -> EncodedTopic | None:
        """Return a known topic, None if the cache has no such topic."""
        blobs = self._blobs.get((version, listener))
        if blobs is None:
            blobs = self._blobs[version, listener] = {}
        blob = blobs.get(name)
        if blob is None:
            snapshot = self._cache.snapshot
            state = snapshot.topics.get(name)
            if state is None:
                return None
            blob = encode_topic(describe_topic(snapshot, state, listener, version), version)
            blobs[name] = blob
        return blob
