"""Scheduled tasks of the logs: flushes, retention, recovery points.

Invariants: disks are waited for by workers, everything else goes in slices of a few milliseconds.
Kafka: the scheduled tasks of `LogManager`.
"""

import asyncio
import logging

from ottla.log.manager import LogManager
from ottla.model.config import BrokerConfig
from ottla.model.errors import OttlaError
from ottla.model.ports import World
from ottla.model.retention_clock import RetentionClock

logger = logging.getLogger(__name__)

TICK_S = 0.5
REMOVAL_TICK_S = 2.0
PAUSE_S = 0.02
"""Between two slices of much that is due, as the retention of thousands of partitions."""
STALL_S = 1.0
"""A loop that is late by this much endangers the ZooKeeper session (F9): say so."""


async def run_log_tasks(world: World, config: BrokerConfig, logs: LogManager) -> None:
    """Look after the logs until cancelled. A loop root."""
    interval_s = config.integer("log.flush.offset.checkpoint.interval.ms") / 1000
    checkpoint_due_s = world.clock.monotonic() + interval_s
    ages = RetentionClock(world.clock)
    while True:
        slept_s = -world.clock.monotonic()
        await asyncio.sleep(TICK_S)
        slept_s += world.clock.monotonic()
        if slept_s > TICK_S + STALL_S:
            logger.warning("event loop stalled late_s=%.1f", slept_s - TICK_S)
        try:
            slices_until_s = world.clock.monotonic() + TICK_S
            while logs.periodic(ages.now_ms()):
                await asyncio.sleep(PAUSE_S)
                await logs.load_indexes(world.workers)
                if world.clock.monotonic() >= slices_until_s:
                    break
            await logs.load_indexes(world.workers)
            await logs.flush_dirty(world.workers)
            if world.clock.monotonic() >= checkpoint_due_s:
                checkpoint_due_s = world.clock.monotonic() + interval_s
                await logs.write_recovery_points(world.workers)
        except OttlaError as error:
            logger.warning("log task failed error=%s", error)
        except Exception:
            logger.exception("log task failed")


async def remove_deleted(world: World, logs: LogManager) -> None:
    """Have workers remove what was deleted, until cancelled: beside the rest. A loop root."""
    while True:
        await asyncio.sleep(REMOVAL_TICK_S)
        try:
            await logs.remove_due(world.workers)
        except Exception:
            logger.exception("removal of deleted files failed")
