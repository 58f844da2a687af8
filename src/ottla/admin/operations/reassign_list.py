"""Reassignments in progress, each with what is copied of it and how fast.

Invariants: nothing is changed; sizes are those of the brokers' log dirs, all replicas that are
added together; works with any Kafka.
"""

import asyncio
from collections.abc import Mapping

from ottla.admin.operations import reassign
from ottla.admin.operations.copy_progress import CopyProgress
from ottla.client.client import Client
from ottla.model.ids import Partition, TopicPartition
from ottla.model.waits import waiting
from ottla.placement.copy_estimate import Estimate
from ottla.placement.plans import Move


class Listed(Partition, frozen=True):
    """One partition: bytes copied, of how many, left, and per second (None: not measured)."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]
    copied: int
    size: int
    left: int
    copied_per_s: int | None


async def listed(
    client: Client, moves: Mapping[TopicPartition, Move], interval_s: float
) -> tuple[list[Listed], Estimate | None]:
    """Return what is in progress of these moves, and all of them in sum; None if nothing is known.

    `interval_s` is the time between two looks, by which rates are measured; 0: one look, no rates.
    """
    loop = asyncio.get_running_loop()
    progress = CopyProgress(client)
    total, began_s = await progress.look(moves, loop.time()), loop.time()
    before = now = progress.by_partition(moves)
    took_s = 0.0
    if interval_s and moves:
        with waiting(f"rates are measured for {interval_s:g} s"):
            await asyncio.sleep(interval_s)
        took_s = loop.time() - began_s
        moves = {tp: m for tp, m in (await reassign.in_progress(client)).items() if tp in moves}
        # What ended meanwhile counts in sum.
        total = await progress.look(moves, loop.time(), anyway=True)
        now = progress.by_partition(before)
    return [
        Listed(
            *tp,
            list(move.replicas),
            list(move.adding),
            list(move.removing),
            now[tp].copied,
            now[tp].of,
            now[tp].of - now[tp].copied,
            round(max(0, now[tp].copied - before[tp].copied) / took_s) if took_s else None,
        )
        for tp, move in moves.items()
    ], total
