"""A node's clocks and workers over virtual time.

Who may call: `world` builds them per incarnation. Invariants: `monotonic` is virtual time plus a
node's own start and never jumps; `wall_ms` does when the nemesis says so (fault F23). Work handed
to the workers runs later, on the node's loop, so a crash in between means it never ran.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from ottla.sim.scheduler import Scheduler

T = TypeVar("T")

EPOCH_MS = 1_767_225_600_000
"""Virtual time 0 on every wall clock: 2026-01-01."""


class SimClock:
    """Two clocks of one node."""

    def __init__(self, scheduler: Scheduler, boot_s: float) -> None:
        self._scheduler = scheduler
        self._boot_s = boot_s
        self.wall_offset_ms = 0

    def monotonic(self) -> float:
        return self._scheduler.now + self._boot_s

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self._scheduler.now * 1000) + self.wall_offset_ms


class SimWorkers:
    """A worker's call takes a seeded while; then it happens all at once."""

    def __init__(self, rng: random.Random, mean_s: float = 0.001) -> None:
        self._random = rng
        self.mean_s = mean_s

    async def run(self, function: Callable[..., T], *args: object) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                result = function(*args)
            except BaseException as error:  # noqa: BLE001 - as an executor: all go to the caller
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        loop.call_later(self._random.expovariate(1.0 / self.mean_s), work)
        return await done
