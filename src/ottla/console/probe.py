"""A client's view of faults: small records written all the time, and how long each took.

Invariants: it writes only to the topic that was named, with a client of its own; partitions, rate
and what is remembered are bounded; it ends on its own.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.client import topics
from ottla.client.client import Client
from ottla.client.producer import Producer
from ottla.model.errors import OttlaError
from ottla.model.protocol import ACKS_ALL
from ottla.wire.records import NewRecord

MOST_PARTITIONS = 12
EVERY_S = 0.1
LONGEST_S = 1800.0
SEND_TIMEOUT_S = 120.0
SHOWN_S = 60.0
KEPT = 2000
VALUE = b"written by the probe of ottla console"


@dataclass(slots=True)
class Lane:
    """One partition: when each record was sent and how long it took, in seconds."""

    partition: int
    taken: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    waits_since_s: float | None = None
    acknowledged: int = 0
    longest_s: float = 0.0
    problem: str = ""


class Probe:
    """Writes to one topic until it is stopped, or LONGEST_S are over."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self.topic = ""
        self.lanes: list[Lane] = []
        self.problem = ""
        self._client = client
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def begin(self, topic: str) -> None:
        """Begin to write to a topic; what ran before ends."""
        await self.stop()
        self.topic, self.problem = topic, ""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End; what was seen stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        client = self._client()
        try:
            facts = await topics.describe_topic(client, self.topic)
            count = len(facts.partitions)
            self.lanes = [Lane(p.partition) for p in facts.partitions[:MOST_PARTITIONS]]
            async with asyncio.timeout(LONGEST_S):
                await asyncio.gather(*(self._write(client, lane, count) for lane in self.lanes))
        except TimeoutError:
            self.problem = f"ended after {LONGEST_S / 60:g} minutes"
        except OttlaError as error:
            self.problem = str(error)
        finally:
            for lane in self.lanes:
                lane.waits_since_s = None
            await client.close()

    async def _write(self, client: Client, lane: Lane, partitions: int) -> None:
        writer = Producer(client, self.topic, acks=ACKS_ALL, timeout_s=SEND_TIMEOUT_S)
        await writer.open(partitions)
        record = NewRecord(None, VALUE, partition=lane.partition)
        while True:
            began_s = lane.waits_since_s = time.monotonic()
            try:
                await writer.send([record])
            except OttlaError as error:
                lane.problem = str(error)
            else:
                lane.acknowledged += 1
                lane.problem = ""
            took_s = time.monotonic() - began_s
            lane.waits_since_s = None
            lane.longest_s = max(lane.longest_s, took_s)
            lane.taken.append((began_s, took_s))
            await asyncio.sleep(max(0.0, EVERY_S - took_s))


def bars(lane: Lane, now_s: float) -> list[tuple[float, float, float]]:
    """Return (from, until, seconds) of each record in the last SHOWN_S, as parts of that time.

    The one that is waited for is the last.
    """
    taken = list(lane.taken)
    if lane.waits_since_s is not None:
        taken.append((lane.waits_since_s, now_s - lane.waits_since_s))
    begin_s = now_s - SHOWN_S
    return [
        (max(0.0, (at - begin_s) / SHOWN_S), min(1.0, (at + took - begin_s) / SHOWN_S), took)
        for at, took in taken
        if at + took > begin_s
    ]
