"""Unclean elections, looked at before: who would lead, and which records would be lost.

Who may call: `ottla elect`, `elect` and tests. Every live replica of a partition without a leader
is asked where its log ends, by ListOffsets with the replica id of the debugging consumer, to which
followers respond, those of Apache Kafka too. Invariant: nothing changes. What is computed of the
log ends: `election_losses`.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.admin.operations import configs
from ottla.admin.operations.election_losses import (
    Candidate,
    LogEnd,
    Loss,
    leader_of,
    losses,
)
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import DEBUGGING_CONSUMER, LATEST
from ottla.model.throttle_settings import LEASE
from ottla.net.client import Client
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.messages.metadata import MetadataResponse

PORTION = 1000
TIMEOUT_S = 5.0


class Preview(NamedTuple):
    """A partition without a leader: its replicas in the order of assignment, who would lead."""

    partition: TopicPartition
    candidates: tuple[Candidate, ...]
    leader: int | None

    def losses(self, leader: int | None = None) -> list[Loss]:
        """Return what would be lost if this replica led, or the one that would."""
        leader = self.leader if leader is None else leader
        return [] if leader is None else losses(self.candidates, leader)

    @property
    def recommendation(self) -> str:
        """Say what to do instead, or that this election is the way."""
        dead = [c.broker for c in self.candidates if c.in_sync and not c.alive]
        if any(c.in_sync and c.alive for c in self.candidates):
            return "hold no unclean election: a replica in sync is alive and will lead"
        if not dead:
            return "no replica is known to be in sync; the election is the only way to a leader"
        words = _brokers(dead)
        if self.leader is None:
            return f"start {words}: no replica is alive that could lead"
        return (
            f"start {words} first: in sync, so with every acknowledged record; hold the "
            "election only if that cannot come back"
        )


async def previews(client: Client, partitions: Iterable[TopicPartition] | None) -> list[Preview]:
    """Return a preview of each of these partitions, or of all, that has no leader."""
    wanted = None if partitions is None else set(partitions)
    topics = None if wanted is None else sorted({tp.topic for tp in wanted})
    response = await client.metadata(topics)
    alive = {b.node_id for b in response.brokers}
    leaderless = {tp: p for tp, p in _leaderless(response) if wanted is None or tp in wanted}
    asked: dict[int, list[TopicPartition]] = {}
    for tp, p in leaderless.items():
        for replica in p.replica_nodes:
            if replica in alive and replica not in p.offline_replicas:
                asked.setdefault(replica, []).append(tp)
    ends = await log_ends(client, asked)
    longest_log = bool(leaderless) and await is_ottla(client, response.controller_id)
    found = []
    for tp, p in leaderless.items():
        candidates = tuple(
            Candidate(r, tp in asked.get(r, ()), r in p.isr_nodes, ends.get(r, {}).get(tp))
            for r in p.replica_nodes
        )
        found.append(Preview(tp, candidates, leader_of(candidates, longest_log=longest_log)))
    return sorted(found, key=lambda preview: preview.partition)


async def leaders(
    client: Client, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return who leads these partitions now, those with a leader."""
    response = await client.metadata(sorted({tp.topic for tp in partitions}))
    return {
        tp: p.leader_id
        for topic in response.topics
        for p in topic.partitions
        if (tp := TopicPartition(topic.name or "", p.partition_index)) in partitions
        and p.leader_id >= 0
    }


async def log_ends(
    client: Client, asked: Mapping[int, Sequence[TopicPartition]]
) -> dict[int, dict[TopicPartition, LogEnd]]:
    """Return where logs end by broker, those of brokers and partitions that respond."""
    brokers = list(asked)
    responses = await asyncio.gather(*(_log_ends(client, b, asked[b]) for b in brokers))
    return dict(zip(brokers, responses, strict=True))


async def is_ottla(client: Client, broker: int) -> bool:
    """Return whether a broker is one of Ottla's, by a setting that only those have.

    False where it does not respond.
    """
    if broker < 0:
        return False
    try:
        found = await configs.settings(
            client, configs.BROKER, str(broker), [LEASE], timeout_s=TIMEOUT_S
        )
    except OttlaError:
        return False
    return any(setting.key == LEASE for setting in found)


async def _log_ends(
    client: Client, broker: int, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, LogEnd]:
    found: dict[TopicPartition, LogEnd] = {}
    for first in range(0, len(partitions), PORTION):
        request = _request(partitions[first : first + PORTION])
        try:
            response = await client.call(request, broker, timeout_s=TIMEOUT_S)
        except OttlaError:
            return found
        found |= {
            TopicPartition(topic.name, p.partition_index): LogEnd(p.leader_epoch, p.offset)
            for topic in response.topics
            for p in topic.partitions
            if p.error_code == 0
        }
    return found


def _request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
    r = ListOffsetsRequest
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for tp in partitions:
        topic = topics.setdefault(tp.topic, r.ListOffsetsTopic(name=tp.topic))
        topic.partitions.append(
            r.ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST)
        )
    return r(replica_id=DEBUGGING_CONSUMER, topics=list(topics.values()))


def _leaderless(
    response: MetadataResponse,
) -> Iterable[tuple[TopicPartition, MetadataResponse.MetadataResponsePartition]]:
    for topic in response.topics:
        for p in topic.partitions:
            if p.leader_id < 0:
                yield TopicPartition(topic.name or "", p.partition_index), p


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
