"""The newest snapshot of the cluster, for *what if*: kept as long as the cluster looks the same.

Invariants: a snapshot is used only where the newest look shows the brokers, leaders, leader epochs,
ISRs and replicas that it has, and no longer than KEPT_S: settings and sizes are no older; one is
taken at a time.
"""

import asyncio
import contextlib
import time
from typing import NamedTuple

from ottla.admin.top.changes import Look
from ottla.client import cluster_snapshot
from ottla.client.client import Client
from ottla.model.errors import OttlaError
from ottla.placement.snapshot_file import Snapshot

KEPT_S = 30.0


class Taken(NamedTuple):
    """A snapshot, and when it was begun: by the monotonic clock, and as people read it."""

    snapshot: Snapshot
    began_s: float
    clock: str


class Snapshots:
    """Takes snapshots, and keeps the newest one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._newest: Taken | None = None
        self._one = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def get(self, look: Look) -> Taken:
        """Return the newest snapshot if it shows what `look` does, else take one."""
        async with self._one:
            found = self._newest
            if (
                found is None
                or time.monotonic() - found.began_s > KEPT_S
                or not _shows(found.snapshot, look)
            ):
                began_s, clock = time.monotonic(), time.strftime("%H:%M:%S")
                found = Taken(await cluster_snapshot.take(self._client), began_s, clock)
                self._newest = found
            return found

    def prepare(self, look: Look) -> None:
        """Begin to take a snapshot, where the newest one would not do."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._prepare(look))

    async def _prepare(self, look: Look) -> None:
        with contextlib.suppress(OttlaError):  # the request for it gets the reason
            await self.get(look)

    async def stop(self) -> None:
        """End what is being taken."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _shows(snapshot: Snapshot, look: Look) -> bool:
    count = 0
    for tp, p in snapshot.partitions():
        seen = look.partitions.get(tp)
        if (
            seen is None
            or (seen.leader, seen.leader_epoch) != (p.leader, p.leader_epoch)
            or seen.isr != tuple(p.isr)
            or seen.replicas != tuple(p.replicas)
        ):
            return False
        count += 1
    return (
        not look.problem
        and count == len(look.partitions)
        and look.controller == snapshot.controller
        and set(look.brokers) == {broker.id for broker in snapshot.brokers}
    )
