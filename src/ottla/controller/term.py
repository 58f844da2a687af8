"""Controller term: from one election of this broker to its resignation, and all that ends then.

Who may call: `loop` makes one at election and ends it at resignation; handlers are given it.
Invariants: nothing outlives it: watches of an ended term queue nothing, its channels are closed,
its timers cancelled, its context is dropped whole. Kafka: the state of `KafkaController`
between `onControllerFailover` and `onControllerResignation`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.controller.channels import Channels
from ottla.controller.context import Context
from ottla.controller.events import Event
from ottla.controller.journal import Journal
from ottla.controller.moves import Moves
from ottla.model.config import BrokerConfig
from ottla.model.ports import World
from ottla.zookeeper.store import Store
from ottla.zookeeper.watches import WatchCallback, WatchEvent, WatchType


@dataclass(slots=True)
class ControllerTerm:
    """What a handler works with."""

    world: World
    config: BrokerConfig
    controller_id: int
    store: Store
    context: Context
    channels: Channels
    moves: Moves
    journal: Journal
    post: Callable[[Event], None]
    ended: bool = False
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    to_be_told_again: set[int] = field(default_factory=set)
    """Brokers that failed at a request: each is told everything anew after a while."""

    @property
    def cause(self) -> int:
        return self.moves.cause

    @property
    def fence(self) -> int:
        """The version of /controller_epoch every write is checked against."""
        return self.context.epoch_zk_version

    def watcher(self, event: Event, *types: WatchType) -> WatchCallback:
        """Return a watch callback that queues `event` (for these types alone, if given)."""

        def fired(what: WatchEvent) -> None:
            if not self.ended and (not types or what.type in types):
                self.post(event)

        return fired

    def later(self, delay_s: float, event: Event) -> None:
        """Queue an event after a while, unless the term has ended."""
        loop = asyncio.get_running_loop()
        self.timers = [t for t in self.timers if not t.cancelled() and t.when() > loop.time()]
        self.timers.append(loop.call_later(delay_s, self._due, event))

    def _due(self, event: Event) -> None:
        if not self.ended:
            self.post(event)

    def end(self) -> None:
        self.ended = True
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        self.channels.close()
