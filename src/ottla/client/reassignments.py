"""Reassignment from outside: what a plan needs to know, what it sends, how far it is.

Invariants: a plan is checked against the cluster as a whole before anything is sent (fault F42); a
throttle is set before the first replica moves; works with any Kafka (KIP-455). Kafka:
`ReassignPartitionsCommand`.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.client import CONTROLLER, Client
from ottla.client.copy_progress import CopyProgress
from ottla.client.error_texts import reason
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError
from ottla.model.ids import Partition, TopicPartition
from ottla.model.waits import waiting
from ottla.placement import plans
from ottla.placement.copy_estimate import Estimate
from ottla.placement.plans import Assignment, Move, PlanError
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)

if TYPE_CHECKING:
    from ottla.client.throttles import Cleared

LOOK_AGAIN_S = 0.25
KNOWN_WITHIN_S = 1.0
"""So soon after the controller brokers hear what it has done."""


class State(StrEnum):
    """How far one partition of a plan is."""

    DONE = "done"
    MOVING = "in progress"
    ELSEWHERE = "not as planned"
    UNKNOWN = "no such partition"


class Progress(NamedTuple):
    """One partition of a plan: where it is and where it is to be."""

    partition: TopicPartition
    state: State
    replicas: tuple[int, ...]
    target: tuple[int, ...]


# --- asking -----------------------------------------------------------------------------------


async def replicas_of(client: Client, topics: Iterable[str] | None) -> Assignment:
    """Return the replicas of each partition of these topics (None: all); unknown ones have none."""
    names = None if topics is None else sorted(set(topics))
    if names == []:
        return {}
    response = await client.metadata(names)
    found: Assignment = {}
    for topic in response.topics:
        if topic.error_code and topic.error_code not in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.LEADER_NOT_AVAILABLE,
        ):
            raise OttlaError(f"topic {topic.name}: {reason(topic.error_code, None)}")
        for p in topic.partitions:
            tp = TopicPartition(topic.name or "", p.partition_index)
            found[tp] = tuple(p.replica_nodes)
    return found


async def racks(client: Client) -> dict[int, str | None]:
    """Return the live brokers, each with its rack."""
    response = await client.metadata([])
    return {b.node_id: b.rack for b in sorted(response.brokers, key=lambda b: b.node_id)}


async def in_progress(client: Client) -> dict[TopicPartition, Move]:
    """Return every reassignment the controller has under way."""
    response = await client.call(ListPartitionReassignmentsRequest(topics=None), CONTROLLER)
    if response.error_code:
        why = reason(response.error_code, response.error_message)
        raise OttlaError(f"reassignments were not listed: {why}")
    return {
        TopicPartition(t.name, p.partition_index): Move(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for t in sorted(response.topics, key=lambda t: t.name)
        for p in sorted(t.partitions, key=lambda p: p.partition_index)
    }


async def progress(client: Client, plan: Mapping[TopicPartition, Sequence[int]]) -> list[Progress]:
    """Return how far each partition of a plan is.

    The broker that is asked for the replicas may hear of the end of a move after the controller has
    ended it: where they are not as planned it is asked again, for a moment.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + KNOWN_WITHIN_S
    with waiting() as wait:
        while True:
            found = await _progress(client, plan)
            if all(p.state is not State.ELSEWHERE for p in found) or loop.time() >= give_up_s:
                return found
            wait.text = "replicas that are not as planned, though nothing moves"
            await asyncio.sleep(LOOK_AGAIN_S)


async def _progress(client: Client, plan: Mapping[TopicPartition, Sequence[int]]) -> list[Progress]:
    moving = await in_progress(client)
    current = await replicas_of(client, (tp.topic for tp in plan))
    found = []
    for tp, target in sorted(plan.items()):
        replicas = current.get(tp, ())
        if tp in moving:
            state = State.MOVING
        elif tp not in current:
            state = State.UNKNOWN
        else:
            state = State.DONE if replicas == tuple(target) else State.ELSEWHERE
        found.append(Progress(tp, state, replicas, tuple(target)))
    return found


# --- doing ------------------------------------------------------------------------------------


class Prepared(NamedTuple):
    """A plan that fits the cluster, and what it replaces.

    `running`: it is what is in progress already; only its throttle can be changed.
    """

    plan: Assignment
    rollback: Assignment
    throttled: plans.Throttled
    live: list[int]
    running: bool = False


async def prepare(
    client: Client, plan: Assignment, where: str, *, additional: bool, throttle: int | None = None
) -> Prepared:
    """Look at the cluster; PlanError if the plan does not fit it. Changes nothing."""
    current = await replicas_of(client, (tp.topic for tp in plan))
    live = list(await racks(client))
    problem = plans.problem_in_cluster(plan, current, live)
    if problem:
        raise PlanError(f"{where}: {problem}; nothing was sent")
    moving = await in_progress(client)
    running = bool(moving) and _same(plan, current, moving)
    if running and throttle is None:
        raise PlanError(
            f"{where}: it is in progress already ({next(iter(moving))}); wait for it by `ottla "
            "reassign verify --wait`, or execute it with another --throttle; nothing was sent"
        )
    if moving and not additional and not running:
        raise PlanError(
            f"{next(iter(moving))} is being reassigned already; wait for it (`ottla reassign "
            "list`), or add --additional to begin these as well; nothing was sent"
        )
    rollback = {tp: moving[tp].original if tp in moving else current[tp] for tp in plan}
    under_way = {tp: (move.original, move.adding) for tp, move in moving.items()}
    throttled = plans.throttled(plan, current, under_way)
    return Prepared(plan, rollback, throttled, live, running)


def _same(plan: Assignment, current: Assignment, moving: Mapping[TopicPartition, Move]) -> bool:
    """Tell whether what is in progress is this plan: nothing else moves, the rest is done."""
    return all(tp in plan for tp in moving) and all(
        (moving[tp].target if tp in moving else current[tp]) == target
        for tp, target in plan.items()
    )


async def execute(client: Client, prepared: Prepared, throttle: int | None) -> list[int]:
    """Set the throttle and begin, unless it runs; OttlaError names each one that was refused.

    Returned are the throttled brokers that will not remove the throttle themselves.
    """
    from ottla.client import throttles

    unleased: list[int] = []
    if throttle is not None:
        unleased = await throttles.limit(client, prepared.throttled, prepared.live, throttle)
    if prepared.running:
        return unleased
    try:
        await _alter(client, prepared.plan, "was not reassigned")
    except OttlaError:
        if throttle is not None and not await in_progress(client):
            await throttles.clear(client, prepared.live, prepared.throttled.leaders)
        raise
    return unleased


async def cancel(
    client: Client, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, Move]:
    """Cancel those of these reassignments (None: all) that are in progress; return them."""
    moving = await in_progress(client)
    chosen = {tp: m for tp, m in moving.items() if partitions is None or tp in partitions}
    if chosen:
        await _alter(client, dict.fromkeys(chosen), "was not cancelled")
    return chosen


async def _alter(
    client: Client, wanted: Mapping[TopicPartition, Sequence[int] | None], refused: str
) -> None:
    request = AlterPartitionReassignmentsRequest
    topics: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
    for tp, replicas in sorted(wanted.items(), key=lambda item: item[0]):
        topics.setdefault(tp.topic, []).append(
            request.ReassignablePartition(
                partition_index=tp.partition,
                replicas=None if replicas is None else list(replicas),
            )
        )
    response = await client.call(
        request(
            topics=[
                request.ReassignableTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ]
        ),
        CONTROLLER,
        timeout_s=65,
    )
    if response.error_code:
        raise OttlaError(
            f"nothing {refused.removeprefix('was not ')}: "
            f"{reason(response.error_code, response.error_message)}"
        )
    problems = [
        f"{t.name}-{p.partition_index} {refused}: {reason(p.error_code, p.error_message)}"
        for t in response.responses
        for p in t.partitions
        if p.error_code
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise OttlaError(problems[0] + more)


async def wait(
    client: Client,
    partitions: Collection[TopicPartition],
    bound_s: float,
    tell: "Callable[[int, int, Estimate | None], None]",
) -> int:
    """Wait until none of these moves; return how many still do when time is up.

    `tell` hears (still moving, of, bytes) at every look, the last one included.
    """
    from ottla.client.copy_progress import CopyProgress

    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + bound_s
    wanted = set(partitions)
    copied = CopyProgress(client)
    left = len(wanted)
    with waiting() as wait:
        while True:
            estimate = copied.estimate
            try:
                moving = {tp: m for tp, m in (await in_progress(client)).items() if tp in wanted}
                left = len(moving)
                if moving:
                    estimate = await copied.look(moving, loop.time())
                    wait.text = _in_sync(moving)
            except ConnectionLostError as error:  # a controller died: another one goes on
                left = max(left, 1)
                wait.text = str(error)
            tell(left, len(wanted), estimate)
            if left == 0 or loop.time() >= give_up_s:
                return left
            await asyncio.sleep(min(LOOK_AGAIN_S, max(0.0, give_up_s - loop.time())))


def _in_sync(moving: Mapping[TopicPartition, Move]) -> str:
    brokers = sorted({broker for move in moving.values() for broker in move.adding})
    return f"the new replicas on broker {', '.join(map(str, brokers))} to be in sync"


async def clear_throttles(client: Client, topics: Iterable[str]) -> "Cleared":
    """Remove throttles from all live brokers and from those of these topics that exist.

    From the topics that leases name, too: once the leases are gone, no broker looks after them.
    """
    from ottla.client import throttles

    live = list(await racks(client))
    leased = await throttles.leased_topics(client, live)
    there = await replicas_of(client, {*topics, *leased})
    return await throttles.clear(client, live, {tp.topic for tp in there})


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
        moves = {tp: m for tp, m in (await in_progress(client)).items() if tp in moves}
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
