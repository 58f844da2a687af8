"""Progress of a reassignment in bytes, as the brokers' log dirs show it.

Invariants: nothing is changed; a broker that does not respond keeps its last sizes; brokers are
asked for the topics that move, and the less often the longer they take; how long throttles make
the rest last is asked now and then. Works with any Kafka (KIP-73, KIP-113).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client import configs, log_dirs
from ottla.client.client import Client
from ottla.client.configs import BROKER
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition, by_topic
from ottla.model.throttle_settings import FOLLOWER_RATE, LEADER_RATE, REPLICATION_RATES
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


ASK_EVERY_S = 10.0
SETTINGS_WITHIN_S = 5.0


class CopyThrottles:
    """The rates that brokers have been set, and who leads what is copied."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._next_s = float("-inf")
        self._rates: dict[int, dict[str, float]] = {}
        self._leaders: dict[TopicPartition, int] = {}

    async def least_s(
        self, left: Mapping[tuple[TopicPartition, int], int], now_s: float
    ) -> float | None:
        """Return how many seconds the throttles need for what is left; None if there are none.

        `left`: bytes by (partition, broker that gets them); `now_s` is a monotonic clock's.
        """
        copies = {key: size for key, size in left.items() if size > 0}
        if now_s >= self._next_s:
            await self._ask(copies)
            self._next_s = now_s + ASK_EVERY_S
        sent: dict[tuple[int, str], int] = {}
        for (tp, broker), size in copies.items():
            for end in ((broker, FOLLOWER_RATE), (self._leaders.get(tp, -1), LEADER_RATE)):
                sent[end] = sent.get(end, 0) + size
        times = [
            size / rate
            for (broker, key), size in sent.items()
            if (rate := self._rates.get(broker, {}).get(key))
        ]
        return max(times, default=None)

    async def _ask(self, copies: Mapping[tuple[TopicPartition, int], int]) -> None:
        topics = sorted({tp.topic for tp, _ in copies})
        try:
            found = await self._client.metadata(topics) if topics else None
        except OttlaError:
            return
        for topic in found.topics if found else ():
            for p in topic.partitions:
                self._leaders[TopicPartition(topic.name or "", p.partition_index)] = p.leader_id
        brokers = {b for _, b in copies} | {self._leaders.get(tp, -1) for tp, _ in copies}
        for broker in sorted(brokers - {-1}):
            try:
                own = await configs.own(
                    self._client,
                    BROKER,
                    str(broker),
                    REPLICATION_RATES,
                    timeout_s=SETTINGS_WITHIN_S,
                )
            except OttlaError:
                own = {}
            self._rates[broker] = {key: float(value) for key, value in own.items() if value}
