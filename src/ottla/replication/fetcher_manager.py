"""All fetchers of a broker: which partition is in which.

Invariants: a partition is in at most one fetcher; one that failed is in none, until the next
LeaderAndIsr adds it again. Kafka: `ReplicaFetcherManager`.
"""

import asyncio
import zlib
from collections.abc import Iterable

from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.replication.fetcher import FetcherHost, LeaderFetcher, PartitionFetchState
from ottla.replication.inter_broker import FetcherSettings
from ottla.replication.partition import Partition


class FetcherManager:
    """All fetchers of a broker: which partition is in which."""

    def __init__(
        self, world: World, host: FetcherHost, settings: FetcherSettings, fetchers_per_leader: int
    ) -> None:
        self._world = world
        self._host = host
        self._settings = settings
        self._per_leader = fetchers_per_leader
        self._fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        self._where: dict[TopicPartition, LeaderFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.failed: dict[TopicPartition, int] = {}
        self._lost_before = 0
        self._doubtful_before = 0

    def add(self, partition: Partition) -> None:
        """Follow `partition.leader`; leaves whatever fetcher it was in before."""
        tp = partition.tp
        number = (zlib.crc32(tp.topic.encode()) + tp.partition) % self._per_leader
        key = (partition.leader, number)
        fetcher = self._fetchers.get(key)
        previous = self._where.get(tp)
        if previous is not None and previous is not fetcher:
            previous.remove(tp)
        if fetcher is None:
            fetcher = self._fetchers[key] = LeaderFetcher(
                self._world, self._host, self._settings, *key, self._failed
            )
            fetcher.start()
        self.failed.pop(tp, None)
        self._where[tp] = fetcher
        fetcher.add(partition)

    def remove(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            fetcher = self._where.pop(tp, None)
            if fetcher is not None:
                fetcher.remove(tp)
            self.failed.pop(tp, None)

    def resize(self, fetchers_per_leader: int) -> None:
        """Spread what is followed over so many fetchers of each leader (num.replica.fetchers)."""
        if fetchers_per_leader == self._per_leader:
            return
        self._per_leader = fetchers_per_leader
        followed = [f.states[tp].partition for tp, f in self._where.items() if tp in f.states]
        for partition in followed:
            self.add(partition)
        self.close_idle()

    def topic_id_changed(self, partition: Partition) -> None:
        fetcher = self._where.get(partition.tp)
        if fetcher is not None:
            fetcher.topic_id_changed(partition)

    def _failed(self, state: PartitionFetchState) -> None:
        self._where.pop(state.tp, None)
        self.failed[state.tp] = state.leader_epoch

    def close_idle(self) -> None:
        """End fetchers that have nothing to follow."""
        for key, fetcher in list(self._fetchers.items()):
            if not fetcher.states:
                del self._fetchers[key]
                self._lost_before += fetcher.records_lost_total
                self._doubtful_before += fetcher.records_doubtful_total
                task = asyncio.get_running_loop().create_task(fetcher.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._where.clear()
        await asyncio.gather(*(f.close() for f in fetchers), *self._closing)

    @property
    def records_lost_total(self) -> int:
        """How many committed records were cut off here, as the leaders did not have them (F43)."""
        return self._lost_before + sum(f.records_lost_total for f in self._fetchers.values())

    @property
    def records_doubtful_total(self) -> int:
        """How many records were cut off here that may have been acknowledged (F43)."""
        return self._doubtful_before + sum(
            f.records_doubtful_total for f in self._fetchers.values()
        )

    def lags(self) -> list[tuple[str, list[tuple[TopicPartition, int]]]]:
        """Return how far each followed partition is behind its leader, for each fetcher.

        A fetcher is named as Kafka's are, which is the clientId in its metrics.
        """
        return [
            (
                f"ReplicaFetcherThread-{number}-{leader}",
                [(tp, state.lag or 0) for tp, state in fetcher.states.items()],
            )
            for (leader, number), fetcher in self._fetchers.items()
        ]

    def statistics(self) -> dict[str, object]:
        return {
            "fetchers": [f.statistics() for f in self._fetchers.values()],
            "failed": len(self.failed),
        }
