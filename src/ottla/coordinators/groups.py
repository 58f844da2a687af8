"""Groups: joins, generations, heartbeats and departures of all groups on this broker.

A decider: a method for each event, with the time as an argument; it acts through its port
(`GroupPort`, which is `GroupCoordinator`) and the requests that wait. Invariants:
- every JoinGroup and SyncGroup gets exactly one result, at once or later
- a generation has one leader; assignments are sent only in the generation they were made for, and
  only when they are committed in the log
- each member that has to send something has a timer
- to write a record is the last act of a method: the record may be committed before the call returns

Kafka: `GroupCoordinator` (KIP-62, KIP-134, KIP-345, KIP-389, KIP-394, KIP-800, KIP-814). The
protocol of KIP-848 does not exist in ZooKeeper mode.
"""

import logging
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum, auto
from typing import NamedTuple, Protocol

import msgspec

from ottla.coordinators.group import Group, GroupState, Member
from ottla.coordinators.group_memory import GroupMemory, Protocols, text_bytes
from ottla.coordinators.group_records import group_value
from ottla.coordinators.requests import (
    NO_MEMBER,
    AwaitsResult,
    Join,
    JoinResult,
    LeaveResult,
    LeavingMember,
    Sync,
    SyncResult,
)
from ottla.coordinators.timers import Now
from ottla.model.errors import ErrorCode

logger = logging.getLogger(__name__)

S = GroupState

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a first JoinGroup may wait: its sender has no id yet, so it cannot heartbeat."""

MIN_POSTPONED_JOIN_MS = 100
"""A rebalance that no member joins is tried again no sooner, whatever timeouts clients ask for."""


class GroupSettings(msgspec.Struct, frozen=True):
    """The group.* settings of server.properties; times in milliseconds."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1


class GroupTimer(IntEnum):
    """What a timer of a group is for."""

    JOIN = auto()
    """the end of a rebalance's first phase"""
    SYNC = auto()
    """until then each member of a generation has to ask for its assignment"""
    HEARTBEAT = auto()
    """the end of a member's session"""
    PENDING_MEMBER = auto()
    """until then a member id that was given out has to join"""


class TimerKey(NamedTuple):
    """Which timer; `member_id` is NO_MEMBER for those of a whole group."""

    kind: GroupTimer
    group_id: str
    member_id: str = NO_MEMBER


class StaticMemberReplacement(NamedTuple):
    """A static member that came back with a new id: how to respond, and what to restore."""

    request: AwaitsResult[JoinResult]
    instance_id: str
    old_id: str
    new_id: str
    old_leader: str | None
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    supports_skipping_assignment: bool


class StoreReason(Enum):
    """Why a group's record is written, and so what follows when it is committed."""

    ASSIGNMENT = auto()
    EMPTY_GENERATION = auto()
    STATIC_MEMBER = auto()


class PendingStore(NamedTuple):
    """A group's record that is being written. `assignment` is what it gives to each member."""

    group: Group
    generation: int
    value: bytes
    reason: StoreReason
    assignment: Mapping[str, bytes]
    replacement: StaticMemberReplacement | None = None


class GroupPort(Protocol):
    """What the decider acts through. `GroupCoordinator` implements it."""

    def set_timer(self, key: TimerKey, due_ms: float) -> None:
        """Call `Groups.expire` at `due_ms` of the monotonic clock, and not when set before."""
        ...

    def cancel_timer(self, key: TimerKey) -> None:
        """Do not let a timer expire."""
        ...

    def store(self, pending: PendingStore) -> None:
        """Write the record; `Groups.stored` follows, maybe before this returns."""
        ...


class Groups:
    """All groups of this broker's partitions, by id."""

    def __init__(self, settings: GroupSettings, port: GroupPort) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
        self.memory = GroupMemory()
        self._port = port

    # --- JoinGroup --------------------------------------------------------------------------------

    def join(self, join: Join, request: AwaitsResult[JoinResult], now: Now) -> None:
        """Respond now, or when the rebalance ends that the member takes part in."""
        settings = self.settings
        timeout_ms = join.session_timeout_ms
        if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
            request.on_result(JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, join.member_id))
            return
        group = self.groups.get(join.group_id)
        is_new = join.member_id == NO_MEMBER
        if group is None:
            if not is_new:
                request.on_result(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
                return
            if not self.memory.has_room_for_texts(text_bytes(len(join.group_id))):
                request.on_result(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
                return
            group = self.groups[join.group_id] = Group(join.group_id, now.wall_ms, self.memory)
        if not group.accepts(join, settings.max_size):
            self._remove(group, join.member_id)
            request.on_result(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif group.state is S.DEAD:
            request.on_result(JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, join.member_id))
        elif not group.supports_protocols(join.protocol_type, join.protocols):
            request.on_result(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
        elif is_new:
            self._join_new_member(group, join, request, now)
        else:
            self._join_current_member(group, join, request, now)
        self._maybe_complete_join(group, now)

    def _forget_pending(self, group_id: str, member_id: str, now: Now) -> None:
        group = self.groups.get(group_id)
        if group is not None and member_id in group.pending_members:
            self._remove(group, member_id)
            self._maybe_complete_join(group, now)
            if group.is_unused:
                self.delete(group, now)

    def _join_new_member(
        self, group: Group, join: Join, request: AwaitsResult[JoinResult], now: Now
    ) -> None:
        name = join.client_id if join.instance_id is None else join.instance_id
        member_id = f"{name}-{join.member_id_suffix}"
        if join.instance_id is not None:
            old_id = group.static_members.get(join.instance_id)
            if old_id is not None:
                self._replace_static_member(group, join, old_id, member_id, request, now)
                return
        elif join.requires_known_member_id:
            group.pending_members[member_id] = None
            for oldest in self.memory.give(join.owner, group.group_id, member_id):
                self._forget_pending(*oldest, now)
            self._set_timer(
                GroupTimer.PENDING_MEMBER, group, now, join.session_timeout_ms, member_id
            )
            request.on_result(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        self._add_member(group, join, member_id, request, now)

    def _join_current_member(
        self, group: Group, join: Join, request: AwaitsResult[JoinResult], now: Now
    ) -> None:
        member_id = join.member_id
        if member_id in group.pending_members and join.instance_id is None:
            self._add_member(group, join, member_id, request, now)
            return
        error = group.validate_member(member_id, join.instance_id)
        if error is not ErrorCode.NONE:
            request.on_result(JoinResult(error, member_id))
            return
        member = group.members[member_id]
        same = member.protocols == tuple(join.protocols)
        if group.state is S.EMPTY:
            request.on_result(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        elif same and (
            group.state is S.COMPLETING_REBALANCE
            # A leader that rejoins has seen a change of topics: that needs a rebalance.
            or (group.state is S.STABLE and group.leader != member_id)
        ):
            # The first response may have been lost. It belongs to the current generation.
            leads = group.state is S.COMPLETING_REBALANCE and group.leader == member_id
            request.on_result(group.join_result(member, as_leader=leads))
        else:
            if member.join_request is not None:
                # Its client has sent another one since, on another connection.
                member.join_request.on_result(
                    JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id)
                )
            group.update(
                member,
                join.protocols,
                join.rebalance_timeout_ms,
                join.session_timeout_ms,
                request,
            )
            self._prepare_rebalance(group, now, f"{member_id} joins again: {join.reason}")

    def _add_member(
        self, group: Group, join: Join, member_id: str, request: AwaitsResult[JoinResult], now: Now
    ) -> None:
        member = Member(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.rebalance_timeout_ms,
            join.session_timeout_ms,
            join.protocols,
            owner=join.owner,
        )
        member.is_new = True
        if group.state is S.PREPARING_REBALANCE and group.generation == 0:
            group.new_member_added = True
        if member_id in group.pending_members:
            self._cancel_timer(GroupTimer.PENDING_MEMBER, group, member_id)
        group.add(member, join.protocol_type, request)
        self._set_heartbeat_timer(group, member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._prepare_rebalance(group, now, f"{member_id} joins: {join.reason}")

    # --- static members (KIP-345) -----------------------------------------------------------------

    def _replace_static_member(
        self,
        group: Group,
        join: Join,
        old_id: str,
        new_id: str,
        request: AwaitsResult[JoinResult],
        now: Now,
    ) -> None:
        """Give a static member that comes back its new id, without a rebalance if possible."""
        assert join.instance_id is not None
        old_leader = group.leader
        member = self._rename_member(group, join.instance_id, old_id, new_id)
        if member.join_request is not None:
            member.join_request.on_result(JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
            group.set_join_request(member, None)
        member.reply_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        replacement = StaticMemberReplacement(
            request,
            join.instance_id,
            old_id,
            new_id,
            old_leader,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            join.supports_skipping_assignment,
        )
        group.update(
            member,
            join.protocols,
            join.rebalance_timeout_ms,
            join.session_timeout_ms,
            request,
        )
        self._set_heartbeat_timer(group, member, now)
        if group.state is S.STABLE and group.select_protocol() == group.protocol:
            assignment = {m.member_id: m.assignment for m in group.members.values()}
            self._store(group, StoreReason.STATIC_MEMBER, assignment, replacement)
        elif group.state is not S.PREPARING_REBALANCE:
            # The leader may be about to assign to the old id.
            self._prepare_rebalance(group, now, f"static member {join.instance_id} came back")

    def _rename_member(self, group: Group, instance_id: str, old_id: str, new_id: str) -> Member:
        """Replace the id of a static member. The caller sets its heartbeat timer."""
        self._cancel_timer(GroupTimer.HEARTBEAT, group, old_id)
        member = group.replace_static_member(instance_id, old_id, new_id)
        member.session_timer_ms = None
        return member

    def _static_member_stored(self, pending: PendingStore, error: ErrorCode, now: Now) -> None:
        group, replacement = pending.group, pending.replacement
        assert replacement is not None
        request = replacement.request
        member = group.members.get(replacement.new_id)
        if member is None or member.join_request is not request:
            return  # answered meanwhile: fenced, removed, or part of a rebalance
        if group.state is not S.STABLE or group.generation != pending.generation:
            return  # the rebalance that has begun responds
        if error is not ErrorCode.NONE:
            logger.warning("static member not stored group=%s error=%s", group, error.name)
            group.update(
                member,
                replacement.old_protocols,
                replacement.old_rebalance_timeout_ms,
                replacement.old_session_timeout_ms,
                None,
            )
            self._rename_member(
                group, replacement.instance_id, replacement.new_id, replacement.old_id
            )
            self._set_heartbeat_timer(group, member, now)
            result = JoinResult(
                error,
                NO_MEMBER,
                group.generation,
                group.protocol_type,
                group.protocol,
                replacement.old_leader or "",
            )
            request.on_result(result)
            return
        group.set_join_request(member, None)
        leads = group.leader == replacement.new_id
        if replacement.supports_skipping_assignment:
            result = group.join_result(member, as_leader=leads)
            result = result._replace(skip_assignment=leads)
        else:
            # An older client that leads would assign again, without need. With its old id as the
            # leader it does not.
            result = group.join_result(member, as_leader=False)
            result = result._replace(leader=replacement.old_leader or "")
        request.on_result(result)
        self._set_heartbeat_timer(group, member, now)

    # --- rebalance --------------------------------------------------------------------------------

    def _prepare_rebalance(self, group: Group, now: Now, reason: str) -> None:
        """Have all members join again, unless that is under way or not possible any more."""
        if not group.can_rebalance:
            return
        if group.state is S.COMPLETING_REBALANCE:
            for member in group.members.values():
                group.assign(member, b"")
            self._reply_all_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._stop_sync_timer(group)
        was_empty = group.state is S.EMPTY
        group.transition_to(S.PREPARING_REBALANCE, now)
        logger.info(
            "rebalance begins group=%s old_generation=%d reason=%s",
            group.group_id,
            group.generation,
            reason,
        )
        if was_empty:
            delay_ms = self.settings.initial_rebalance_delay_ms
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._set_timer(GroupTimer.JOIN, group, now, delay_ms)
        else:
            group.initial_delay_ms = None
            self._set_timer(GroupTimer.JOIN, group, now, group.rebalance_timeout_ms)
            self._maybe_complete_join(group, now)

    def _on_join_timeout(self, group: Group, now: Now) -> None:
        if group.state is not S.PREPARING_REBALANCE:
            return
        waited_ms = group.initial_delay_ms
        if waited_ms is not None and group.new_member_added and group.initial_remaining_ms:
            # A member joined meanwhile, so others may follow (KIP-134).
            group.new_member_added = False
            delay_ms = min(self.settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(group.initial_remaining_ms - waited_ms, 0)
            group.initial_delay_ms = delay_ms
            self._set_timer(GroupTimer.JOIN, group, now, delay_ms)
            return
        self._complete_join(group, now)

    def _maybe_complete_join(self, group: Group, now: Now) -> None:
        """Complete the join if all members have joined; a first rebalance waits for its delay."""
        if (
            group.state is S.PREPARING_REBALANCE
            and group.initial_delay_ms is None
            and group.all_joined
        ):
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: Now) -> None:
        """Begin the next generation with the members that have joined (Kafka: onCompleteJoin)."""
        late = [
            m for m in group.members.values() if m.join_request is None and m.instance_id is None
        ]
        for member in late:
            self._remove(group, member.member_id)
        if late:
            removed = [m.member_id for m in late]
            logger.info("members did not rejoin group=%s removed=%s", group.group_id, removed)
        if group.members and not self._elect_leader(group):
            # Static members only, and none has joined: wait until their sessions expire.
            group.initial_delay_ms = None
            wait_ms = max(group.rebalance_timeout_ms, MIN_POSTPONED_JOIN_MS)
            self._set_timer(GroupTimer.JOIN, group, now, wait_ms)
            return
        self._cancel_timer(GroupTimer.JOIN, group)
        group.initial_delay_ms = None
        group.new_member_added = False
        group.init_next_generation(now)
        group.log_subscription_error()
        if not group.members:
            logger.info("group is empty group=%s generation=%d", group.group_id, group.generation)
            self._store(group, StoreReason.EMPTY_GENERATION, {})
            return
        logger.info(
            "generation begins group=%s generation=%d members=%d protocol=%s leader=%s",
            group.group_id,
            group.generation,
            len(group.members),
            group.protocol,
            group.leader,
        )
        for member in group.members.values():
            if member.join_request is not None:
                leads = group.leader == member.member_id
                member.join_request.on_result(group.join_result(member, as_leader=leads))
                group.set_join_request(member, None)
            self._set_heartbeat_timer(group, member, now)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        self._set_timer(GroupTimer.SYNC, group, now, group.rebalance_timeout_ms)

    def _elect_leader(self, group: Group) -> bool:
        """Make a member that has joined the leader; False if none has."""
        old_leader = group.leader
        elected = group.elect_joined_leader()
        if group.leader != old_leader:
            logger.info(
                "group leader did not rejoin group=%s leader=%s new=%s",
                group.group_id,
                old_leader,
                group.leader,
            )
        return elected

    # --- SyncGroup --------------------------------------------------------------------------------

    def sync(self, sync: Sync, request: AwaitsResult[SyncResult], now: Now) -> None:
        """Respond when the leader's assignment is committed in the log."""
        group = self.groups.get(sync.group_id)
        if group is None:
            request.on_result(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        member_id = sync.member_id
        error = group.validate_generation(sync.generation, member_id, sync.instance_id)
        if error is ErrorCode.NONE:
            if sync.protocol_type not in (None, group.protocol_type) or sync.protocol not in (
                None,
                group.protocol,
            ):
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            elif group.state is S.EMPTY:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif group.state is S.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            request.on_result(SyncResult(error))
            return
        member = group.members[member_id]
        group.pending_sync.pop(member_id, None)
        if not group.pending_sync:
            self._stop_sync_timer(group)
        if group.state is S.STABLE:
            request.on_result(group.sync_result(member))
            self._set_heartbeat_timer(group, member, now)
            return
        member.reply_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_request = request
        if group.leader == member_id:
            everyone = {m: sync.assignment.get(m, b"") for m in group.members}
            missing = [m for m in group.members if m not in sync.assignment]
            if missing:
                logger.warning(
                    "members without assignment group=%s members=%s", group.group_id, missing
                )
            if not group.has_room_for(member.owner, everyone):
                self._assignment_failed(group, ErrorCode.UNKNOWN_SERVER_ERROR, now)
                return
            self._store(group, StoreReason.ASSIGNMENT, everyone)

    def _reply_all_syncs(self, group: Group, error: ErrorCode, now: Now) -> None:
        """Respond to every SyncGroup that waits: with the assignment, or with an error."""
        for member in group.members.values():
            if member.sync_request is not None:
                ok = error is ErrorCode.NONE
                member.reply_sync(group.sync_result(member) if ok else SyncResult(error))
                self._set_heartbeat_timer(group, member, now)

    def _store(
        self,
        group: Group,
        reason: StoreReason,
        assignment: Mapping[str, bytes],
        replacement: StaticMemberReplacement | None = None,
    ) -> None:
        value = group_value(group, assignment)
        self._port.store(
            PendingStore(group, group.generation, value, reason, assignment, replacement)
        )

    def stored(self, pending: PendingStore, error: ErrorCode, now: Now) -> None:
        """Go on: the record is committed in the log, or not; `error` is for clients."""
        group = pending.group
        if pending.reason is StoreReason.STATIC_MEMBER:
            self._static_member_stored(pending, error, now)
        elif pending.reason is StoreReason.EMPTY_GENERATION:
            if error is not ErrorCode.NONE:
                # The next coordinator loads the generation before; its sessions will expire.
                logger.warning("empty group not stored group=%s error=%s", group, error.name)
        elif group.state is S.COMPLETING_REBALANCE and group.generation == pending.generation:
            if error is not ErrorCode.NONE:
                self._assignment_failed(group, error, now)
            else:
                for member in group.members.values():
                    group.assign(member, pending.assignment[member.member_id])
                group.transition_to(S.STABLE, now)
                self._reply_all_syncs(group, ErrorCode.NONE, now)

    def _assignment_failed(self, group: Group, error: ErrorCode, now: Now) -> None:
        for member in group.members.values():
            group.assign(member, b"")
        self._reply_all_syncs(group, error, now)
        self._prepare_rebalance(group, now, f"{error.name} when its assignment was stored")

    def _stop_sync_timer(self, group: Group) -> None:
        group.pending_sync.clear()
        self._cancel_timer(GroupTimer.SYNC, group)

    def _on_sync_timeout(self, group: Group, now: Now) -> None:
        """Remove the members of a generation that have not asked for their assignment."""
        if group.state not in (S.COMPLETING_REBALANCE, S.STABLE) or not group.pending_sync:
            return
        late = list(group.pending_sync)
        for member_id in late:
            self._remove(group, member_id)
        logger.info("members did not sync group=%s removed=%s", group.group_id, late)
        self._prepare_rebalance(group, now, f"{late} did not sync")

    # --- Heartbeat and LeaveGroup -----------------------------------------------------------------

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, now: Now
    ) -> ErrorCode:
        """Extend the member's session; the error says whether it has to join again."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.validate_generation(generation, member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        self._set_heartbeat_timer(group, group.members[member_id], now)
        if group.state is S.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _on_session_timeout(self, group: Group, member_id: str, now: Now) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        member.session_timer_ms = None
        if now.mono_ms < member.session_due_ms:
            self._extend_heartbeat_timer(group, member)
            return
        if member.awaits_response:
            return
        logger.info("session over group=%s member=%s", group.group_id, member_id)
        self._remove_member(group, member, now, f"session of {member_id} is over")

    def _on_pending_member_timeout(self, group: Group, member_id: str, now: Now) -> None:
        self._remove(group, member_id)
        self._maybe_complete_join(group, now)

    def _remove_member(self, group: Group, member: Member, now: Now, reason: str) -> None:
        """Remove a member, respond to its waiting requests, and rebalance the others."""
        if member.join_request is not None:
            member.join_request.on_result(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
        member.reply_sync(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._remove(group, member.member_id)
        if group.state in (S.STABLE, S.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now, reason)
        else:
            self._maybe_complete_join(group, now)

    def _remove(self, group: Group, member_id: str) -> None:
        """Remove a member, or an id that never joined, and its timer."""
        if member_id in group.pending_members:
            self._cancel_timer(GroupTimer.PENDING_MEMBER, group, member_id)
        if group.remove(member_id) is not None:
            self._cancel_timer(GroupTimer.HEARTBEAT, group, member_id)

    def leave(self, group_id: str, members: Iterable[LeavingMember], now: Now) -> LeaveResult:
        group = self.groups.get(group_id)
        if group is None:
            return LeaveResult(ErrorCode.NONE, tuple(ErrorCode.UNKNOWN_MEMBER_ID for _ in members))
        if group.state is S.DEAD:
            return LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return LeaveResult(
            ErrorCode.NONE, tuple(self._leave_one(group, member, now) for member in members)
        )

    def _leave_one(self, group: Group, leaving: LeavingMember, now: Now) -> ErrorCode:
        member_id, instance_id, reason = leaving
        if member_id == NO_MEMBER:
            # An administrator removes a static member, of which he knows the instance id only.
            current = group.static_members.get(instance_id) if instance_id is not None else None
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id in group.pending_members:
            self._remove(group, member_id)
            self._maybe_complete_join(group, now)
            return ErrorCode.NONE
        else:
            error = group.validate_member(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
        logger.info("member leaves group=%s member=%s reason=%s", group.group_id, member_id, reason)
        self._remove_member(group, group.members[member_id], now, f"{member_id} leaves: {reason}")
        return ErrorCode.NONE

    # --- offset commits ---------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        now: Now,
        *,
        transactional: bool = False,
    ) -> ErrorCode:
        """Return whether offsets may be committed; with NONE the group exists, made if need be."""
        group = self.groups.get(group_id)
        if group is None:
            if generation >= 0 and not transactional:
                return ErrorCode.ILLEGAL_GENERATION
            if not self.memory.has_room_for_texts(text_bytes(len(group_id))):
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            group = self.groups[group_id] = Group(group_id, now.wall_ms, self.memory)
        error = group.validate_commit(
            generation, member_id, instance_id, transactional=transactional
        )
        if error is ErrorCode.NONE and not transactional and group.state is not S.EMPTY:
            if group.state is S.COMPLETING_REBALANCE:
                # It knows the new generation, so it will learn that it has to sync first.
                return ErrorCode.REBALANCE_IN_PROGRESS
            self._set_heartbeat_timer(group, group.members[member_id], now)
        return error

    # --- groups come and go -----------------------------------------------------------------------

    def load(self, group: Group, now: Now) -> None:
        """Coordinate a group from now on that was read from the log."""
        assert group.state in (S.EMPTY, S.STABLE)
        self.groups[group.group_id] = group
        group.count_in(self.memory)
        if len(group.members) > self.settings.max_size:
            reason = f"more than group.max.size={self.settings.max_size}"
            self._prepare_rebalance(group, now, reason)
        for member in group.members.values():
            self._set_heartbeat_timer(group, member, now)

    def unload(self, group: Group, now: Now) -> None:
        """Leave a group to another broker: NOT_COORDINATOR is the result of all that waits."""
        del self.groups[group.group_id]
        group.count_in(None)
        group.transition_to(S.DEAD, now)
        for member in group.members.values():
            if member.join_request is not None:
                member.join_request.on_result(
                    JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id)
                )
                group.set_join_request(member, None)
            member.reply_sync(SyncResult(ErrorCode.NOT_COORDINATOR))
            self._cancel_timer(GroupTimer.HEARTBEAT, group, member.member_id)
        self._cancel_group_timers(group)

    def delete(self, group: Group, now: Now) -> None:
        """Remove a group for good; it is empty."""
        group.transition_to(S.DEAD, now)
        del self.groups[group.group_id]
        group.count_in(None)
        self._cancel_group_timers(group)

    # --- timers -----------------------------------------------------------------------------------

    def _set_timer(
        self, kind: GroupTimer, group: Group, now: Now, wait_ms: float, member_id: str = NO_MEMBER
    ) -> None:
        self._port.set_timer(TimerKey(kind, group.group_id, member_id), now.mono_ms + wait_ms)

    def _cancel_timer(self, kind: GroupTimer, group: Group, member_id: str = NO_MEMBER) -> None:
        self._port.cancel_timer(TimerKey(kind, group.group_id, member_id))

    def _set_heartbeat_timer(
        self, group: Group, member: Member, now: Now, wait_ms: float | None = None
    ) -> None:
        """Let a member's session expire after its session timeout, or `wait_ms`.

        A timer that expires earlier stays: `_extend_heartbeat_timer` moves it when it expires.
        """
        if wait_ms is None:
            wait_ms = member.session_timeout_ms
        due_ms = member.session_due_ms = now.mono_ms + wait_ms
        if member.session_timer_ms is None or due_ms < member.session_timer_ms:
            self._extend_heartbeat_timer(group, member)

    def _extend_heartbeat_timer(self, group: Group, member: Member) -> None:
        """Let the member's timer expire when its session does."""
        due_ms = member.session_timer_ms = member.session_due_ms
        key = TimerKey(GroupTimer.HEARTBEAT, group.group_id, member.member_id)
        self._port.set_timer(key, due_ms)

    def _cancel_group_timers(self, group: Group) -> None:
        self._stop_sync_timer(group)
        self._cancel_timer(GroupTimer.JOIN, group)
        for member_id in group.pending_members:
            self._cancel_timer(GroupTimer.PENDING_MEMBER, group, member_id)

    def expire(self, key: TimerKey, now: Now) -> None:
        """Go on: a timer has expired."""
        group = self.groups.get(key.group_id)
        if group is None:
            return
        match key.kind:
            case GroupTimer.JOIN:
                self._on_join_timeout(group, now)
            case GroupTimer.SYNC:
                self._on_sync_timeout(group, now)
            case GroupTimer.HEARTBEAT:
                self._on_session_timeout(group, key.member_id, now)
            case GroupTimer.PENDING_MEMBER:
                self._on_pending_member_timeout(group, key.member_id, now)
