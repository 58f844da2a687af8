"""Controller watch: a connection to the controller that shows when its process is gone (R17).

Invariants: the connection is the channel's to the controller that the metadata names; when it ends
the controller is asked again as the controller asks brokers (`crash_detection`); only with that
proof, and only if /controller and the registration are still those of the broker that was asked,
are both deleted. While the metadata names none, the one that ZooKeeper names is asked. Brokers
begin one after another, by id, so that one of them does it. A JVM broker registers before it
listens: it is removed only by one that it had accepted. Who is elected then is decided as ever.
Kafka has no counterpart (adr/0018).
"""

import asyncio
import contextlib
import logging

from ottla.broker.controller_channel import ControllerChannel
from ottla.broker.current_session import CurrentSession
from ottla.broker.metadata.metadata_cache import NO_CONTROLLER, MetadataCache
from ottla.controller.crash_detection import ALL, CRASH_DETECTION, refusal_of
from ottla.model.cluster import BrokerInfo
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConnectionLostError, OttlaError
from ottla.model.ports import World
from ottla.zookeeper.store import Store

logger = logging.getLogger(__name__)

STAGGER_S = 0.1
"""Between the brokers' beginnings: a proof and a multi take less."""
BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
UNKNOWN_S = 0.3
"""After so long without a word of any controller a broker asks for the one that ZooKeeper names: it
may have died before it learned of us."""
SHORT_S = 0.5
"""A connection that ended sooner counts as a failure."""


class ControllerWatch:
    """One broker's. `run` is a loop root."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        metadata: MetadataCache,
        channel: ControllerChannel,
        session: CurrentSession,
    ) -> None:
        self._world = world
        self._config = config
        self._id = config.broker_id
        self._metadata = metadata
        self._channel = channel
        self._session = session
        self._accepted: BrokerInfo | None = None
        """The controller that accepted a connection last, as it was registered then. None where
        registrations without a statement are not removed."""
        self._changed = asyncio.Event()
        metadata.on_change(lambda _change: self._changed.set())

    async def run(self) -> None:
        """Watch the controller, whichever broker that is, until cancelled."""
        failures = 0
        while True:
            controller = self._metadata.controller_id
            if controller == NO_CONTROLLER:
                await self._wait_changed(min(UNKNOWN_S * 2 ** min(failures, 10), MAX_BACKOFF_S))
                if self._metadata.controller_id == NO_CONTROLLER:
                    failures += 1
                    await self._ask(controller)
                continue
            if controller == self._id:
                await self._wait_changed(None)
                continue
            began_s = self._world.clock.monotonic()
            try:
                await self._watched(controller)
            except ConnectionLostError as error:
                logger.debug("controller not reached controller=%d error=%s", controller, error)
            lasted_s = self._world.clock.monotonic() - began_s
            failures = 0 if lasted_s > SHORT_S else failures + 1
            if self._metadata.controller_id == controller:
                await self._ask(controller)
                await self._wait_changed(min(BACKOFF_S * 2 ** min(failures, 10), MAX_BACKOFF_S))

    async def _watched(self, controller: int) -> None:
        """Return when the connection to the controller has ended, or another is the controller."""
        peer = await self._channel.peer()
        peer.on_lost(self._changed.set)
        await self._note_accepted(controller)
        while not peer.closed and self._metadata.controller_id == controller:
            await self._wait_changed(None)

    async def _note_accepted(self, controller: int) -> None:
        store = self._session.current
        if store is None or self._config.text(CRASH_DETECTION) != ALL:
            return
        with contextlib.suppress(OttlaError):  # then it is left to its session
            self._accepted = await self._registered(store, controller)

    async def _wait_changed(self, timeout_s: float | None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _ask(self, controller: int) -> None:
        """Ask whether the controller's process is gone; if so, remove it."""
        await asyncio.sleep(STAGGER_S * self._rank(controller))
        store = self._session.current
        if store is None or self._metadata.controller_id != controller:
            return
        try:
            broker = await self._registered(store, controller)
            if broker is None:
                return
            evidence = await refusal_of(self._world.network, broker.endpoints)
            if evidence is not None and store is self._session.current:
                await self._remove(store, broker, evidence)
        except OttlaError as error:
            logger.info("controller not removed controller=%d error=%s", controller, error)

    def _rank(self, controller: int) -> int:
        """Return how many live brokers of lower ids there are besides the controller."""
        brokers = self._metadata.snapshot.brokers
        return sum(b < self._id for b in brokers if b != controller)

    async def _registered(self, store: Store, controller: int) -> BrokerInfo | None:
        """Return the registration of the controller by ZooKeeper, if that is the one we know."""
        found = await store.election.get_controller_id()
        if found is None or found == self._id or controller not in (found, NO_CONTROLLER):
            return None
        return await store.brokers.get(found)

    async def _remove(self, store: Store, broker: BrokerInfo, evidence: str) -> None:
        known = self._accepted
        any_broker = known is not None and (known.id, known.epoch) == (broker.id, broker.epoch)
        problem = await store.removals.remove_controller(
            broker, evidence, self._id, any_broker=any_broker
        )
        if problem is None:
            logger.warning(
                "registration removed broker=%d broker_epoch=%d controller=%d reason=%s",
                broker.id,
                broker.epoch,
                broker.id,
                evidence,
            )
        else:
            logger.info("registration kept broker=%d reason=%s", broker.id, problem)
