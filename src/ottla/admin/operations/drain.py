"""Drain: move all replicas of a broker to the others, so that it can be removed.

Invariants: only partitions of this broker change, and of these only its replica; where they go is
`drain_plan`'s; topics that are created meanwhile are drained, too; works with any Kafka (KIP-455).
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.admin.operations import way_back
from ottla.client import reassignments
from ottla.client.client import Client, partitions_of
from ottla.model.errors import ConnectionLostError, OttlaError
from ottla.model.printable import plural
from ottla.model.waits import waiting
from ottla.placement import plans
from ottla.placement.plans import Assignment, PlanError
from ottla.placement.spread import drained
from ottla.wire.messages.cluster import MetadataRequest

if TYPE_CHECKING:
    from ottla.placement.copy_estimate import Estimate

AGREED_WITHIN_S = 5.0
LOOK_AGAIN_S = 0.1
MOST_ROUNDS = 5
"""Each round drains what was placed on the broker since the one before."""


async def replicas_on(client: Client, broker: int) -> tuple[Assignment, dict[int, str | None]]:
    """Return the partitions with a replica on a broker, and the live brokers with their racks.

    Every live broker's metadata counts: one that has not received the newest UpdateMetadata yet
    would hide a new replica, or show one that is gone, or all those of a move that has just ended.
    So brokers that differ are asked again, for a while.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + AGREED_WITHIN_S
    with waiting() as wait:
        while True:
            live = await reassignments.racks(client)
            views = []
            for each in live:
                with contextlib.suppress(ConnectionLostError):  # it died: the others are asked
                    views.append(await _replicas_known_to(client, each, broker))
            if all(view == views[0] for view in views) or loop.time() >= give_up_s:
                current: Assignment = {}
                for view in views:
                    current |= view
                return current, live
            wait.text = f"the metadata of brokers differs about the replicas on broker {broker}"
            await asyncio.sleep(LOOK_AGAIN_S)


async def _replicas_known_to(client: Client, informant: int, broker: int) -> Assignment:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response = await client.call(request, informant)
    return {
        tp: tuple(p.replica_nodes) for tp, p in partitions_of(response) if broker in p.replica_nodes
    }


async def plan(client: Client, broker: int) -> tuple[Assignment, Assignment]:
    """Return (current, proposed) replicas of the partitions that a broker has a replica of.

    PlanError if there are too few other brokers.
    """
    current, live = await replicas_on(client, broker)
    if not current and broker not in live:
        alive = ", ".join(map(str, sorted(live)))
        raise PlanError(f"there is no broker {broker}, and no replica on it; alive are {alive}")
    every = await reassignments.replicas_of(
        client, [t.name or "" for t in (await client.metadata(None)).topics]
    )
    others = {b: rack for b, rack in live.items() if b != broker}
    try:
        return current, drained(current, every, broker, others)
    except ValueError as error:
        raise PlanError(
            f"{error}; add a broker first (`ottla up -n`), or lower the replication factor "
            "(`ottla reassign plan --replication-factor`)"
        ) from None


async def drain(
    client: Client,
    broker: int,
    throttle: int | None,
    bound_s: float,
    tell: Callable[[str], None],
    follow: "Callable[[int, int, Estimate | None], None]",
) -> int:
    """Move every replica away from a broker and wait; return how many were moved.

    `tell` hears what happens, `follow` what `reassignments.wait` tells.
    OttlaError if replicas are left after `bound_s` seconds: the moves go on.
    """
    moved = 0
    for _ in range(MOST_ROUNDS):
        moving = await reassignments.in_progress(client)
        waited = [tp for tp, move in moving.items() if broker in move.removing]
        arriving = [
            tp
            for tp, move in moving.items()
            if broker in move.replicas and broker not in move.removing
        ]
        if arriving:
            raise PlanError(
                f"{arriving[0]} is being reassigned with a replica on broker {broker}; wait for "
                "it (`ottla reassign list`) or cancel it (`ottla reassign cancel`)"
            )
        current, proposed = await plan(client, broker)
        wanted = {tp: to for tp, to in proposed.items() if tp not in waited}
        if not current and not waited:
            return moved
        if wanted:
            prepared = await reassignments.prepare(client, wanted, "drain", additional=bool(waited))
            path = way_back.write(plans.format_plan(prepared.rollback))
            tell(f"the way back is in {path}")
            await reassignments.execute(client, prepared, throttle)
            tell(f"moving {plural(len(wanted), 'replica')} away from broker {broker}")
        partitions = [*waited, *wanted]
        topics = {tp.topic for tp in partitions}
        try:
            left = await reassignments.wait(client, partitions, bound_s, follow)
        except asyncio.CancelledError:  # Ctrl-C
            if throttle is not None:
                await reassignments.clear_throttles(client, topics)
                tell("throttles removed")
            tell("interrupted; the moves go on (`ottla reassign list`, `ottla reassign cancel`)")
            raise
        if left:
            raise OttlaError(
                f"after {bound_s:g} s {plural(left, 'partition')} still moving away from broker "
                f"{broker}; they go on (`ottla reassign list`), drain again to wait for them"
            )
        if throttle is not None:
            await reassignments.clear_throttles(client, topics)
        moved += len(partitions)
    raise OttlaError(
        f"new replicas are placed on broker {broker} faster than they are drained; stop creating "
        "topics, then drain again"
    )
