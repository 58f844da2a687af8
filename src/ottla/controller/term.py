"""Term: everything of one controller epoch.

Who may call: `loop` makes and ends it; the handlers get it. Invariants: nothing of a term outlives
it: once it has ended, the watches it left queue nothing, its channels are closed, its timers
cancelled, its context is dropped whole. Kafka: the state of `KafkaController` between
`onControllerFailover` and `onControllerResignation`.
"""

import asyncio
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from ottla.controller.channels import Channels
from ottla.controller.context import Context
from ottla.controller.crash_detection import ALL, CRASH_DETECTION, CrashDetector
from ottla.controller.driver import Driver, FetchLogEnds
from ottla.controller.events import Event
from ottla.controller.journal import Journal
from ottla.controller.state_changes import Settings
from ottla.model.cluster import BrokerInfo
from ottla.model.config import BrokerConfig
from ottla.model.ports import World
from ottla.zookeeper.store import Store
from ottla.zookeeper.topic_ids import TopicIdNote
from ottla.zookeeper.watches import WatchCallback, WatchEvent, WatchType

KnownTopicIds = Callable[[], Mapping[str, AbstractSet[bytes]]]
"""Returns the ids that this broker knows each topic by: on its disks, else from a controller."""


@dataclass(slots=True)
class ControllerTerm:
    """What a handler works with."""

    world: World
    config: BrokerConfig
    settings: Settings
    store: Store
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
    topic_id_notes: dict[str, TopicIdNote] = field(default_factory=dict)
    """What /ottla/topic_ids says of the topics read so far, or is to say."""
    unwritten_topic_id_notes: dict[str, None] = field(default_factory=dict)
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        self.driver = Driver(
            self.context,
            self.settings,
            self.store,
            self.journal,
            self.channels,
            self,
            self.fetch_log_ends,
        )

    @property
    def fence(self) -> int:
        """The version of /controller_epoch every write is checked against."""
        return self.context.epoch_zk_version

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
