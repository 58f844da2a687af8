"""Metrics: what a JVM broker tells by JMX, under the same names, of this broker.

Invariants: nothing is measured for its own sake while requests are served but what `request_times`
says; the rest is looked up on request, at most once a second; counts that become rates are noted
every few seconds. What a figure means where it is not Kafka's own meaning is in docs/METRICS.md.
Kafka: `KafkaMetricsGroup` and its many callers.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ottla.broker.broker import Broker
from ottla.broker.metrics.series import TOPIC_BEAN, TOPIC_METRICS
from ottla.broker.quotas.client_quotas import (
    CONSUMER_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
)
from ottla.broker.requests.request_times import (
    FETCH_CONSUMER,
    FETCH_FOLLOWER,
    kind_name,
    summary,
)
from ottla.broker.requests.security.sasl import SaslDispatch
from ottla.net.server import Server
from ottla.replication.delayed_produce import DelayedProduce
from ottla.replication.fetching import DelayedFetch
from ottla.zookeeper.session import SessionState

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
CLEANER = "kafka.log:type=LogCleaner"
QUOTAS = {
    PRODUCER_RATE: ("Produce", "byte-rate"),
    CONSUMER_RATE: ("Fetch", "byte-rate"),
    REQUEST_PERCENTAGE: ("Request", "request-time"),
}
MOST_CLIENTS = 200
"""Shown of those who share a bound, for each kind of bound: the busiest."""
SERIES_OF_A_CLIENT = 4
LEFT_OUT = "ottla.server:type=Metrics,name=SeriesLeftOut"
ERRORS = "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request="
REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request="
CRASHES = "ottla.controller:type=CrashDetection,name=ProofTimeMs"
FLUSHES = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"
LATENCIES = "kafka.server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs"
SESSIONS = "kafka.server:type=SessionExpireListener,name="
PURGATORY = "ottla.server:type=Purgatory,name="
NEVER = {f"{TOPIC_BEAN}{way}MessageConversionsPerSec": 0 for way in ("Produce", "Fetch")}
"""Boards ask for them, and there are no old record formats to convert."""

Figures = dict[str, dict[str, Any]]
"""Attributes by MBean name."""


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


def _of_connections(server: Server, sasl: SaslDispatch | None) -> dict[str, Any]:
    """Return what a listener's connections did; with SASL that counts, else TLS."""
    succeeded, failed = server.handshakes()
    again = failed_again = 0
    if sasl is not None:
        again, failed_again = sasl.reauthenticated, sasl.failed_again
        succeeded, failed = sasl.authenticated - again, failed + sasl.failed - failed_again
    return {
        "connection-count": len(server.connections),
        "connection-creation-total": server.accepted_count,
        "connection-close-total": server.accepted_count - len(server.connections),
        "successful-authentication-total": succeeded,
        "failed-authentication-total": failed,
        "successful-reauthentication-total": again,
        "failed-reauthentication-total": failed_again,
    }


def _of_disks() -> dict[str, int]:
    """Return the bytes that this process read from disks and wrote to them; none without /proc."""
    try:
        with open("/proc/self/io", "rb") as file:  # noqa: PTH123
            lines = dict(line.split(b": ") for line in file)
        found = {way: int(lines[b"%s_bytes" % way.encode()]) for way in ("read", "write")}
    except (OSError, ValueError, KeyError):
        return {}
    server = "kafka.server:type=KafkaServer,name=linux-disk-"
    return {f"{server}{way}-bytes": value for way, value in found.items()}


def _gauge(value: float) -> dict[str, Any]:
    return {"Value": value}


class Metrics:
    """The figures of one broker, made and run on the loop's thread.

    `busy_s` is what `ThreadTimes` says of that thread.
    """

    def __init__(
        self,
        broker: Broker,
        busy_s: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker
        self._times = ThreadTimes()
        self._busy_s = busy_s or self._times.busy_s
        self._monotonic = monotonic
        self._samples: deque[tuple[float, float, Mapping[str, int]]] = deque(maxlen=WINDOW + 1)
        self._late = dict.fromkeys(LATE_MS, 0)
        self._probes = 0
        self._late_sum_ms = 0.0
        self._began = monotonic(), self._busy_s()
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
        self._probes += 1
        self._late_sum_ms += late_ms
        for bound_ms in LATE_MS:
            if late_ms < bound_ms:
                break
            self._late[bound_ms] += 1

    def sample(self) -> None:
        """Note what rates are made from."""
        self._late_maxima.append(self._late_max_ms)
        self._late_max_ms = 0.0
        said = self._broker.services.controller.statistics()
        self._samples.append((self._monotonic(), self._busy_s(), self._counts(said)))

    def document(self) -> bytes:
        """Return all figures as JSON, not older than a second."""
        now_s = self._monotonic()
        self.watch()
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
        said = self._broker.services.controller.statistics()
        found = self._of_network(idle) | self._of_replicas() | self._of_controller(said)
        found |= self._of_groups() | self._of_logs() | self._of_cleaner()
        found |= self._of_quotas()
        for name, count in self._counts(said).items():
            rate = round((count - then.get(name, 0)) / span_s, 3) if span_s > 0 else 0.0
            found[name] = {"Count": count, "OneMinuteRate": rate}
        for name, kept in self._broker.services.controller.times.times():
            found[f"{EVENT_TIMES}{name}"] = summary(kept) | found[f"{EVENT_TIMES}{name}"]
        for name, times in (
            (CRASHES, self._broker.services.controller.crash_times),
            (FLUSHES, self._broker.logs.flush_times),
            (LATENCIES, self._broker.membership.latencies),
        ):
            found[name] = summary(times.times()) if times.count else {}
            found[name] |= {"Count": times.count}
        requests = self._requests_of_kind()
        for kind, name, figures in self._broker.times.figures():
            bean = f"kafka.network:type=RequestMetrics,name={name},request={kind_name(kind)}"
            found[bean] = figures | {"Count": requests[kind]}
        return dict(sorted(found.items()))

    def watch(self) -> None:
        """Note that the figures are read: lateness is measured often for a while."""
        self._watched_until_s = self._monotonic() + WATCHED_FOR_S

    def lateness(self) -> tuple[dict[str, int], float]:
        """Return how often the loop was late by at most so many seconds, and all seconds."""
        found = {f"{ms / 1000:g}": self._probes - count for ms, count in self._late.items()}
        return found | {"+Inf": self._probes}, round(self._late_sum_ms / 1000, 6)

    def _requests_of_kind(self) -> dict[int, int]:
        """Return the requests since the start by kind."""
        fetches = self._broker.services.replicas.fetches
        found = {
            FETCH_CONSUMER: sum(fetches.consumer_requests.values()),
            FETCH_FOLLOWER: sum(fetches.follower_requests.values()),
        }
        for key, _, count in self._broker.times.counts():
            found[key] = found.get(key, 0) + count
        return found

    def _counts(self, said: Any) -> dict[str, int]:
        """Return what only ever grows. `said` is what the controller says of itself."""
        replicas, logs = self._broker.services.replicas, self._broker.logs
        alter = replicas.alter
        sessions = self._broker.membership.session_counts
        found = {
            "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec": alter.shrinks_total,
            "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec": alter.expands_total,
            "kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec": alter.failed_total,
            "ottla.server:type=ReplicaManager,name=LostRecordsPerSec": (
                replicas.fetchers.records_lost_total
            ),
            "ottla.server:type=ReplicaManager,name=DoubtfulRecordsPerSec": (
                replicas.fetchers.records_doubtful_total + replicas.recovery.truncated_total
            ),
            "ottla.log:type=TailCache,name=HitsPerSec": logs.budget.hits,
            "ottla.log:type=TailCache,name=MissesPerSec": logs.budget.misses,
            f"{PURGATORY}ParkedPerSec": replicas.purgatory.parked_total,
            f"{PURGATORY}ExpiredPerSec": replicas.purgatory.expired_total,
            "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec": (
                replicas.sessions.evicted_total
            ),
            f"{SESSIONS}ZooKeeperSyncConnectsPerSec": sessions[SessionState.CONNECTED],
            f"{SESSIONS}ZooKeeperDisconnectsPerSec": sessions[SessionState.SUSPENDED],
            f"{SESSIONS}ZooKeeperExpiresPerSec": sessions[SessionState.DEAD],
            f"{SESSIONS}ZooKeeperAuthFailuresPerSec": self._broker.membership.refused_count,
            **NEVER,
            "ottla.controller:type=ControllerStats,name=RegistrationsRemovedPerSec": (
                said["registrations_removed_total"]
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
        for kind, count in said["elections_by_kind"].items():
            found[f"ottla.controller:type=ControllerStats,name=ElectionsPerSec,cause={kind}"] = (
                count
            )
        total = replicas.topic_counts.total()
        for name, read in TOPIC_METRICS.items():
            found[f"{TOPIC_BEAN}{name}"] = read(total)
        for key, error, count in self._broker.errors.counts():
            found[f"{ERRORS}{kind_name(key)},error={error.name}"] = count
        for key, version, count in self._broker.times.counts():
            found[f"{REQUESTS}{kind_name(key)},version={version}"] = count
        for kind, counts in (
            (FETCH_CONSUMER, replicas.fetches.consumer_requests),
            (FETCH_FOLLOWER, replicas.fetches.follower_requests),
        ):
            for version, count in counts.items():
                found[f"{REQUESTS}{kind_name(kind)},version={version}"] = count
        return found

    def _of_logs(self) -> Figures:
        """Return the figures of log dirs, of the tail caches, of sessions with ZooKeeper."""
        logs, state = self._broker.logs, self._broker.membership.session_state
        sessions = self._broker.services.replicas.sessions
        found = _of_disks() | {
            f"kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory={path}": int(
                path in logs.offline_dirs
            )
            for path in sorted(logs.live_dirs + logs.offline_dirs)
        }
        found |= {
            "ottla.log:type=TailCache,name=Bytes": logs.budget.used,
            "ottla.log:type=TailCache,name=MaxBytes": logs.budget.limit,
            "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions": len(sessions),
            "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached": (
                sessions.statistics()["partitions"]
            ),
        }
        went_back = bool(self._broker.services.zookeeper_went_back)
        found["ottla.server:type=ZooKeeper,name=WentBack"] = int(went_back)
        for one in SessionState:
            name = f"ottla.server:type=ZooKeeperSession,name=State,state={one.value}"
            found[name] = int(one is state)
        return {name: _gauge(value) for name, value in found.items()}

    def _of_cleaner(self) -> Figures:
        cleaner, last = self._broker.cleaner, self._broker.cleaner.last
        since_s = 0.0 if last.looked_s is None else self._monotonic() - last.looked_s
        found: dict[str, float] = {
            f"{CLEANER},name=cleaner-recopy-percent": last.recopied_percent,
            f"{CLEANER},name=max-clean-time-secs": round(last.cleaning_s),
            f"{CLEANER},name=max-buffer-utilization-percent": last.buffer_percent,
            f"{CLEANER}Manager,name=max-dirty-percent": last.dirty_percent,
            f"{CLEANER}Manager,name=time-since-last-run-ms": round(since_s * 1000),
        }
        for path, (logs, size) in cleaner.uncleanable_bytes().items():
            of = f"{CLEANER}Manager,name=uncleanable-"
            found[f"{of}partitions-count,logDirectory={path}"] = logs
            found[f"{of}bytes,logDirectory={path}"] = size
        return {name: _gauge(value) for name, value in found.items()}

    def _of_quotas(self) -> Figures:
        """Return what clients with quotas use, by Kafka's sanitized names of users and clients."""
        now_ms = self._monotonic() * 1000
        used, left_out = self._broker.services.quotas.used(now_ms, MOST_CLIENTS)
        found: Figures = {LEFT_OUT: _gauge(left_out * SERIES_OF_A_CLIENT)}
        if not used:
            return found
        from urllib.parse import quote  # a broker without quotas does without it

        for bound, (user, client), rate, held_back_ms in used:
            if bound in QUOTAS:
                kind, attribute = QUOTAS[bound]
                tags = f"user={quote(user or '', safe='')},client-id={quote(client or '', safe='')}"
                found[f"kafka.server:type={kind},{tags}"] = {
                    attribute: round(rate, 3),
                    "throttle-time": round(held_back_ms, 1),
                }
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
                "Count": self._idle_ns(),
                "OneMinuteRate": idle,
            },
        }
        for name, server in listeners.items():
            found[f"kafka.server:type=socket-server-metrics,listener={name},networkProcessor=0"] = (
                _of_connections(server, self._broker.sasl.get(name))
            )
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
        damaged = replicas.damaged.statistics()
        manager = "kafka.server:type=ReplicaManager,name="
        led = under_replicated = under_min = at_min = reassigning = 0
        for partition in replicas.partitions.values():  # one pass: there may be thousands
            state, log = partition.state, partition.log
            if not state.is_leader or log is None:
                continue
            led += 1
            in_sync = len(state.isr.committed)
            least = state.min_isr(log.config.min_insync_replicas)
            under_replicated += in_sync < len(state.replicas) - len(state.adding)
            under_min += in_sync < least
            at_min += in_sync == least
            reassigning += bool(state.adding or state.removing)
        gauges = {
            f"{manager}LeaderCount": led,
            f"{manager}PartitionCount": len(replicas.partitions),
            f"{manager}OfflineReplicaCount": len(replicas.offline),
            f"{manager}UnderReplicatedPartitions": under_replicated,
            f"{manager}UnderMinIsrPartitionCount": under_min,
            f"{manager}AtMinIsrPartitionCount": at_min,
            f"{manager}ReassigningPartitions": reassigning,
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

    def _idle_ns(self) -> int:
        """Return the nanoseconds in which the loop's thread neither ran nor waited for a core."""
        began_s, busy_before_s = self._began
        busy_s = self._busy_s() - busy_before_s
        return max(0, round((self._monotonic() - began_s - busy_s) * 1e9))

    def _of_controller(self, said: Any) -> Figures:
        """Return the controller's figures; another broker reports zeros, as Kafka does."""
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
        found[f"{prefix}GroupsDead"] = 0
        return {name: _gauge(value) for name, value in found.items()}
