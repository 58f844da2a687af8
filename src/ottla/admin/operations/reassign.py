"""Reassignment from outside: what a plan needs to know, what it sends, how far it got.

Who may call: its command and tests. Invariants: a plan is checked against the cluster as a whole
before anything is sent (fault F42), throttles included; a throttle stands before the first replica
moves and goes when nothing moves any more, set only on brokers that live and removed only where it
is set; works with any Kafka (KIP-455, KIP-73). Kafka: `ReassignPartitionsCommand`.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from ottla.admin.operations import configs, plans
from ottla.admin.operations.configs import BROKER, TOPIC, reason
from ottla.admin.operations.log_dirs import THROTTLE as LOG_DIRS_THROTTLE
from ottla.admin.operations.plans import Assignment, PlanError
from ottla.model.errors import (
    ConnectionLostError,
    ErrorCode,
    OttlaError,
    UnsupportedVersionError,
)
from ottla.model.ids import TopicPartition
from ottla.net.client import CONTROLLER, Client
from ottla.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

BROKER_THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)
TOPIC_THROTTLES = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
LOOK_AGAIN_S = 0.25
BROKER_ANSWERS_IN_S = 5.0


class Move(NamedTuple):
    """A reassignment in progress, as the controller lists it."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def original(self) -> tuple[int, ...]:
        return tuple(b for b in self.replicas if b not in self.adding)


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
    """Return how far each partition of a plan is."""
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
    """A plan that fits the cluster, and what it replaces."""

    plan: Assignment
    rollback: Assignment
    throttled: plans.Throttled
    live: list[int]


async def prepare(client: Client, plan: Assignment, where: str, *, additional: bool) -> Prepared:
    """Look at the cluster; PlanError if the plan does not fit it. Changes nothing."""
    current = await replicas_of(client, (tp.topic for tp in plan))
    live = list(await racks(client))
    problem = plans.problem_in_cluster(plan, current, live)
    if problem:
        raise PlanError(f"{where}: {problem}; nothing was sent")
    moving = await in_progress(client)
    if moving and not additional:
        raise PlanError(
            f"{next(iter(moving))} is being reassigned already; wait for it (`ottla reassign "
            "list`), or add --additional to begin these as well; nothing was sent"
        )
    rollback = {tp: moving[tp].original if tp in moving else current[tp] for tp in plan}
    under_way = {tp: (move.original, move.adding) for tp, move in moving.items()}
    return Prepared(plan, rollback, plans.throttled(plan, current, under_way), live)


async def execute(client: Client, prepared: Prepared, throttle: int | None) -> None:
    """Set the throttle and begin; OttlaError names each partition that was refused."""
    if throttle is not None:
        await _set_throttles(client, prepared, throttle)
    await _alter(client, prepared.plan, "was not reassigned")


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
    topics: dict[str, list[Any]] = {}
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
    tell: Callable[[int, int], None],
) -> int:
    """Wait until none of these moves; return how many still do when time is up.

    `tell` hears (still moving, of) at the beginning and whenever that changes.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + bound_s
    told = -1
    while True:
        try:
            left = len(set(partitions) & set(await in_progress(client)))
        except ConnectionLostError:  # a controller died: another one goes on
            left = max(told, 1)
        if left != told:
            tell(left, len(partitions))
            told = left
        if left == 0 or loop.time() >= give_up_s:
            return left
        await asyncio.sleep(min(LOOK_AGAIN_S, max(0.0, give_up_s - loop.time())))


# --- throttles --------------------------------------------------------------------------------


async def _set_throttles(client: Client, prepared: Prepared, rate: int) -> None:
    """Set the rate on brokers, then name the replicas: nothing is throttled to an old rate."""
    leaders, followers, brokers = prepared.throttled
    alive = [broker for broker in brokers if broker in prepared.live]
    rates = {key: str(rate) for key in BROKER_THROTTLES}
    for validate_only in (True, False):
        for broker in alive:
            await _throttle(client, BROKER, str(broker), rates, validate_only=validate_only)
        for topic in leaders:
            changed = dict(zip(TOPIC_THROTTLES, (leaders[topic], followers[topic]), strict=True))
            await _throttle(client, TOPIC, topic, changed, validate_only=validate_only)
    for broker in alive:
        await configs.wait_in_force(client, broker, rates)


async def _throttle(
    client: Client, kind: int, name: str, changed: Mapping[str, str], *, validate_only: bool
) -> None:
    try:
        await configs.alter(client, kind, name, changed, validate_only=validate_only)
    except UnsupportedVersionError as error:
        raise OttlaError(f"--throttle cannot be set here ({error}); leave it out") from None


async def clear_throttles(
    client: Client, plan: Mapping[TopicPartition, Sequence[int]]
) -> tuple[list[str], list[int]]:
    """Remove throttles from a plan's topics and all brokers; return (from what, silent brokers).

    A broker that is dead or does not answer keeps its throttle: it is its own to change.
    """
    live = list(await racks(client))
    topics = sorted({tp.topic for tp in await replicas_of(client, (tp.topic for tp in plan))})
    silent = {b for replicas in plan.values() for b in replicas}.difference(live)
    cleared = []
    for broker in live:
        try:
            if await _clear(client, BROKER, str(broker)):
                cleared.append(f"broker {broker}")
        except ConnectionLostError:
            silent.add(broker)
    cleared += [f"topic {topic}" for topic in topics if await _clear(client, TOPIC, topic)]
    return cleared, sorted(silent)


async def _clear(client: Client, kind: int, name: str) -> bool:
    keys = (*BROKER_THROTTLES, LOG_DIRS_THROTTLE) if kind == BROKER else TOPIC_THROTTLES
    # Whoever does not say in time what it has must not keep the others from being asked.
    timeout_s = BROKER_ANSWERS_IN_S if kind == BROKER else None
    found = await configs.own(client, kind, name, keys, timeout_s=timeout_s)
    there = [key for key in keys if key in found]
    if there:
        await configs.alter(client, kind, name, {}, there)
    return bool(there)
