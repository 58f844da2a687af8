"""Progress of a reassignment in bytes, as the brokers' log dirs show it.

Invariants: nothing is changed; a broker that does not respond keeps its last sizes; brokers are
asked for the topics that move, and the less often the longer they take. Works with any Kafka
(KIP-113).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.admin.operations.copy_throttles import CopyThrottles
from ottla.client import log_dirs
from ottla.client.client import Client
from ottla.model.ids import TopicPartition, by_topic
from ottla.placement.copy_estimate import Estimate, Estimator, Sizes
from ottla.placement.plans import Move

LOOK_EVERY_S = 1.0
ANSWERS_IN_S = 5.0
ASK_SILENT_AGAIN_S = 10.0
"""A broker that did not respond is left alone for so long."""
SHARE = 10
"""Between two looks pass so many times as long as the last one took."""


class Copied(NamedTuple):
    """Of one partition: bytes of its new replicas, and what they are to have; all of them added."""

    copied: int
    of: int


class CopyProgress:
    """Sizes of the replicas that are added, beside those they are copied from."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._throttles = CopyThrottles(client)
        self._estimator = Estimator()
        self._next_s = 0.0
        # By (partition, new broker): bytes of the new replica, and of the largest old one.
        self._copies: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self._sizes: dict[int, dict[TopicPartition, int]] = {}
        self._silent: dict[int, float] = {}
        self._failed: list[int] = []
        self.estimate: Estimate | None = None

    async def look(
        self, moves: Mapping[TopicPartition, Move], now_s: float, *, anyway: bool = False
    ) -> Estimate | None:
        """Ask brokers if it is time, or anyway; return the newest estimate.

        `now_s` is a monotonic clock's.
        """
        from asyncio import get_running_loop  # the clock of how long it took

        if now_s < self._next_s and not anyway:
            return self.estimate
        began_s = get_running_loop().time()
        brokers = {b for move in moves.values() for b in move.replicas}
        await self._ask([b for b in sorted(brokers) if self._silent.get(b, 0.0) <= now_s], moves)
        self._silent |= dict.fromkeys(self._failed, now_s + ASK_SILENT_AGAIN_S)
        took_s = get_running_loop().time() - began_s
        for tp, move in moves.items():
            of = max((self._sizes.get(b, {}).get(tp, 0) for b in move.original), default=0)
            for broker in move.adding:
                self._copies[tp, broker] = (min(of, self._sizes.get(broker, {}).get(tp, 0)), of)
        for (tp, broker), (_, of) in self._copies.items():
            if tp not in moves:  # it is done
                self._copies[tp, broker] = (of, of)
        copied: dict[int, int] = {}
        total: dict[int, int] = {}
        for (_, broker), (have, of) in self._copies.items():
            copied[broker] = copied.get(broker, 0) + have
            total[broker] = total.get(broker, 0) + of
        left = {of: whole - have for of, (have, whole) in self._copies.items()}
        least_s = await self._throttles.least_s(left, now_s)
        self.estimate = self._estimator.add(now_s, Sizes(copied, total, least_s))
        self._next_s = now_s + max(LOOK_EVERY_S, SHARE * took_s)
        return self.estimate

    def by_partition(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Copied]:
        """Return what was copied of each of these, as of the last look."""
        found = dict.fromkeys(partitions, Copied(0, 0))
        for (tp, _), (have, of) in self._copies.items():
            if tp in found:
                found[tp] = Copied(found[tp].copied + have, found[tp].of + of)
        return found

    async def _ask(self, brokers: Sequence[int], moves: Mapping[TopicPartition, Move]) -> None:
        only = by_topic(sorted(moves))
        found = await log_dirs.describe(self._client, brokers, only=only, timeout_s=ANSWERS_IN_S)
        self._failed = found.silent
        self._sizes |= {broker: {} for broker in brokers if broker not in found.silent}
        for lying in found.replicas:
            if not lying.is_future:
                self._sizes[lying.broker][lying.partition] = lying.size
