"""Metrics: what a JVM broker tells by JMX, under the same names, of this broker.

Who may call: `process`, which shows them to this machine's operators. Invariants: nothing is
measured for its own sake while requests are served but what `request_times` says; the rest is
looked up on request, at most once a second; counts that become rates are noted every few
seconds. What a figure means where it is not Kafka's own meaning is in docs/METRICS.md. Kafka:
`KafkaMetricsGroup` and its many callers.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Protocol

import msgspec

from ottla.broker.metrics.request_times import RequestTimes, summary
from ottla.controller.loop import Controller
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.log.manager import LogManager
from ottla.net.server import Server
from ottla.replication.delayed_produce import DelayedProduce
from ottla.replication.fetching import DelayedFetch
from ottla.replication.replica_manager import ReplicaManager
from ottla.wire.codec import APIS

SAMPLE_S = 5.0
WATCHED_TICK_S, UNWATCHED_TICK_S = 0.02, 1.0
"""How often the event loop's lateness is measured. Fifty timers a second cost CPU that matters
beside consumers, so it is only while the figures are read."""
WATCHED_FOR_S = 60.0
LATE_MS = (10, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10_000)
"""Bounds of what is counted as late, in milliseconds."""
WINDOW = 12
"""Samples kept: rates are of the last minute."""
FRESH_S = 1.0
EVENT_TIMES = "kafka.controller:type=ControllerStats,name="

Figures = dict[str, dict[str, Any]]
"""Attributes by MBean name."""


class Services(Protocol):
    """Those parts of a broker that have figures of their own."""

    replicas: ReplicaManager
    controller: Controller
    groups: GroupCoordinator


class Measured(Protocol):
    """A broker, as far as its figures go."""

    logs: LogManager

    @property
    def services(self) -> Services: ...

    @property
    def times(self) -> RequestTimes: ...

    @property
    def listeners(self) -> Mapping[str, Server]: ...

    @property
    def state(self) -> IntEnum: ...


class ThreadTimes:
    """What the system says of one thread's time, of the thread that asks first."""

    def __init__(self) -> None:
        self._fd = -1

    def _read(self) -> bytes:
        # Kept open: it is read fifty times a second, and to open it costs ten times as much.
        if self._fd < 0:
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._fd, 200, 0)

    def busy_s(self) -> float:
        """Return the seconds it ran, or wanted to: on Linux it counts waiting for a core."""
        try:
            ran_ns, waited_ns, _ = self._read().split()
            return (int(ran_ns) + int(waited_ns)) / 1e9
        except (OSError, ValueError):
            return time.thread_time()

    def core_wait_s(self) -> float:
        """Return how long it waited for a core so far; 0 where the system does not tell."""
        try:
            return int(self._read().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _gauge(value: float) -> dict[str, Any]:
    return {"Value": value}


class Metrics:
    """The figures of one broker, made and run on the loop's thread.

    `busy_s` is what `ThreadTimes` says of that thread.
    """

    def __init__(
        self,
        broker: Measured,
        busy_s: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker
        self._times = ThreadTimes()
        self._busy_s = busy_s or self._times.busy_s
        self._monotonic = monotonic
        self._samples: deque[tuple[float, float, Mapping[str, int]]] = deque(maxlen=WINDOW + 1)
        self._late = dict.fromkeys(LATE_MS, 0)
        self._late_max_ms = 0.0
        self._late_maxima: deque[float] = deque(maxlen=WINDOW)
        self._made_s = float("-inf")
        self._watched_until_s = float("-inf")
        self._document = b""
        self.sample()

    async def run(self) -> None:
        """Note the counts now and then, and how late the loop is, until cancelled. A loop root."""
        loop = asyncio.get_running_loop()
        sample_s = self._monotonic() + SAMPLE_S
        due_s = waited_s = 0.0
        timer: asyncio.TimerHandle

        def begin(now_s: float) -> None:
            nonlocal due_s, waited_s, timer
            watched = now_s < self._watched_until_s
            tick_s = WATCHED_TICK_S if watched else UNWATCHED_TICK_S
            due_s = now_s + tick_s
            if watched:
                waited_s = self._times.core_wait_s()
            timer = loop.call_later(tick_s, tick)

        def tick() -> None:
            nonlocal sample_s, waited_s
            now_s = self._monotonic()
            late_s = now_s - due_s
            if late_s * 1000 >= LATE_MS[0]:
                waited_before_s, waited_s = waited_s, self._times.core_wait_s()
                late_s = max(late_s - (waited_s - waited_before_s), 0.0)  # others' doing, not ours
            self.note_lateness(late_s * 1000)
            if now_s >= sample_s:
                sample_s = now_s + SAMPLE_S
                self.sample()
                waited_s = self._times.core_wait_s()
            begin(now_s)

        waited_s = self._times.core_wait_s()
        begin(self._monotonic())
        try:
            await asyncio.Event().wait()
        finally:
            timer.cancel()

    def note_lateness(self, late_ms: float) -> None:
        """Count a callback that ran so much later than it was due."""
        self._late_max_ms = max(self._late_max_ms, late_ms)
        for bound_ms in LATE_MS:
            if late_ms < bound_ms:
                break
            self._late[bound_ms] += 1

    def sample(self) -> None:
        """Note what rates are made from."""
        self._late_maxima.append(self._late_max_ms)
        self._late_max_ms = 0.0
        self._samples.append((self._monotonic(), self._busy_s(), self._counts()))

    def document(self) -> bytes:
        """Return all figures as JSON, not older than a second."""
        now_s = self._monotonic()
        self._watched_until_s = now_s + WATCHED_FOR_S
        if now_s - self._made_s >= FRESH_S:
            self._made_s = now_s
            self._document = msgspec.json.encode(self.figures()) + b"\n"
        return self._document

    def figures(self) -> Figures:
        """Return all figures as they are now."""
        then_s, then_busy_s, then = self._samples[0]
        span_s = self._monotonic() - then_s
        idle = 1.0
        if span_s > 0:
            busy = (self._busy_s() - then_busy_s) / span_s
            idle = round(min(1.0, max(0.0, 1.0 - busy)), 3)
        found = self._of_network(idle) | self._of_replicas() | self._of_controller()
        found |= self._of_groups()
        for name, count in self._counts().items():
            rate = round((count - then.get(name, 0)) / span_s, 3) if span_s > 0 else 0.0
            found[name] = {"Count": count, "OneMinuteRate": rate}
        for name, kept in self._broker.services.controller.times.times():
            found[f"{EVENT_TIMES}{name}"] = summary(kept) | found[f"{EVENT_TIMES}{name}"]
        for key, times in self._broker.times.figures():
            found[f"kafka.network:type=RequestMetrics,name=TotalTimeMs,request={_api(key)}"] = times
        return dict(sorted(found.items()))

    def _counts(self) -> dict[str, int]:
        """Return what only ever grows."""
        alter = self._broker.services.replicas.alter
        said: Any = self._broker.services.controller.statistics()
        found = {
            "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec": alter.shrinks_total,
            "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec": alter.expands_total,
            "kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec": alter.failed_total,
            "ottla.server:type=ReplicaManager,name=LostRecordsPerSec": (
                self._broker.services.replicas.fetchers.records_lost_total
            ),
            "ottla.controller:type=ControllerStats,name=LeadersElectedPerSec": (
                said["elections_total"]
            ),
            "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec": (
                said["unclean_elections_total"]
            ),
        }
        for name, count in self._broker.services.controller.times.counts():
            found[f"{EVENT_TIMES}{name}"] = count
        for key, count in self._broker.times.counts():
            name = f"kafka.network:type=RequestMetrics,name=RequestsPerSec,request={_api(key)}"
            found[name] = count
        return found

    def _of_network(self, idle: float) -> Figures:
        channel, sockets = "kafka.network:type=RequestChannel", "kafka.network:type=SocketServer"
        listeners = self._broker.listeners
        queued = [server.queued() for server in listeners.values()]
        found = {
            "ottla:type=EventLoop,name=LatenessMs": {
                "Max": round(max((*self._late_maxima, self._late_max_ms)), 1),
                **{f"CountFrom{bound_ms}": count for bound_ms, count in self._late.items()},
            },
            f"{channel},name=RequestQueueSize": _gauge(sum(requests for requests, _ in queued)),
            f"{channel},name=ResponseQueueSize": _gauge(sum(responses for _, responses in queued)),
            f"{sockets},name=NetworkProcessorAvgIdlePercent": _gauge(idle),
            "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent": {
                "OneMinuteRate": idle
            },
        }
        for name, server in listeners.items():
            found[f"kafka.server:type=socket-server-metrics,listener={name}"] = {
                "connection-count": len(server.connections),
                "connection-creation-total": server.accepted_count,
            }
            # One budget for all listeners.
            found[f"{sockets},name=MemoryPoolUsed"] = _gauge(server.budget.used_bytes)
            free = server.budget.cap_bytes - server.budget.used_bytes
            found[f"{sockets},name=MemoryPoolAvailable"] = _gauge(max(0, free))
            found["ottla:type=SocketServer,name=ResponseBytes"] = _gauge(
                server.responses.used_bytes
            )
        return found

    def _of_replicas(self) -> Figures:
        server, broker = self._broker.services, self._broker
        replicas = server.replicas
        led = [p for p in replicas.partitions.values() if p.is_leader]
        damaged = replicas.damaged.statistics()
        manager = "kafka.server:type=ReplicaManager,name="
        gauges = {
            f"{manager}LeaderCount": len(led),
            f"{manager}PartitionCount": len(replicas.partitions),
            f"{manager}OfflineReplicaCount": len(replicas.offline),
            f"{manager}UnderReplicatedPartitions": sum(
                len(p.isr.committed) < len(p.replicas) for p in led
            ),
            f"{manager}UnderMinIsrPartitionCount": sum(p.under_min_isr for p in led),
            f"{manager}AtMinIsrPartitionCount": sum(len(p.isr.committed) == p.min_isr for p in led),
            f"{manager}ReassigningPartitions": sum(bool(p.adding or p.removing) for p in led),
            "kafka.log:type=LogManager,name=OfflineLogDirectoryCount": len(
                broker.logs.offline_dirs
            ),
            "kafka.server:type=KafkaServer,name=BrokerState": broker.state.value,
            "ottla.log:type=LogManager,name=CorruptReads": damaged["corrupt_reads"],
            "ottla.log:type=LogManager,name=DamagedLogCount": damaged["damaged"],
            "ottla.log:type=LogManager,name=SetAsideLogCount": damaged["set_aside"],
        }
        fetchers = replicas.fetchers.statistics()
        lags: Any = fetchers["fetchers"]
        of_fetchers = "kafka.server:type=ReplicaFetcherManager,name="
        gauges[f"{of_fetchers}MaxLag,clientId=Replica"] = max(
            (f["max_lag"] for f in lags), default=0
        )
        gauges[f"{of_fetchers}FailedPartitionsCount,clientId=Replica"] = len(
            replicas.fetchers.failed
        )
        purgatory = "kafka.server:type=DelayedOperationPurgatory,name="
        for what, kind in (("Fetch", DelayedFetch), ("Produce", DelayedProduce)):
            waiting, watched = replicas.purgatory.count(kind)
            gauges[f"{purgatory}NumDelayedOperations,delayedOperation={what}"] = waiting
            gauges[f"{purgatory}PurgatorySize,delayedOperation={what}"] = watched
        return {name: _gauge(value) for name, value in gauges.items()}

    def _of_controller(self) -> Figures:
        """Return the controller's figures; another broker reports zeros, as Kafka does."""
        said: Any = self._broker.services.controller.statistics()
        active = bool(said["active"])
        known = {
            "ActiveBrokerCount": "brokers",
            "GlobalTopicCount": "topics",
            "GlobalPartitionCount": "partitions",
            "OfflinePartitionsCount": "offline_partitions",
            "PreferredReplicaImbalanceCount": "preferred_replica_imbalance",
            "TopicsToDeleteCount": "topics_to_delete",
        }
        prefix = "kafka.controller:type="
        found = {f"{prefix}KafkaController,name=ActiveControllerCount": int(active)}
        for name, ours in known.items():
            found[f"{prefix}KafkaController,name={name}"] = said.get(ours, 0) if active else 0
        found[f"{prefix}ControllerEventManager,name=EventQueueSize"] = said["events_queued"]
        queues: Mapping[int, int] = said.get("requests_queued", {})
        channels = f"{prefix}ControllerChannelManager,name="
        found[f"{channels}TotalQueueSize"] = sum(queues.values())
        for broker, count in queues.items():
            found[f"{channels}QueueSize,broker-id={broker}"] = count
        return {name: _gauge(value) for name, value in found.items()}

    def _of_groups(self) -> Figures:
        said: Any = self._broker.services.groups.statistics()
        prefix = "kafka.coordinator.group:type=GroupMetadataManager,name=Num"
        found = {f"{prefix}Groups": said["groups"], f"{prefix}Offsets": said["offsets"]}
        for state, count in said["states"].items():
            found[f"{prefix}Groups{state}"] = count
        return {name: _gauge(value) for name, value in found.items()}


def _api(key: int) -> str:
    return APIS[key].name
