"""Unclean elections, looked at before: who would lead, and which records would be lost.

Every live replica of a partition without a leader is asked where its log ends, by ListOffsets with
the replica id of the debugging consumer, to which followers respond, those of Apache Kafka too.
Invariant: nothing changes. What is computed of the log ends: `election_losses`.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ottla.client import configs
from ottla.client.client import Client, partitions_of
from ottla.client.error_texts import failure
from ottla.client.fetching import fetch
from ottla.client.offsets import offsets_at
from ottla.client.replica_comparison import Batch, batches_of
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import DEBUGGING_CONSUMER, EARLIEST, LATEST
from ottla.model.throttle_settings import LEASE
from ottla.model.waits import waiting
from ottla.placement.election_losses import (
    NOTHING_KNOWN,
    Candidate,
    LogEnd,
    Loss,
    leader_of,
    losses,
    parts,
)

PORTION = 1000
ONE_BATCH = 1
"""A Fetch of this many bytes returns one batch."""
MOST_PARTED = 50
"""In so many partitions batches are compared; of more only log ends are."""
TIMEOUT_S = 5.0
KNOWN_WITHIN_S = 5.0
LOOK_AGAIN_S = 0.05


class Preview(NamedTuple):
    """A partition without a leader: its replicas in the order of assignment, who would lead."""

    partition: TopicPartition
    candidates: tuple[Candidate, ...]
    leader: int | None
    parted: Mapping[int, int] = NOTHING_KNOWN
    """By replica: the first offset at which its log is not that of `leader`, if looked for."""

    def losses(self, leader: int | None = None) -> list[Loss]:
        """Return what would be lost if this replica led, or the one that would."""
        leader = self.leader if leader is None else leader
        if leader is None:
            return []
        return losses(
            self.candidates, leader, self.parted if leader == self.leader else NOTHING_KNOWN
        )

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
    leaderless = {
        tp: p
        for tp, p in partitions_of(response)
        if p.leader_id < 0 and (wanted is None or tp in wanted)
    }
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
    found.sort(key=lambda preview: preview.partition)
    return [
        preview._replace(parted=await _parted(client, preview)) if n < MOST_PARTED else preview
        for n, preview in enumerate(found)
    ]


async def _parted(client: Client, preview: Preview) -> dict[int, int]:
    """Look in the batches of logs of other leader epochs for where they part from the leader's."""
    if preview.leader is None:
        return {}
    ends = {c.broker: c.end.offset for c in preview.candidates if c.end is not None}
    found: dict[int, int] = {}
    for broker in parts(preview.candidates, preview.leader):
        end = min(ends[broker], ends.get(preview.leader, 0))
        with contextlib.suppress(OttlaError):  # it stays "or from an earlier one"
            found[broker] = await first_difference(
                client, preview.partition, preview.leader, broker, end
            )
    return found


async def first_difference(
    client: Client, tp: TopicPartition, one: int, other: int, end: int
) -> int:
    """Return the first offset below `end` at which two replicas differ, or `end`.

    Two logs with the same batch of the same leader epoch are the same before it, so halving finds
    it. OttlaError if a replica cannot be read.
    """
    low = 0
    for broker in (one, other):
        told, refused = await offsets_at(client, broker, {tp: EARLIEST})
        if tp in refused:
            raise refused[tp]
        low = max(low, told[tp].offset)
    high = end
    while low < high:
        middle = (low + high) // 2
        a, b = [await _batch_at(client, tp, broker, middle) for broker in (one, other)]
        if (a.base, a.last, a.crc, a.epoch) == (b.base, b.last, b.crc, b.epoch):
            low = a.last + 1
        else:
            high = min(a.base, b.base)
    return min(low, end)


async def _batch_at(client: Client, tp: TopicPartition, broker: int, offset: int) -> Batch:
    """Return the batch of a replica that holds an offset."""
    answered = await fetch(
        client, broker, {tp: offset}, partition_bytes=ONE_BATCH, replica_id=DEBUGGING_CONSUMER
    )
    for _, found in answered:
        if found.error_code:
            raise failure(f"offset {offset} was not read", found.error_code)
        for batch in batches_of(found.records):
            return batch
    raise OttlaError(f"{tp}: offset {offset} was not sent")


async def leaders(
    client: Client, partitions: AbstractSet[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return who leads these partitions, those with a leader.

    A broker may hear of an election a moment after the controller has responded: it is asked again
    for `KNOWN_WITHIN_S` while it knows no leader of one of them.
    """
    clock = asyncio.get_running_loop().time
    give_up_s = clock() + KNOWN_WITHIN_S
    with waiting() as wait:
        while True:
            response = await client.metadata(sorted({tp.topic for tp in partitions}))
            found = {
                tp: p.leader_id
                for tp, p in partitions_of(response)
                if tp in partitions and p.leader_id >= 0
            }
            if len(found) == len(partitions) or clock() >= give_up_s:
                return found
            wait.text = f"{min(partitions - found.keys())} has no leader yet"
            await asyncio.sleep(LOOK_AGAIN_S)


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
        asked = dict.fromkeys(partitions[first : first + PORTION], LATEST)
        try:
            told, _ = await offsets_at(client, broker, asked, timeout_s=TIMEOUT_S)
        except OttlaError:
            return found
        found |= {tp: LogEnd(end.leader_epoch, end.offset) for tp, end in told.items()}
    return found


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
