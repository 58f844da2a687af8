"""All partitions on this broker, and the loops that keep them: ISR expiry, checkpoints, fetchers.

Invariants:
- `partitions` holds what the controller gave us; `offline` what a failed log dir took away. Nothing
  is in both, and what is in neither is not ours (the response then depends on the metadata cache)
- `controller_epoch` never goes back (R10)
- no call here blocks for long: whatever grows with the number of partitions goes in slices

Self-fencing: `fence` stops ISR changes while this broker has no ZooKeeper session. It does not stop
acks=all, and need not: see `partition`, "Why a leader that lost its ZooKeeper session may go on".

Kafka: `ReplicaManager`.
"""

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from typing import Protocol

import msgspec

from ottla.log.manager import LogManager
from ottla.log.results import NotInMemoryError, Prefetchable, TimestampOffset
from ottla.log.time_search import Search
from ottla.model.cluster import Endpoint
from ottla.model.config import LEAST_INTERVAL_S, BrokerConfig, TopicConfig
from ottla.model.errors import (
    ErrorCode,
    NotLeaderError,
    OttlaError,
    StorageError,
    UnknownTopicError,
)
from ottla.model.ids import TopicPartition
from ottla.model.ports import Workers, World
from ottla.model.steps import Driven
from ottla.model.time_slices import InTimeSlices, end_tasks
from ottla.net.peer import PeerConnection
from ottla.replication.alter_partition import AlterPartitionManager
from ottla.replication.damaged_replicas import DamagedReplicas
from ottla.replication.eligible_records import EligibleRecords, VoidEligible, no_records
from ottla.replication.fetch_session import SessionCache
from ottla.replication.fetcher import LeaderFetcher, PartitionFetchState
from ottla.replication.fetching import FetchPath, Reader
from ottla.replication.inter_broker import FetcherSettings
from ottla.replication.log_dir_moves import LogDirMoves
from ottla.replication.partition import Host, Partition
from ottla.replication.partition_state import IsrChange
from ottla.replication.purgatory import Purgatory
from ottla.replication.tail_recovery import TailRecovery
from ottla.replication.throttle import ReplicationQuota, throttled_partitions
from ottla.replication.topic_counts import BrokerTopicCounts
from ottla.security.client import ClientSecurity

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one class that replica.selector.class may name: it is what this module does."""


class Candidate(msgspec.Struct, frozen=True):
    """A replica that a consumer may read from. `rack` is None where its broker has none."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: float
    """how long ago it was caught up"""


def nearest(rack: str, leader_rack: str | None, candidates: Iterable[Candidate]) -> int | None:
    """Return the broker to read from instead of the leader; None if that is the one to read from.

    Of several in the consumer's rack the one that is furthest, then caught up last, then of the
    highest id.
    """
    if not rack or leader_rack == rack:
        return None
    near = [c for c in candidates if c.rack == rack]
    best = max(near, key=lambda c: (c.log_end_offset, -c.behind_ms, c.broker_id), default=None)
    return None if best is None else best.broker_id


class FetcherManager:
    """All fetchers of a broker: which partition is in which.

    Invariants: a partition is in at most one fetcher; one that failed is in none, until the next
    LeaderAndIsr adds it again. Kafka: `ReplicaFetcherManager`.
    """

    def __init__(
        self, world: World, host: Host, settings: FetcherSettings, fetchers_per_leader: int
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
        key = (partition.state.leader, number)
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


class DiskReads:
    """What is being read for fetches that are parked or come again.

    Invariants: a range that is requested while it is being read is read once; each caller is called
    back exactly once, also if the read failed: the next attempt gets the error. Kafka: its request
    handler threads, each of which may wait for a disk.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._under_way: dict[tuple[Prefetchable, int], asyncio.Task[None]] = {}
        self.total = 0
        self._searches = asyncio.Semaphore(1)

    async def search(self, search: Search) -> TimestampOffset | None:
        """Search a log by time. One worker at a time does so: a batch may take a second."""
        driven = Driven(search)
        for job in driven:
            async with self._searches:
                await self._workers.run(job)
        return driven.result

    def read_from_disk(self, places: Iterable[NotInMemoryError], then: Callable[[], None]) -> None:
        """Have all places read, then call `then`, in a later turn of the loop."""
        waits: dict[asyncio.Task[None], None] = {}
        for place in places:
            key = place.file, place.position
            task = self._under_way.get(key)
            if task is None:
                task = asyncio.get_running_loop().create_task(self._read(place), name="disk-read")
                self._under_way[key] = task
                self.total += 1
            waits[task] = None

        def one_less(task: asyncio.Task[None]) -> None:
            del waits[task]
            if not waits and not task.cancelled():
                then()

        for task in tuple(waits):
            task.add_done_callback(one_less)

    async def _read(self, place: NotInMemoryError) -> None:
        try:
            # The caller reads again and gets the error then.
            with contextlib.suppress(OSError):
                await self._workers.run(place.file.prefetch, place.size, place.position)
        finally:
            del self._under_way[place.file, place.position]

    async def close(self) -> None:
        await end_tasks(*self._under_way.values())


logger = logging.getLogger(__name__)

MAX_SESSION_ID = 2**31 - 1

LeadershipListener = Callable[[list[Partition], list[Partition]], None]
"""Called with (elected, resigned); `leader_epoch` of each is the epoch in which it happened.
Elected: led by this broker from now on, and not before. Resigned: followed in a new epoch, deleted
by StopReplica, or offline with its log dir; the listener knows whether it was led before.
Called before the response to the controller leaves, never during an append; it returns at once and
never raises."""


class ClusterView(Protocol):
    """What replication wants to know of the rest of the cluster: the broker's metadata cache."""

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return a live broker's address, None for one that is dead."""
        ...

    def partition(self, topic: str, partition: int) -> object | None:
        """Return anything but None for a partition that exists."""
        ...

    def rack(self, broker_id: int, listener: str) -> str | None:
        """Return the rack of a live broker that has this listener."""
        ...


class LiveBrokers(Container[int]):
    """The ids of the brokers that the metadata cache takes for alive."""

    __slots__ = ("_cluster", "_listener")

    def __init__(self, cluster: ClusterView, listener: str) -> None:
        self._cluster = cluster
        self._listener = listener

    def __contains__(self, broker_id: object) -> bool:
        assert isinstance(broker_id, int)
        return self._cluster.endpoint(broker_id, self._listener) is not None


class ReplicaManager:
    """Registry of partitions, and the shell around the rules."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        logs: LogManager,
        *,
        cluster: ClusterView,
        broker_epoch: Callable[[], int],
        controller_peer: Callable[[], Awaitable[PeerConnection]],
        on_leadership: LeadershipListener | None = None,
        on_log_dir_offline: Callable[[str], None] | None = None,
        announce: Callable[[], None] = lambda: None,
        void_eligible: VoidEligible = no_records,
        security: ClientSecurity | None = None,
    ) -> None:
        """`announce` has the controller find out, by LeaderAndIsr, which replicas are online.

        `void_eligible` deletes records of eligible replicas, see `eligible_records`.
        """
        self.world = world
        self.config = config
        self.logs = logs
        self.broker_id = config.broker_id
        self.lag_ms = float(config.integer("replica.lag.time.max.ms"))
        self.may_propose = True
        self.controller_epoch = 0
        self.shutting_down = False
        self.leaving = False
        """Asked to shut down: no ISR takes this broker in (R9), so it begins to follow nothing."""
        self.rack_aware = config.text("replica.selector.class") == RACK_AWARE
        self.partition_kind = Partition
        """What partitions are made of; a simulation's judge has one that it looks at."""
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: dict[TopicPartition, None] = {}
        self.topic_names: dict[bytes, str] = {}
        self.topic_counts = BrokerTopicCounts()
        self.on_leadership = on_leadership
        self.on_log_dir_offline = on_log_dir_offline
        self.control_lock = asyncio.Lock()
        self.clock = world.clock
        self._cluster = cluster
        self._listener = config.inter_broker_listener
        self.alive = LiveBrokers(cluster, self._listener)
        self._broker_epoch = broker_epoch
        self._started = False
        self._checkpointing = False
        self._loops: list[asyncio.Task[None]] = []
        self.fetch_max_bytes = config.integer("fetch.max.bytes")
        self.purgatory = Purgatory(world.clock)
        self.sessions = SessionCache(
            config.integer("max.incremental.fetch.session.cache.slots"),
            lambda: world.random.randint(1, MAX_SESSION_ID),
        )
        samples = config.integer("replication.quota.window.num")
        window_ms = config.integer("replication.quota.window.size.seconds") * 1000.0
        self.leader_quota = ReplicationQuota(samples, window_ms)
        self.follower_quota = ReplicationQuota(samples, window_ms)
        self.log_dirs_quota = ReplicationQuota(
            config.integer("alter.log.dirs.replication.quota.window.num"),
            config.integer("alter.log.dirs.replication.quota.window.size.seconds") * 1000.0,
        )
        self.disk_reads = DiskReads(world.workers)
        self.read_from_disk = self.disk_reads.read_from_disk
        self.fetches = FetchPath(self, self.purgatory, self.sessions)
        logs.on_dir_failure = self.log_dir_failed
        self.alter = AlterPartitionManager(
            world.clock, self.broker_id, broker_epoch, controller_peer
        )
        self.eligible_records = EligibleRecords(void_eligible)
        settings = FetcherSettings.of(config, security)
        self.fetchers = FetcherManager(
            world, self, settings, config.integer("num.replica.fetchers")
        )
        self.recovery = TailRecovery(world, self, settings)
        self.moves = LogDirMoves(world, self, logs, self.log_dirs_quota, settings.backoff_s)
        self.damaged = DamagedReplicas(world, self, logs, announce)

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the loops; to be called inside the running event loop, with the logs loaded."""
        loop = asyncio.get_running_loop()
        self._started = True
        self.alter.start()
        self.eligible_records.start()
        self.damaged.start()
        self._loops = [
            loop.create_task(self._expire_isr(), name="isr-expiration"),
        ]

    def begin_checkpoints(self) -> None:
        """Write high watermarks from now on: the first LeaderAndIsr has been applied.

        Until then what was read at the start is what is true; nothing here knows better.
        """
        if self._started and not self.shutting_down and not self._checkpointing:
            self._checkpointing = True
            task = self._checkpoint()
            name = "high-watermark-checkpoint"
            self._loops.append(asyncio.get_running_loop().create_task(task, name=name))

    async def shutdown(self) -> None:
        """Stop following and serving, write the high watermarks. The logs stay open."""
        self.shutting_down = True
        await end_tasks(*self._loops)
        await self.damaged.close()
        await self.recovery.close()
        await self.moves.close()
        await self.fetchers.close()
        await self.alter.close()
        await self.eligible_records.close()
        await self.disk_reads.close()
        self.purgatory.close()
        if self._started:
            # Not after a start that failed: the folders may be another broker's.
            await self.logs.write_high_watermarks(self.world.workers)

    def accept_controller_epoch(self, epoch: int) -> bool:
        """Note the epoch of a control request; return whether it is the highest so far (R10)."""
        if epoch < self.controller_epoch:
            return False
        self.controller_epoch = epoch
        return True

    def fence(self) -> None:
        """Stop proposing ISR changes: the ZooKeeper session is gone."""
        self.may_propose = False

    def unfence(self) -> None:
        """Propose ISR changes again: registered under a new session."""
        self.may_propose = True

    # --- what partitions, fetches and fetchers ask (`Host`) -----------------

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch()

    def now_ms(self) -> float:
        return self.clock.monotonic() * 1000.0

    def endpoint(self, broker_id: int) -> Endpoint | None:
        return self._cluster.endpoint(broker_id, self._listener)

    def submit_isr_change(self, partition: Partition, change: IsrChange) -> None:
        self.alter.submit(partition, change)

    def prove_isr(self, partition: Partition) -> None:
        self.eligible_records.want(partition)

    def throttle(self, topic: str, config: TopicConfig) -> None:
        """Take over which replicas of a topic its settings put under the throttles (KIP-73)."""
        for quota, replicas in (
            (self.leader_quota, config.leader_replication_throttled_replicas),
            (self.follower_quota, config.follower_replication_throttled_replicas),
        ):
            quota.throttle(topic, throttled_partitions(replicas, self.broker_id))

    def preferred_replica(self, partition: Partition, reader: Reader, offset: int) -> int | None:
        """Return the follower that a consumer had better read from (KIP-392), None to stay here.

        Only followers in sync that have the offset: one that lags would be chosen again and again.
        """
        if not partition.state.is_leader or not self.rack_aware:
            return None
        rack, listener = reader
        now_ms = self.now_ms()
        near = [
            Candidate(
                f.broker_id,
                self._cluster.rack(f.broker_id, listener),
                f.log_end_offset,
                now_ms - f.last_caught_up_ms,
            )
            for f in partition.state.followers.values()
            if f.broker_id in partition.state.isr.committed
            and f.log_start_offset <= offset <= f.log_end_offset
        ]
        return nearest(rack, self._cluster.rack(self.broker_id, listener), near)

    def is_unclean(self, tp: TopicPartition) -> bool:
        """Return whether a log may have lost its tail, and was not shown to be complete since."""
        return tp in self.logs.unclean

    def leaves(self, topic: str, index: int) -> bool:
        """Return whether a damaged partition will soon be served by another replica."""
        return self.damaged.leaves(TopicPartition(topic, index))

    def in_sync(self, tp: TopicPartition) -> None:
        """Note that a log holds all that was acknowledged (R18)."""
        self.logs.unclean.discard(tp)

    async def make_truncations_durable(self) -> None:
        """Wait until the truncations so far are durable; a worker sees to it."""
        await self.logs.make_truncations_durable(self.world.workers)

    # --- lookups --------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> Partition | None:
        return self.partitions.get(tp)

    def hosted(self, topic: str, index: int) -> Partition:
        """Return a partition on this broker, or raise what its absence means."""
        # A plain tuple equals and hashes like the TopicPartition; making one would cost more.
        partition = self.partitions.get((topic, index))  # type: ignore[call-overload]
        if partition is not None:
            assert isinstance(partition, Partition)
            return partition
        tp = TopicPartition(topic, index)
        if tp in self.offline:
            raise StorageError(f"{tp} is in an offline log directory")
        if self._cluster.partition(topic, index) is not None:
            raise NotLeaderError(f"{tp} is not on broker {self.broker_id}")
        raise UnknownTopicError(f"{tp} is not known")

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the topic of an id that we host partitions of.

        LeaderAndIsr may come before UpdateMetadata: a follower must not wait for the latter.
        """
        return self.topic_names.get(topic_id)

    def forget_topic(self, partition: Partition) -> None:
        """Forget a deleted partition's topic id and counts with the last partition of it."""
        topic = partition.tp.topic
        if not any(p.tp.topic == topic for p in self.partitions.values()):
            self.topic_names.pop(partition.state.topic_id, None)
            self.topic_counts.forget(topic)

    def exists(self, topic: str, index: int) -> bool:
        """Return whether the cluster has such a partition, as far as this broker knows."""
        return self._cluster.partition(topic, index) is not None

    def leaders(self) -> Iterator[Partition]:
        return (p for p in self.partitions.values() if p.state.is_leader)

    def last_offset_for_epoch(
        self, topic: str, index: int, current_epoch: int, epoch: int
    ) -> tuple[int, int]:
        """Serve OffsetForLeaderEpoch: (largest epoch not above, its end), -1s if unknown."""
        partition = self.hosted(topic, index)
        return partition.local_log(current_epoch, leader_only=True).end_offset_for_epoch(epoch)

    # --- logs -----------------------------------------------------------------------------------

    def log_dir_failed(self, log_dir: str) -> None:
        """Take every partition of a log directory offline (R12). The log manager calls this."""
        failed = [
            p for p in self.partitions.values() if p.log is not None and p.log.failed is not None
        ]
        logger.error("log dir offline dir=%s partitions=%d", log_dir, len(failed))
        self.fetchers.remove([p.tp for p in failed])
        for partition in self.partitions.values():
            future = partition.future
            if future is not None and future.failed is not None:
                logger.warning(
                    "log dir move ended partition=%s reason=the target dir failed", partition.tp
                )
                self.moves.remove((partition.tp,))
                partition.future = None
        for partition in failed:
            self.take_offline(partition)
        if self.on_log_dir_offline is not None:
            self.on_log_dir_offline(log_dir)

    def give_up(self, tp: TopicPartition) -> None:
        """Neither lead nor follow a partition that is damaged here; its log stays."""
        partition = self.partitions.get(tp)
        self.recovery.cancel(tp)
        self.fetchers.remove((tp,))
        if partition is not None:
            self.take_offline(partition)
        self.offline[tp] = None

    def take_offline(self, partition: Partition) -> None:
        self.partitions.pop(partition.tp, None)
        self.moves.remove((partition.tp,))
        self.offline[partition.tp] = None
        partition.stop(ErrorCode.KAFKA_STORAGE_ERROR)
        if self.on_leadership is not None:
            # Later: it may be the listener's own append that found the disk broken.
            asyncio.get_running_loop().call_soon(self.on_leadership, [], [partition])

    def leadership_changed(self, elected: list[Partition], resigned: list[Partition]) -> None:
        """Notify the listener, if there is one and anything changed."""
        if self.on_leadership is not None and (elected or resigned):
            self.on_leadership(elected, resigned)

    async def _checkpoint(self) -> None:
        interval_s = self.config.interval_s("replica.high.watermark.checkpoint.interval.ms")
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.logs.write_high_watermarks(self.world.workers)
            except (OttlaError, OSError) as error:
                logger.warning("high watermarks not written error=%s", error)
            except Exception:  # a loop root
                logger.exception("high watermarks not written")

    # --- ISR expiry -----------------------------------------------------------------------------

    async def _expire_isr(self) -> None:
        interval_s = max(self.lag_ms / 2000, LEAST_INTERVAL_S)
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.expire_isr_once()
            except Exception:  # a loop root: without it members that died would never leave
                logger.exception("isr expiration failed")

    async def raise_high_watermarks(self) -> None:
        """Look again which followers outside the ISR are to be waited for: brokers came or went.

        Where producers wait for a broker that is gone, no append or fetch would do it.
        """
        async for partition in InTimeSlices(list(self.leaders()), self.clock):
            if partition.state.is_leader and partition.log is not None:
                partition.raise_high_watermark()

    async def expire_isr_once(self) -> None:
        """Let every partition we lead drop members that lag for too long."""
        async for partition in InTimeSlices(list(self.partitions.values()), self.clock):
            partition.maybe_shrink_isr()

    def statistics(self) -> dict[str, object]:
        partitions = self.partitions.values()
        return {
            "partitions": len(partitions),
            "leaders": sum(p.state.is_leader for p in partitions),
            "under_replicated": sum(
                p.state.is_leader and len(p.state.isr.committed) < len(p.state.replicas)
                for p in partitions
            ),
            "under_min_isr": sum(p.state.is_leader and p.under_min_isr for p in partitions),
            "offline": len(self.offline),
            "isr_changes_total": sum(p.state.isr_changes_total for p in partitions),
            "purgatory": self.purgatory.statistics(),
            "sessions": self.sessions.statistics(),
            "alter_partition": self.alter.statistics(),
            "fetchers": self.fetchers.statistics(),
            "leader_throttle": self.leader_quota.statistics(self.now_ms()),
            "follower_throttle": self.follower_quota.statistics(self.now_ms()),
            "tail_recovery": self.recovery.statistics(),
            "log_dir_moves": self.moves.statistics(),
            "damaged_replicas": self.damaged.statistics(),
        }
