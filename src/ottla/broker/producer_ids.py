"""Producer ids: numbers for idempotent producers, from blocks the controller hands out.

Invariants: an id is given once in the cluster's life, so ids of a block in hand are lost when the
server stops, never reused; at most one request is under way. The next block is asked for when nine
tenths of the current one are used. Kafka: `RPCProducerIdManager` (KIP-730).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.broker.current_session import CurrentSession
from ottla.model.errors import ErrorCode, OttlaError
from ottla.wire.messages.control import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

logger = logging.getLogger(__name__)

RETRY_BACKOFF_S = 0.05
REQUEST_TIMEOUT_S = 30.0
GIVE_UP_AFTER_S = 5.0
MAX_ID = 2**63 - 1

Send = Callable[[AllocateProducerIdsRequest, int, float], Awaitable[AllocateProducerIdsResponse]]


class NoProducerIdError(OttlaError):
    """No block in hand and none arrived in time. Retriable for every client, old ones too."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class ProducerIds:
    """A block in use and perhaps one in reserve."""

    def __init__(self, broker_id: int, session: CurrentSession, send: Send) -> None:
        self._broker_id = broker_id
        self._session = session
        self._send = send
        self._next, self._end, self._prefetch_at = 0, 0, 0
        self._reserve: tuple[int, int] | None = None
        self._fetching: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        """Return an id if one is at hand, and see to it that the next ones will be."""
        if self._next == self._end and self._reserve is not None:
            start, length = self._reserve
            self._reserve = None
            self._next, self._end = start, start + length
            self._prefetch_at = start + length * 9 // 10
        if self._next == self._end:
            self._fetch()
            return None
        producer_id = self._next
        self._next += 1
        if producer_id >= self._prefetch_at and self._reserve is None:
            self._fetch()
        return producer_id

    async def next(self) -> int:
        """Return an id, waiting a bounded time for a block; NoProducerIdError after that."""
        try:
            async with asyncio.timeout(GIVE_UP_AFTER_S):
                while True:
                    producer_id = self.take()
                    if producer_id is not None:
                        return producer_id
                    assert self._fetching is not None
                    await asyncio.shield(self._fetching)
        except TimeoutError:
            raise NoProducerIdError("no producer ids arrived from the controller") from None

    def _fetch(self) -> None:
        if self._fetching is None:
            task = asyncio.get_running_loop().create_task(self._ask(), name="producer-ids")
            self._fetching = task
            task.add_done_callback(self._fetched)

    def _fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("producer ids failed", exc_info=task.exception())

    async def _ask(self) -> None:
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._session.broker_epoch
        )
        try:
            response = await self._send(request, 0, REQUEST_TIMEOUT_S)
        except OttlaError as error:
            logger.info("producer ids not allocated error=%s", error)
            await asyncio.sleep(RETRY_BACKOFF_S)
            return
        if response.error_code != ErrorCode.NONE:
            logger.info("producer ids not allocated error=%d", response.error_code)
            await asyncio.sleep(RETRY_BACKOFF_S)
            return
        start, length = response.producer_id_start, response.producer_id_len
        if start < self._end - 1 or length <= 0 or start > MAX_ID - length:
            logger.error("producer ids refused first=%d count=%d", start, length)
            await asyncio.sleep(RETRY_BACKOFF_S)
            return
        self._reserve = (start, length)
        logger.info("producer ids allocated first=%d count=%d", start, length)

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
