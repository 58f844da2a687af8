"""Term: everything of one controller epoch.

Invariants: nothing of a term outlives it: once it has ended, the watches it left queue nothing, its
channels are closed, its timers cancelled, its context is dropped whole. Kafka: the state of
`KafkaController` between `onControllerFailover` and `onControllerResignation`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from ottla.controller import events as happened
from ottla.controller.channels import Channels
from ottla.controller.context import Context, Settings
from ottla.controller.crash_detection import ALL, CRASH_DETECTION, CrashDetector
from ottla.controller.elections import LogEnd
from ottla.controller.events import Event
from ottla.controller.journal import Journal
from ottla.model.cluster import BrokerInfo
from ottla.model.config import BrokerConfig
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.zookeeper.store import Store
from ottla.zookeeper.watches import WatchCallback, WatchEvent, WatchType

KnownTopicIds = Callable[[], Mapping[str, AbstractSet[bytes]]]
"""Returns the ids that this broker knows each topic by: on its disks, else from a controller."""
FetchLogEnds = Callable[
    [Mapping[int, Sequence[TopicPartition]]],
    Awaitable[Mapping[TopicPartition, Mapping[int, LogEnd]]],
]


@dataclass(slots=True)
class ControllerTerm:
    """What a handler works with."""

    world: World
    config: BrokerConfig
    settings: Settings
    store: Store
    """Every write is checked against the version of /controller_epoch of this term."""
    context: Context
    channels: Channels
    journal: Journal
    post: Callable[[Event], None]
    post_first: Callable[[Event], None]
    """Queues an event before all others."""
    fetch_log_ends: FetchLogEnds
    known_topic_ids: KnownTopicIds = dict
    crashes: CrashDetector | None = None
    ended: bool = False
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    resync_scheduled: set[int] = field(default_factory=set)
    """Brokers that failed at a request: each gets a full resync after a while."""

    def removes_unstated(self, broker: BrokerInfo) -> bool:
        """Return whether a registration is removed that says nothing: a JVM broker's (adr/0018).

        Not before the broker has accepted a connection: it registers before it listens.
        """
        return (
            self.config.text(CRASH_DETECTION) == ALL
            and self.crashes is not None
            and self.crashes.has_accepted(broker)
        )

    def unclean_by_default(self) -> bool:
        return self.config.flag("unclean.leader.election.enable")

    def min_isr_by_default(self) -> int:
        """Return what counts where a topic has no min.insync.replicas of its own."""
        return self.config.integer("min.insync.replicas")

    async def find_cluster(
        self,
    ) -> tuple[list[str], list[str], list[BrokerInfo], list[str]]:
        """Read notifications of ISRs and of log dirs, brokers and topics; watch all of it."""
        store = self.store
        return await asyncio.gather(
            store.isr_changes.names(self.watcher(happened.IsrChangesNotified())),
            store.log_dir_events.names(self.watcher(happened.LogDirsFailed())),
            store.brokers.get_all(self.watcher(happened.BrokersChanged())),
            store.topics.get_names(self.watcher(happened.TopicsChanged())),
        )

    async def find_statements(
        self, brokers: Sequence[BrokerInfo]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
        """Read what brokers say of their logs, and which topics have eligible replicas.

        Return the brokers whose logs are whole, who void records, and who state nothing.
        """
        (whole, voiding), topics, stated = await asyncio.gather(
            self.store.brokers.get_stated(brokers),
            self.store.eligible.get_topics(),
            asyncio.gather(*map(self.store.brokers.is_stated, brokers)),
        )
        unstated = [b.id for b, said in zip(brokers, stated, strict=True) if not said]
        return tuple(sorted(whole)), tuple(sorted(voiding)), tuple(unstated), tuple(topics)

    def check_controller(self) -> None:
        """Look who the controller is, before anything else."""
        self.post_first(happened.ControllerChanged())

    def watcher(self, event: Event, *types: WatchType) -> WatchCallback:
        """Return a watch callback that queues `event` (for these types alone, if given)."""

        def fired(what: WatchEvent) -> None:
            if not self.ended and (not types or what.type in types):
                self.post(event)

        return fired

    def start_timer(self, delay_s: float, event: Event) -> None:
        """Queue an event after a while, unless the term has ended."""
        loop = asyncio.get_running_loop()
        self.timers = [t for t in self.timers if not t.cancelled() and t.when() > loop.time()]
        self.timers.append(loop.call_later(delay_s, self._on_timer, event))

    def _on_timer(self, event: Event) -> None:
        if not self.ended:
            self.post(event)

    def end(self) -> None:
        self.ended = True
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        self.channels.close()
        if self.crashes is not None:
            self.crashes.close()
