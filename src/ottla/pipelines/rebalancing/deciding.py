"""Deciding: from a problem to a plan in stages, with its score before and after.

Pure and deterministic: hard goals first, then bytes, the spread of topics, and leaders by order
alone.
"""

from dataclasses import dataclass

from ottla.model.ids import TopicPartition
from ottla.pipelines.rebalancing import byte_goal, hard_goals, leaders, staging, topic_goal
from ottla.pipelines.rebalancing.hard_goals import BYTES, CAPACITY, DRAIN, HARD, RACKS, TOPICS
from ottla.pipelines.rebalancing.placement import Placement
from ottla.pipelines.rebalancing.problem import Assignment, Problem, UnmetGoalError, check
from ottla.pipelines.rebalancing.scoring import Score, least_bytes, score
from ottla.pipelines.rebalancing.staging import Bounds, Change

WHY = (DRAIN, RACKS, CAPACITY, BYTES, TOPICS)


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done.

    `stages`: changes, in order; those that copy nothing are in the last ones. `elect`: partitions
    that someone else leads now than shall. `copied`: bytes by the goal that asks for them.
    `left_out`: moves for which there is no room in between.
    """

    stages: list[list[Change]]
    elect: list[TopicPartition]
    copied: dict[str, int]
    least: int
    left_out: int
    before: Score
    after: Score

    @property
    def bytes_to_move(self) -> int:
        return sum(change.copied for stage in self.stages for change in stage)


def decide(problem: Problem, bounds: Bounds | None = None) -> Decision:
    """Return the plan; UnmetGoalError if a hard goal cannot be met."""
    check(problem)
    bounds = bounds or Bounds()
    at = hard_goals.met(problem)
    byte_goal.level(at, BYTES)
    topic_goal.spread(at, TOPICS)
    byte_goal.undo(at)
    hard_goals.verify(at)
    stages, left = staging.staged(problem, _moves(at), bounds)
    if left:
        _leave_out(at, left)
    copied = dict.fromkeys(WHY, 0)
    for p, there in enumerate(at.replicas):
        for b in there:
            if b not in at.original[p]:
                copied[at.why[p, b]] += at.sizes[p]
    _keep_leaders(at)
    leaders.level(at)
    leaders.keep_order(at)
    final = at.assignment()
    stages = [[change._replace(after=final[change.tp]) for change in stage] for stage in stages]
    stages += _orders(at, final, bounds.partitions)
    now = {p.tp: p.leader for p in problem.partitions}
    shall = {tp: replicas[0] for tp, replicas in final.items()}
    return Decision(
        stages=stages,
        elect=[
            p.tp
            for p in at.partitions
            if p.movable and p.leader >= 0 and shall[p.tp] != p.leader
        ],
        copied=copied,
        least=least_bytes(problem),
        left_out=len(left),
        before=score(problem, {p.tp: p.replicas for p in problem.partitions}, now),
        after=score(problem, final, shall | {p.tp: p.leader for p in problem.partitions
                                             if not p.movable}),
    )  # fmt: skip


def _moves(at: Placement) -> list[Change]:
    """Return the changes that copy something."""
    found = []
    for p, there in enumerate(at.replicas):
        original = at.original[p]
        if set(there) == set(original):
            continue
        why = {at.why[p, b] for b in there if b not in original}
        one = at.partitions[p]
        found.append(
            Change(
                one.tp,
                one.replicas,
                tuple(at.brokers[b].id for b in there),
                one.size,
                one.rate,
                bool(why.intersection(HARD)),
                min(WHY.index(name) for name in why),
            )
        )
    return found


def _leave_out(at: Placement, left: list[Change]) -> None:
    """Put back what could not be staged; UnmetGoalError if a hard goal asked for it."""
    for change in left:
        if change.forced:
            raise UnmetGoalError(
                f"capacity: there is no room for a copy of {change.tp} on brokers "
                f"{', '.join(map(str, change.adding))} at any time in between; "
                "add capacity or brokers"
            )
    gone = {change.tp for change in left}
    for p, one in enumerate(at.partitions):
        if one.tp in gone:
            coming = [b for b in at.replicas[p] if b not in at.original[p]]
            going = [b for b in at.original[p] if b not in at.replicas[p]]
            for d, s in zip(coming, going, strict=True):
                at.move(p, d, s, "")
    hard_goals.verify(at)


def _keep_leaders(at: Placement) -> None:
    """Let the first of the replicas there were that stay be the first of those that will be."""
    for p, there in enumerate(at.replicas):
        stays = [b for b in at.original[p] if b in there]
        if at.movable[p]:
            there[:] = [*stays, *(b for b in there if b not in stays)]


def _orders(at: Placement, final: Assignment, most: int) -> list[list[Change]]:
    """Return stages of the changes that copy nothing."""
    found = []
    for p, one in enumerate(at.partitions):
        after = final[one.tp]
        if set(at.original[p]) == set(at.replicas[p]) and after != one.replicas:
            found.append(Change(one.tp, one.replicas, after, one.size, one.rate, forced=False))
    return [found[i : i + most] for i in range(0, len(found), most)]
