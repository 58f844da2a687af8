"""Clients of a scenario: a producer with a user's settings, a consumer that goes on after a reset.

Invariants: they speak the real protocol through `client`; a record is acknowledged when Kafka's
producer would report it as sent: with acks=0 that is when it was handed to the connection. An
idempotent producer has one batch of a partition under way: its guarantees are the same with up to
five (KAFKA-5494), and so are its failures.
"""

import asyncio
from collections.abc import Callable, Sequence

from ottla.client.client import Client
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.sim.clients import Consumer, Producer, may_try_again, produce
from ottla.sim.history import History, Write
from ottla.sim.scenarios.scenario import ProducerSettings
from ottla.wire.messages.records import FetchResponse
from ottla.wire.records import build_batch


class ConfiguredProducer(Producer):
    """Sends as Kafka's producer would with such settings; notes what the application hears."""

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        name: str,
        tps: Sequence[TopicPartition],
        history: History,
        pause_s: float,
        settings: ProducerSettings,
        acknowledged: Callable[[], object],
    ) -> None:
        super().__init__(world, bootstrap, name, tps, history, pause_s)
        self.client = Client(world, bootstrap, name, timeout_s=settings.request_timeout_s)
        self._settings = settings
        self._acknowledged = acknowledged

    async def _partition(self, tp: TopicPartition) -> None:
        if self._settings.idempotent:
            await self._idempotent(tp)
            return
        room = asyncio.Semaphore(self._settings.in_flight)
        async with asyncio.TaskGroup() as group:
            while not self.stopping:
                await asyncio.sleep(self.world.random.expovariate(1.0 / self.pause_s))
                await room.acquire()
                write = self._next_write(tp, self._settings.acks)
                task = group.create_task(self._deliver(write, self._batch(write)))
                task.add_done_callback(lambda _: room.release())

    async def _idempotent(self, tp: TopicPartition) -> None:
        while not self.stopping:
            identity, sequence = await self._identity(), 0
            while not self.stopping:
                await asyncio.sleep(self.world.random.expovariate(1.0 / self.pause_s))
                write = self._next_write(tp, self._settings.acks)
                if not await self._deliver(write, self._batch(write, identity, sequence)):
                    break  # as Kafka's producer does: a new epoch, numbered from 0
                sequence += len(write.values)

    def _batch(
        self, write: Write, identity: tuple[int, int] = (-1, -1), sequence: int = -1
    ) -> bytes:
        producer_id, epoch = identity
        return build_batch(
            self._records(write),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    async def _deliver(self, write: Write, batch: bytes) -> bool:
        """Send, and try again as often and as long as the settings say; return whether it stands.

        After the last try the application hears of a failure: the record may be there or not.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        give_up_s = loop.time() + settings.delivery_timeout_s
        for attempt in range(settings.retries + 1):
            try:
                offset = await produce(
                    self.client,
                    write.tp,
                    batch,
                    refresh=attempt > 0,
                    acks=settings.acks,
                    timeout_s=settings.request_timeout_s,
                    grace_s=0.0,
                )
            except OttlaError as error:
                if not may_try_again(error):
                    break
            else:
                write.acknowledged(offset, loop.time())
                self._acknowledged()
                return True
            await asyncio.sleep(max(0.01, settings.retry_backoff_s))
            if loop.time() >= give_up_s:
                break
        write.abandoned = True
        return False


class ConfiguredConsumer(Consumer):
    """Reads every partition; where its offset is beyond the log's end, it goes on from there."""

    def _out_of_range(
        self, tp: TopicPartition, data: FetchResponse.PartitionData, _leader: int
    ) -> None:
        self.offsets[tp] = max(0, data.high_watermark)
