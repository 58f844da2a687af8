"""Throttle lease: a reassignment's throttles go when it has ended, also if its tool was killed.

A tool sets `ottla.replication.throttle.lease` on each broker that it throttles; its value lists the
topics whose throttled replicas it named. Invariants: throttles without it are left alone, for an
operator set them; while a replica of these topics is added or removed, or a replica here moves to
another log dir, all stays; once nothing did for `GRACE_S` of this broker's monotonic clock, this
broker removes its rates, the topics' lists and the lease. No wall clocks are compared, and no other
broker has to be alive (docs/adr/0017). Beyond Kafka: there `--verify` has to be called for that.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from ottla.broker.current_session import CurrentSession
from ottla.model.errors import OttlaError
from ottla.model.ports import Clock
from ottla.model.throttle_settings import LEASE, RATES, THROTTLED_REPLICAS

logger = logging.getLogger(__name__)

GRACE_S = 30.0
"""Longer than a tool needs from its throttles to its reassignment."""
LOOK_EVERY_S = 5.0


class ThrottleLease:
    """One broker's lease: `run` ends once there is none any more."""

    def __init__(
        self,
        clock: Clock,
        broker_id: int,
        session: CurrentSession,
        moves_here: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._name = str(broker_id)
        self._session = session
        self._moves_here = moves_here
        self.running = False

    async def run(self) -> None:
        """Look every few seconds; remove what the lease is of when its time has come."""
        idle_since_s: float | None = None
        seen = None
        self.running = True
        try:
            while True:
                try:
                    lease = await self._lease()
                    if lease is None:
                        return
                    if lease != seen or await self._in_use(lease):
                        seen, idle_since_s = lease, None
                    elif idle_since_s is None:
                        idle_since_s = self._clock.monotonic()
                    elif self._clock.monotonic() - idle_since_s >= GRACE_S:
                        await self._remove(lease)
                        return
                except OttlaError as error:  # no session for now
                    logger.info("throttle lease not checked broker=%s error=%s", self._name, error)
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self.running = False

    async def _lease(self) -> str | None:
        settings = await self._session.store.configs.get("brokers", self._name)
        return settings.get(LEASE)

    async def _in_use(self, lease: str) -> bool:
        if self._moves_here():
            return True
        topics = await self._session.store.topics.get_many(_topics(lease))
        return any(
            replicas.adding or replicas.removing
            for info in topics.values()
            if info is not None
            for replicas in info.assignment.values()
        )

    async def _remove(self, lease: str) -> None:
        """Remove the topics' lists first: after a restart the lease is found until all is done."""
        for topic in _topics(lease):
            await self._without("topics", topic, THROTTLED_REPLICAS)
        await self._without("brokers", self._name, (*RATES, LEASE))
        logger.warning(
            "throttles of an ended reassignment removed broker=%s topics=%s",
            self._name,
            lease,
        )

    async def _without(self, kind: str, name: str, keys: tuple[str, ...]) -> None:
        store = self._session.store
        settings: Mapping[str, str] = await store.configs.get(kind, name)
        kept = {key: value for key, value in settings.items() if key not in keys}
        if kept != settings:
            await store.configs.set(kind, name, kept)
            await store.configs.changes.notify(f"{kind}/{name}")


def _topics(lease: str) -> list[str]:
    return [name for name in lease.split(",") if name]
