"""Eligible records: no high watermark moves without a replica that may be elected (R13, adr/0007).

A controller takes a replica outside the ISR for one that has every acknowledged record while the
ISR is smaller than min.insync.replicas, as far as the controller knows this setting. The leader may
have another value: by its own file, by a dynamic default, or as it learned of a change late or in
between. So the leader decides: where its ISR is large enough for it and leaves a replica out, the
record that may name this replica is deleted first. Invariants:
- a partition is proven for one partition epoch; a later one is asked for again
- without ZooKeeper nothing is proven; what was proven stays so until the next partition epoch
- partitions go in batches, one batch at a time

Kafka 4 has no counterpart: its controller and its leaders replay the same log of settings, each in
its own time, and a change of the cluster's default makes all eligible replicas void.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.time_slices import end_tasks
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

RETRY_S = 0.05
MAX_RETRY_S = 1.0
MOST_AT_ONCE = 1000

IsrsInEpochs = Mapping[TopicPartition, tuple[frozenset[int], int]]
"""Each partition's ISR and partition epoch."""

VoidEligible = Callable[[IsrsInEpochs], Awaitable[Collection[TopicPartition]]]
"""Deletes records that name a replica outside these ISRs; returns where none is left. OttlaError
without a ZooKeeper session."""


async def no_records(isrs: IsrsInEpochs) -> Collection[TopicPartition]:
    """Take all for proven: where no controller ever elects a replica outside an ISR."""
    return isrs.keys()


class EligibleRecords:
    """What one broker's leaders want to have proven."""

    def __init__(self, void: VoidEligible) -> None:
        self._void = void
        self._wanted: dict[TopicPartition, tuple[Partition, int]] = {}
        """partition -> the partition epoch it is to be proven in"""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="eligible-records")

    async def close(self) -> None:
        await end_tasks(self._task)

    def want(self, partition: Partition) -> None:
        """Have the ISR of this partition epoch proven; asked for with each append until it is."""
        wanted = partition, partition.state.partition_epoch
        if self._wanted.get(partition.tp) != wanted:
            self._wanted[partition.tp] = wanted
            self._wake.set()

    async def _run(self) -> None:
        retry_s = RETRY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            wanted = list(self._wanted.items())
            try:
                for start in range(0, len(wanted), MOST_AT_ONCE):
                    await self._prove(wanted[start : start + MOST_AT_ONCE])
            except OttlaError as error:
                logger.debug("isr not proven partitions=%d error=%s", len(self._wanted), error)
            except Exception:  # a loop root
                logger.exception("isr not proven partitions=%d", len(self._wanted))
            if not self._wanted:
                retry_s = RETRY_S
                continue
            # No ZooKeeper session, or a state that the controller is about to send.
            asyncio.get_running_loop().call_later(retry_s, self._wake.set)
            retry_s = min(2 * retry_s, MAX_RETRY_S)

    async def _prove(self, some: Sequence[tuple[TopicPartition, tuple[Partition, int]]]) -> None:
        isrs = {}
        for tp, (partition, epoch) in some:
            if partition.state.is_leader and partition.state.partition_epoch == epoch:
                isrs[tp] = frozenset(partition.state.isr.committed), epoch
        proven = await self._void(isrs) if isrs else ()
        for tp, wanted in some:
            # One that is no longer led, or in a later epoch, is asked for by its next append.
            if (tp in proven or tp not in isrs) and self._wanted.get(tp) == wanted:
                del self._wanted[tp]
            if tp in proven:
                wanted[0].isr_proven(wanted[1])
