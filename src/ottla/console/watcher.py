"""The watcher: looks at the cluster again and again while anyone looks at the console.

Invariants: what a look is, is `admin.top`'s; one look at a time, and the next one begins no sooner
than PAUSES times as long as the last one took; that a broker does not respond is noticed by small
requests, within a second, on connections of their own, where they wait for no large response; while
no browser looks nothing is asked.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from ottla.admin.session import CONNECT_TIMEOUT_S
from ottla.admin.top.changes import BrokerRow, Changes, Look, TopicRow
from ottla.admin.top.looking import Looking, Metrics
from ottla.client.client import Client
from ottla.console.lag_history import LagHistory
from ottla.model.errors import OttlaError
from ottla.wire.messages.cluster import MetadataRequest

LOOK_EVERY_S = 2.0
PAUSES = 4
PING_EVERY_S = 0.3
PING_TIMEOUT_S = 1.0
IDLE_S = 30.0
"""So long after the last request of a browser the cluster is asked no more."""


T = TypeVar("T")


class Counts(NamedTuple):
    """Of one look. `groups` is None while they have not been asked for."""

    topics: int
    partitions: int
    without_leader: int
    under_replicated: int
    moving: int
    groups: int | None


def _counted(look: Look | None) -> Counts:
    if look is None:
        return Counts(0, 0, 0, 0, 0, None)
    partitions = look.partitions.values()
    return Counts(
        len({tp.topic for tp in look.partitions}),
        len(partitions),
        sum(p.leader < 0 for p in partitions),
        sum(len(p.isr) < len(p.replicas) for p in partitions),
        len(look.moves),
        None if look.groups is None else len(look.groups),
    )


class Watcher:
    """What the newest look saw, and what has happened; `version` grows with every change."""

    def __init__(
        self,
        client: Client,
        pinging: Client,
        metrics_of: Callable[[int], Metrics | None] = lambda _: None,
    ) -> None:
        """`pinging`: another client of the cluster, for the pings alone."""
        self.changes = Changes()
        self.lags = LagHistory()
        self.silent: dict[int, str] = {}
        """Brokers that metadata names and that do not respond, and why."""
        self.version = 0
        self.seen_s = float("-inf")
        """When the newest look was complete, by the monotonic clock."""
        self._worked_out_of: Look | None = None
        self._worked_out: dict[str, object] = {}
        self._pinging = pinging
        self._looking = Looking(client, metrics_of)
        self._changed = asyncio.Condition()
        self._wanted = asyncio.Event()
        self._wanted_s = float("-inf")
        self._at_once = asyncio.Event()
        self._pings: dict[int, asyncio.Task[None]] = {}

    def topics(self) -> list[TopicRow]:
        """Return the topics of the newest look, what is wrong first; worked out once for each."""
        return self._once("topics", self.changes.topics)

    def brokers(self) -> list[BrokerRow]:
        """Return the brokers of the newest look; worked out once for each."""
        return self._once("brokers", self.changes.brokers)

    def counts(self) -> Counts:
        """Return how many there are of what, in the newest look; worked out once for each."""
        return self._once("counts", lambda: _counted(self.changes.look))

    def _once(self, name: str, work: Callable[[], T]) -> T:
        if self._worked_out_of is not self.changes.look:
            self._worked_out_of = self.changes.look
            self._worked_out.clear()
        if name not in self._worked_out:
            self._worked_out[name] = work()
        return cast("T", self._worked_out[name])

    def want(self) -> None:
        """Have the cluster watched for a while."""
        self._wanted_s = time.monotonic()
        self._wanted.set()

    async def look(self) -> Look:
        """Return the newest look, or the first one once it is there."""
        self.want()
        while self.changes.look is None or not self._is_watching():
            await self.wait_changed(self.version)
        return self.changes.look

    def _is_watching(self) -> bool:
        return time.monotonic() - self.seen_s < IDLE_S

    async def wait_changed(self, version: int, timeout_s: float | None = None) -> None:
        """Wait until `version` is another one, for so long at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.version != version)

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                if time.monotonic() - self._wanted_s > IDLE_S:
                    await self._stop_pings()
                    self.lags.interrupt()
                    self._wanted.clear()
                    await self._wanted.wait()
                took_s = await self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(LOOK_EVERY_S, PAUSES * took_s)):
                        await self._at_once.wait()
                self._at_once.clear()
        finally:
            await self._stop_pings()

    async def _look(self) -> float:
        began_s = time.monotonic()
        look = await self._looking.look()
        self.changes.take(look)
        self.seen_s = time.monotonic()
        if look.problem:
            self.lags.interrupt()
        else:
            self._watch_over(set(look.brokers))
        if look.progress is not None:
            self.lags.take(
                look.progress, self.seen_s
            )  # those of the previous look are not new points
        await self._tell()
        return self.seen_s - began_s

    def _watch_over(self, brokers: set[int]) -> None:
        for broker in brokers - self._pings.keys():
            self._pings[broker] = asyncio.create_task(self._ping(broker))
        for broker in self._pings.keys() - brokers:
            self._pings.pop(broker).cancel()
            self.silent.pop(broker, None)

    async def _ping(self, broker: int) -> None:
        """Ask one broker for little, again and again; what it says of the members is news, too."""
        members = None
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        while True:
            problem = None
            try:
                async with asyncio.timeout(PING_TIMEOUT_S + CONNECT_TIMEOUT_S):
                    said = await self._pinging.call(request, broker, timeout_s=PING_TIMEOUT_S)
            except (OttlaError, TimeoutError) as error:
                problem = str(error) or "no response"
            else:
                now = said.controller_id, frozenset(b.node_id for b in said.brokers)
                if members is not None and now != members:
                    self._at_once.set()
                members = now
            if (problem is None) != (broker not in self.silent):
                await self._notice(broker, problem)
            await asyncio.sleep(PING_EVERY_S)

    async def _notice(self, broker: int, problem: str | None) -> None:
        clock = time.strftime("%H:%M:%S")
        if problem is None:
            self.silent.pop(broker, None)
            self.changes.events.append(f"{clock}  broker {broker} is responding again")
        else:
            self.silent[broker] = problem
            self.changes.events.append(f"{clock}  broker {broker} is not responding: {problem}")
        self._at_once.set()
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self.version += 1
            self._changed.notify_all()

    async def _stop_pings(self) -> None:
        tasks = list(self._pings.values())
        self._pings.clear()
        self.silent.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pinging.close()
