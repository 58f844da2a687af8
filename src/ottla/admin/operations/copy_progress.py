"""Progress of a reassignment in bytes, as the brokers' log dirs show it.

Who may call: the commands that wait for reassignments. Invariants: nothing is changed; a broker
that does not respond keeps its last sizes; brokers are asked for the topics that move, and the
less often the longer they take. Works with any Kafka (KIP-113).
"""

from collections.abc import Mapping

from ottla.admin.operations.copy_estimate import Estimate, Estimator, Sizes
from ottla.admin.operations.plans import Move
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.client import Client
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest

LOOK_EVERY_S = 1.0
SHARE = 10
"""Between two looks pass so many times as long as the last one took."""


class CopyProgress:
    """Sizes of the replicas that are added, beside those they are copied from."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._estimator = Estimator()
        self._next_s = 0.0
        # By (partition, new broker): bytes of the new replica, and of the largest old one.
        self._copies: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self._sizes: dict[int, dict[TopicPartition, int]] = {}
        self.estimate: Estimate | None = None

    async def look(self, moves: Mapping[TopicPartition, Move], now_s: float) -> Estimate | None:
        """Ask brokers if it is time; return the newest estimate. `now_s` is a monotonic clock's."""
        from asyncio import get_running_loop  # noqa: PLC0415 - the clock of how long it took

        if now_s < self._next_s:
            return self.estimate
        began_s = get_running_loop().time()
        await self._ask({b for move in moves.values() for b in move.replicas}, moves)
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
        self.estimate = self._estimator.add(now_s, Sizes(copied, total))
        self._next_s = now_s + max(LOOK_EVERY_S, SHARE * took_s)
        return self.estimate

    async def _ask(self, brokers: set[int], moves: Mapping[TopicPartition, Move]) -> None:
        r = DescribeLogDirsRequest
        topics: dict[str, list[int]] = {}
        for tp in sorted(moves):
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = r(
            topics=[r.DescribableLogDirTopic(topic=t, partitions=p) for t, p in topics.items()]
        )
        for broker in sorted(brokers):
            try:
                response = await self._client.call(request, broker)
            except OttlaError:
                continue
            self._sizes[broker] = {
                TopicPartition(t.name, p.partition_index): p.partition_size
                for found in response.results
                for t in found.topics
                for p in t.partitions
                if not p.is_future_key
            }
