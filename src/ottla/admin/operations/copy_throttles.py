"""How long throttles make what is left of a reassignment last.

Invariants: nothing is changed; brokers are asked now and then for their rates, and for who leads;
one that does not respond counts as without a throttle. Works with any Kafka (KIP-73).
"""

from collections.abc import Mapping

from ottla.client import configs
from ottla.client.client import Client
from ottla.client.configs import BROKER
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.throttle_settings import FOLLOWER_RATE, LEADER_RATE, REPLICATION_RATES

ASK_EVERY_S = 10.0
ANSWERS_IN_S = 5.0


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
                    self._client, BROKER, str(broker), REPLICATION_RATES, timeout_s=ANSWERS_IN_S
                )
            except OttlaError:
                own = {}
            self._rates[broker] = {key: float(value) for key, value in own.items() if value}
