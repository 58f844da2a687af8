"""Disk reads: records that are not in memory are brought there by workers, not by the event loop.

Invariants: a range that is requested while it is being read is read once; each caller is called
back exactly once, also if the read failed: the next attempt gets the error. Kafka: the threads of
Kafka's request handlers, each of which may wait for a disk.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from ottla.log.results import NotInMemoryError, Prefetchable, TimestampOffset
from ottla.log.time_search import Search
from ottla.model.ports import Workers
from ottla.model.steps import Driven
from ottla.model.time_slices import end_tasks


class DiskReads:
    """What is being read for fetches that are parked or come again."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._under_way: dict[tuple[Prefetchable, int], asyncio.Task[None]] = {}
        self.total = 0
        self._searches = asyncio.Semaphore(1)

    async def search(self, search: Search) -> TimestampOffset | None:
        """Search a log by time. One worker at a time does so: a batch may take a second."""
        driven = Driven(search)
        for job in driven:
            async with self._searches:
                await self._workers.run(job)
        return driven.result

    def read_from_disk(self, places: Iterable[NotInMemoryError], then: Callable[[], None]) -> None:
        """Have all places read, then call `then`, in a later turn of the loop."""
        waits: dict[asyncio.Task[None], None] = {}
        for place in places:
            key = place.file, place.position
            task = self._under_way.get(key)
            if task is None:
                task = asyncio.get_running_loop().create_task(self._read(place), name="disk-read")
                self._under_way[key] = task
                self.total += 1
            waits[task] = None

        def one_less(task: asyncio.Task[None]) -> None:
            del waits[task]
            if not waits and not task.cancelled():
                then()

        for task in tuple(waits):
            task.add_done_callback(one_less)

    async def _read(self, place: NotInMemoryError) -> None:
        try:
            # The caller reads again and gets the error then.
            with contextlib.suppress(OSError):
                await self._workers.run(place.file.prefetch, place.size, place.position)
        finally:
            del self._under_way[place.file, place.position]

    async def close(self) -> None:
        await end_tasks(*self._under_way.values())
