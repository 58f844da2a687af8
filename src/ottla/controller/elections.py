"""Elections: who leads one partition, and why the others do not.

A decider. Invariants: a clean election never leaves the ISR, but for replicas that have all that
was acknowledged; the ISR an election writes holds the new leader; every election raises the leader
epoch by one; every replica that did not win is named with the rule that kept it out. Kafka:
`Election` and `PartitionLeaderElectionAlgorithms`.

Kinds: OFFLINE (the leader is gone: first live replica of the ISR, in the order of assignment, else
the first that is eligible by adr/0007), UNCLEAN (as OFFLINE, and if neither has a live member the
live replica with the longest log: may lose records, so the partition is marked RECOVERING),
REASSIGNMENT (first live ISR member of the target),
PREFERRED (the first assigned replica or none), CONTROLLED_SHUTDOWN (first ISR member that is
not itself on its way out). A new partition has no ISR to choose from: `initial` decides there.
"""

from collections.abc import Callable, Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from ottla.model.cluster import (
    INITIAL_LEADER_EPOCH,
    RECOVERING,
    LeaderAndIsr,
    ReplicaAssignment,
)
from ottla.model.rules import Rule

Online = Callable[[int], bool]
LogEnd = tuple[int, int]
"""The leader epoch of a log's last record, and its end offset."""
NO_LOG_END: LogEnd = (-2, -1)


class ElectionKind(Enum):
    """What occasions an election."""

    OFFLINE = "offline"
    UNCLEAN = "unclean"
    REASSIGNMENT = "reassignment"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"


class Election(msgspec.Struct, frozen=True):
    """An election's outcome: the new state, or None with the reason why none was possible.

    `rule` names what decided; `rejected` pairs every passed-over replica with its reason;
    `recipients` are the brokers that are sent LeaderAndIsr.
    """

    state: LeaderAndIsr | None
    rule: Rule
    rejected: tuple[tuple[int, str], ...]
    recipients: tuple[int, ...]


def initial(assignment: ReplicaAssignment, online: Online) -> Election:
    """Choose the first leader of a new partition: the first live replica; all live ones are ISR."""
    live = tuple(r for r in assignment.replicas if online(r))
    rejected = tuple((r, "offline") for r in assignment.replicas if r not in live)
    if not live:
        return Election(None, Rule.NO_LIVE_REPLICA, rejected, ())
    state = LeaderAndIsr(live[0], INITIAL_LEADER_EPOCH, live)
    later = tuple((r, "later in the assignment") for r in live[1:])
    return Election(state, Rule.FIRST_LIVE_REPLICA, rejected + later, live)


def elect(
    kind: ElectionKind,
    assignment: ReplicaAssignment,
    state: LeaderAndIsr,
    online: Online,
    *,
    shutting_down: Callable[[int], bool] = lambda _broker: False,
    eligible: tuple[int, ...] = (),
    crashed: tuple[int, ...] = (),
    ends: Mapping[int, LogEnd] | None = None,
) -> Election:
    """Hold one election. `online` says whether a replica's broker and log directory live.

    For CONTROLLED_SHUTDOWN `online` includes brokers that are shutting down. For OFFLINE and
    UNCLEAN, `eligible` are the replicas outside the ISR that have all that was acknowledged, the
    dead included; `crashed` the live ISR members that may have lost some of it; `ends` where logs
    end, of those who answered.
    """
    if kind is ElectionKind.PREFERRED:
        return _preferred(assignment, state, online)
    if kind is ElectionKind.REASSIGNMENT:
        return _reassignment(assignment, state, online)
    if kind is ElectionKind.CONTROLLED_SHUTDOWN:
        return _controlled_shutdown(assignment, state, online, shutting_down)
    unclean = kind is ElectionKind.UNCLEAN
    if eligible:
        outcome = _eligible(assignment, state, online, eligible, crashed)
        if outcome.state is not None or not unclean:
            return outcome
        return _longest_log(assignment, state, online, ends or {})
    outcome = _offline(assignment, state, online, unclean=unclean and not ends)
    if outcome.state is None and unclean and ends:
        return _longest_log(assignment, state, online, ends)
    return outcome


def _first(
    candidates: tuple[int, ...], objection: Callable[[int], str | None]
) -> tuple[int | None, tuple[tuple[int, str], ...]]:
    """Return the first candidate without objection, and all others with theirs."""
    chosen: int | None = None
    rejected = []
    for candidate in candidates:
        problem = objection(candidate)
        if problem is None and chosen is None:
            chosen = candidate
        else:
            rejected.append((candidate, problem or "later in the assignment"))
    return chosen, tuple(rejected)


def _in_sync_and_live(state: LeaderAndIsr, online: Online) -> Callable[[int], str | None]:
    def objection(replica: int) -> str | None:
        if not online(replica):
            return "offline"
        return None if replica in state.isr else "not in the ISR"

    return objection


def _eligible(
    assignment: ReplicaAssignment,
    state: LeaderAndIsr,
    online: Online,
    eligible: tuple[int, ...],
    crashed: tuple[int, ...],
) -> Election:
    """Elect out of the ISR, or an eligible replica, where there are eligible ones."""
    live = tuple(r for r in assignment.replicas if online(r))
    in_sync = _in_sync_and_live(state, online)

    def objection(replica: int) -> str | None:
        problem = in_sync(replica)
        if problem is None and replica in crashed:
            return "in the ISR, but it crashed since"
        return problem

    leader, rejected = _first(assignment.replicas, objection)
    if leader is not None:
        isr = tuple(r for r in state.isr if online(r) and r not in crashed)
        return Election(state.with_leader(leader, isr), Rule.FIRST_LIVE_ISR_MEMBER, rejected, live)

    def not_eligible(replica: int) -> str | None:
        if replica in eligible:
            return None if online(replica) else "eligible, but offline"
        return objection(replica)

    leader, rejected = _first(assignment.replicas, not_eligible)
    if leader is not None:
        new = state.with_leader(leader, (leader,))
        return Election(new, Rule.FIRST_LIVE_ELIGIBLE_REPLICA, rejected, live)
    return Election(None, Rule.NO_LIVE_ISR_MEMBER_NOR_ELIGIBLE, rejected, live)


def _offline(
    assignment: ReplicaAssignment, state: LeaderAndIsr, online: Online, *, unclean: bool
) -> Election:
    live = tuple(r for r in assignment.replicas if online(r))
    leader, rejected = _first(assignment.replicas, _in_sync_and_live(state, online))
    if leader is not None:
        isr = tuple(r for r in state.isr if online(r))
        return Election(state.with_leader(leader, isr), Rule.FIRST_LIVE_ISR_MEMBER, rejected, live)
    if unclean:
        return _longest_log(assignment, state, online, {})
    return Election(None, Rule.NO_LIVE_ISR_MEMBER, rejected, live)


def _longest_log(
    assignment: ReplicaAssignment,
    state: LeaderAndIsr,
    online: Online,
    ends: Mapping[int, LogEnd],
) -> Election:
    """Elect the live replica whose last record is of the highest epoch, then whose log is longest.

    A replica whose broker did not respond comes last, and among equals the first in the assignment.
    """
    live = tuple(r for r in assignment.replicas if online(r))
    if not live:
        rejected = tuple((r, "offline") for r in assignment.replicas)
        return Election(None, Rule.NO_LIVE_REPLICA, rejected, live)
    leader = max(live, key=lambda r: (ends.get(r, NO_LOG_END), -assignment.replicas.index(r)))
    others = []
    for replica in assignment.replicas:
        if replica not in live:
            others.append((replica, "offline"))
        elif replica != leader:
            end = ends.get(replica)
            why = "later in the assignment" if end == ends.get(leader) else "its log ends before"
            others.append((replica, "did not tell its log end" if ends and end is None else why))
    new = replace(state.with_leader(leader, (leader,)), recovery_state=RECOVERING)
    rule = Rule.UNCLEAN_LONGEST_LOG if ends else Rule.UNCLEAN_FIRST_LIVE_REPLICA
    return Election(new, rule, tuple(others), live)


def _reassignment(assignment: ReplicaAssignment, state: LeaderAndIsr, online: Online) -> Election:
    target = assignment.target
    leader, rejected = _first(target, _in_sync_and_live(state, online))
    if leader is None:
        return Election(None, Rule.NO_LIVE_ISR_MEMBER_OF_TARGET, rejected, target)
    new = state.with_leader(leader, state.isr)
    return Election(new, Rule.FIRST_LIVE_ISR_MEMBER_OF_TARGET, rejected, target)


def _preferred(assignment: ReplicaAssignment, state: LeaderAndIsr, online: Online) -> Election:
    replicas = assignment.replicas
    leader, rejected = _first(replicas[:1], _in_sync_and_live(state, online))
    others = tuple((r, "not the preferred replica") for r in replicas[1:])
    if leader is None:
        rule = Rule.PREFERRED_REPLICA_NOT_IN_SYNC
        return Election(None, rule, rejected + others, replicas)
    new = state.with_leader(leader, state.isr)
    return Election(new, Rule.PREFERRED_REPLICA, others, replicas)


def _controlled_shutdown(
    assignment: ReplicaAssignment,
    state: LeaderAndIsr,
    online: Online,
    shutting_down: Callable[[int], bool],
) -> Election:
    eligible = _in_sync_and_live(state, online)
    recipients = tuple(r for r in assignment.replicas if online(r))
    leader, rejected = _first(
        assignment.replicas,
        lambda r: eligible(r) or ("shutting down" if shutting_down(r) else None),
    )
    if leader is None:
        rule = Rule.NO_LIVE_ISR_MEMBER_THAT_STAYS
        return Election(None, rule, rejected, recipients)
    isr = tuple(r for r in state.isr if not shutting_down(r))
    new = state.with_leader(leader, isr)
    return Election(new, Rule.FIRST_LIVE_ISR_MEMBER_THAT_STAYS, rejected, recipients)
