"""Batch checks: producers' batches that take too long to check on the event loop go to a worker.

Invariants: what is checked on the loop is bounded per request (`INLINE_BYTES`, `INLINE_STEPS`,
`INLINE_RECORDS_BYTES`); what goes to a worker is bounded per request by two settings, whatever the
number of its batches; one batch at a time is checked in each of two lanes, so that requests take
turns batch by batch and workers stay free for disks. Nothing is appended here (rule R19, fault
F35).
"""

import asyncio
from typing import TYPE_CHECKING

from ottla.log.validate import CLIENT, ValidationRules, check_leader_batch
from ottla.wire.batch_header import Header
from ottla.wire.record_check import Effort, EffortExceededError

if TYPE_CHECKING:
    from ottla.model.config import BrokerConfig
    from ottla.model.ports import Workers

LIGHT_BYTES = 65_536
"""Uncompressed batches up to this size are checked at once: at worst some ten milliseconds."""

INLINE_BYTES = 1 << 20
"""Of one request so much is decompressed on the loop: one to three milliseconds."""

INLINE_STEPS = 10_000
"""Of one request so many steps are made on the loop: seven milliseconds or so."""

INLINE_RECORDS_BYTES = 4 << 20
"""Requests with more bytes of records than this go to a worker at once."""

SHORT_BYTES, SHORT_STEPS = 16 << 20, 200_000
"""A batch within these waits only behind others like it, not behind the very large ones."""

APPEND_STEPS = 20
"""What an append counts for by itself."""

STEPS_PER_MS = 1_000


class BatchChecks:
    """The two lanes of a broker."""

    def __init__(self, config: "BrokerConfig", workers: "Workers") -> None:
        self._config = config
        self._workers = workers
        self._short_lane = asyncio.Semaphore(1)
        self._long_lane = asyncio.Semaphore(1)
        self.on_the_loop = asyncio.Semaphore(1)
        """held by the one request whose light batches are being appended in slices"""
        self.total = 0
        """batches that were checked by a worker"""

    def effort(self) -> Effort:
        """Return what all batches of one request together may cost."""
        return Effort(
            self._config.integer("ottla.produce.max.decompressed.bytes"),
            self._config.integer("ottla.produce.max.check.ms") * STEPS_PER_MS,
        )

    async def check(
        self, records: memoryview, rules: ValidationRules, now_ms: int, effort: Effort
    ) -> tuple[memoryview, Header]:
        """Do what `check_leader_batch` does, off the loop.

        EffortExceededError (MESSAGE_TOO_LARGE) when the request's effort is used up.
        """
        self.total += 1
        short = Effort(min(SHORT_BYTES, effort.bytes_left), min(SHORT_STEPS, effort.steps_left))
        granted = short.bytes_left, short.steps_left
        try:
            async with self._short_lane:
                checked = await self._workers.run(
                    check_leader_batch, records, rules, CLIENT, now_ms, short
                )
        except EffortExceededError:
            if effort.bytes_left <= SHORT_BYTES and effort.steps_left <= SHORT_STEPS:
                effort.bytes_left = 0
                raise
        else:
            effort.bytes_left -= granted[0] - short.bytes_left
            effort.steps_left -= granted[1] - short.steps_left
            return checked
        try:
            async with self._long_lane:
                return await self._workers.run(
                    check_leader_batch, records, rules, CLIENT, now_ms, effort
                )
        except EffortExceededError:
            effort.bytes_left = 0  # what it cost was spent: the request's other batches get none
            raise
