"""Groups: joins, generations, heartbeats and departures of all groups on this broker.

A decider: events go in through `handle`, with the time, and effects come out, in the order in which
they are to be carried out; both are values (`group_events`). Requests that never wait go in through
`respond`, which returns their result beside the effects. Invariants:
- every JoinGroup and SyncGroup gets exactly one `Reply`, at once or later
- a generation has one leader; assignments are sent only in the generation they were made for, and
  only when they are committed in the log
- each member that has to send something has a timer

Kafka: `GroupCoordinator` (KIP-62, KIP-134, KIP-345, KIP-389, KIP-394, KIP-800, KIP-814). The
protocol of KIP-848 does not exist in ZooKeeper mode.
"""

from collections.abc import Mapping
from typing import overload

from ottla.coordinators.group import Group, GroupState, Member
from ottla.coordinators.group_effects import GroupEffects, PendingStore
from ottla.coordinators.group_events import (
    MIN_POSTPONED_JOIN_MS,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    NO_MEMBER,
    Effect,
    Event,
    GroupDeleted,
    GroupLoaded,
    GroupSettings,
    GroupTimer,
    GroupUnloaded,
    HeartbeatReceived,
    Join,
    JoinRequested,
    JoinResult,
    LeaveRequested,
    LeaveResult,
    LeavingMember,
    OffsetCommitRequested,
    RecordsStored,
    StaticMemberReplacement,
    StoreGroup,
    StoreReason,
    SyncRequested,
    SyncResult,
    TimerExpired,
    TimerKey,
    join_result,
    sync_result,
)
from ottla.coordinators.group_memory import GroupMemory, text_bytes
from ottla.coordinators.group_records import group_value
from ottla.coordinators.group_validation import (
    accepts_joining_member,
    validate_generation,
    validate_member,
    validate_offset_commit,
)
from ottla.coordinators.timers import Now
from ottla.model.errors import ErrorCode

S = GroupState


class Groups:
    """All groups of this broker's partitions, by id."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
        self._pending_stores: dict[int, PendingStore] = {}
        self._last_token = 0
        self._effects = GroupEffects()
        self.memory = GroupMemory()

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Take in an event; return what is to be done, in order."""
        match event:
            case JoinRequested():
                self._join(event.join, event.request_id, now)
            case SyncRequested():
                self._sync(event, now)
            case TimerExpired(key):
                self._on_timer(key, now)
            case RecordsStored(token, error):
                self._records_stored(token, error, now)
            case GroupLoaded(group):
                self._on_group_loaded(group, now)
            case GroupUnloaded(group_id):
                self._on_group_unloaded(self.groups[group_id], now)
            case GroupDeleted(group_id):
                self._on_group_deleted(self.groups[group_id], now)
        return self._effects.take()

    @overload
    def respond(
        self, request: HeartbeatReceived | OffsetCommitRequested, now: Now
    ) -> tuple[ErrorCode, list[Effect]]: ...
    @overload
    def respond(self, request: LeaveRequested, now: Now) -> tuple[LeaveResult, list[Effect]]: ...
    def respond(
        self, request: HeartbeatReceived | OffsetCommitRequested | LeaveRequested, now: Now
    ) -> tuple[ErrorCode | LeaveResult, list[Effect]]:
        """Take in a request that never waits; return its result, and what is to be done."""
        result: ErrorCode | LeaveResult
        match request:
            case HeartbeatReceived():
                result = self._heartbeat(request, now)
            case OffsetCommitRequested():
                result = self._offset_commit(request, now)
            case LeaveRequested():
                result = self._leave(request, now)
        return result, self._effects.take()

    # --- JoinGroup --------------------------------------------------------------------------------

    def _join(self, join: Join, request_id: int, now: Now) -> None:
        """Respond now, or when the rebalance ends that the member takes part in."""
        settings = self.settings
        timeout_ms = join.session_timeout_ms
        if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
            self._effects.reply_join_error(
                request_id, ErrorCode.INVALID_SESSION_TIMEOUT, join.member_id
            )
            return
        group = self.groups.get(join.group_id)
        is_new = join.member_id == NO_MEMBER
        if group is None:
            if not is_new:
                self._effects.reply_join_error(
                    request_id, ErrorCode.UNKNOWN_MEMBER_ID, join.member_id
                )
                return
            if not self.memory.has_room_for_texts(text_bytes(len(join.group_id))):
                self._effects.reply_join_error(request_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
                return
            group = self.groups[join.group_id] = Group(join.group_id, now.wall_ms, self.memory)
        if not accepts_joining_member(group, join, settings.max_size):
            self._remove(group, join.member_id)
            self._effects.reply_join_error(request_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif group.state is S.DEAD:
            self._effects.reply_join_error(
                request_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, join.member_id
            )
        elif not group.supports_protocols(join.protocol_type, join.protocols):
            self._effects.reply_join_error(
                request_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id
            )
        elif is_new:
            self._join_new_member(group, join, request_id, now)
        else:
            self._join_current_member(group, join, request_id, now)
        self._maybe_complete_join(group, now)

    def _forget_pending(self, group_id: str, member_id: str, now: Now) -> None:
        group = self.groups.get(group_id)
        if group is not None and member_id in group.pending_members:
            self._remove(group, member_id)
            self._maybe_complete_join(group, now)
            if group.is_unused:
                self._on_group_deleted(group, now)

    def _join_new_member(self, group: Group, join: Join, request_id: int, now: Now) -> None:
        name = join.client_id if join.instance_id is None else join.instance_id
        member_id = f"{name}-{join.member_id_suffix}"
        if join.instance_id is not None:
            old_id = group.static_members.get(join.instance_id)
            if old_id is not None:
                self._replace_static_member(group, join, old_id, member_id, request_id, now)
                return
        elif join.requires_known_member_id:
            group.pending_members[member_id] = None
            for oldest in self.memory.give(join.owner, group.group_id, member_id):
                self._forget_pending(*oldest, now)
            self._effects.set_timer(
                GroupTimer.PENDING_MEMBER, group, now, join.session_timeout_ms, member_id
            )
            self._effects.reply_join_error(request_id, ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return
        self._add_member(group, join, member_id, request_id, now)

    def _join_current_member(self, group: Group, join: Join, request_id: int, now: Now) -> None:
        member_id = join.member_id
        if member_id in group.pending_members and join.instance_id is None:
            self._add_member(group, join, member_id, request_id, now)
            return
        error = validate_member(group, member_id, join.instance_id)
        self._effects.fenced(error, group, member_id, join.instance_id)
        if error is not ErrorCode.NONE:
            self._effects.reply_join_error(request_id, error, member_id)
            return
        member = group.members[member_id]
        same = member.protocols == tuple(join.protocols)
        if group.state is S.EMPTY:
            self._effects.reply_join_error(request_id, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        elif same and (
            group.state is S.COMPLETING_REBALANCE
            # A leader that rejoins has seen a change of topics: that needs a rebalance.
            or (group.state is S.STABLE and group.leader != member_id)
        ):
            # The first response may have been lost. It belongs to the current generation.
            leads = group.state is S.COMPLETING_REBALANCE and group.leader == member_id
            self._effects.reply(request_id, join_result(group, member, as_leader=leads))
        else:
            if member.join_request is not None:
                # Its client has sent another one since, on another connection.
                self._effects.reply_join_error(
                    member.join_request, ErrorCode.REBALANCE_IN_PROGRESS, member_id
                )
            group.update(
                member,
                join.protocols,
                join.rebalance_timeout_ms,
                join.session_timeout_ms,
                request_id,
            )
            self._prepare_rebalance(group, now, f"{member_id} joins again: {join.reason}")

    def _add_member(
        self, group: Group, join: Join, member_id: str, request_id: int, now: Now
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
            self._effects.cancel_timer(GroupTimer.PENDING_MEMBER, group, member_id)
        group.add(member, join.protocol_type, request_id)
        self._effects.set_heartbeat_timer(group, member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._prepare_rebalance(group, now, f"{member_id} joins: {join.reason}")

    # --- static members (KIP-345) -----------------------------------------------------------------

    def _replace_static_member(
        self, group: Group, join: Join, old_id: str, new_id: str, request_id: int, now: Now
    ) -> None:
        """Give a static member that comes back its new id, without a rebalance if possible."""
        assert join.instance_id is not None
        old_leader = group.leader
        member = self._rename_member(group, join.instance_id, old_id, new_id)
        if member.join_request is not None:
            self._effects.reply_join_error(
                member.join_request, ErrorCode.FENCED_INSTANCE_ID, old_id
            )
            group.set_join_request(member, None)
        self._effects.reply_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        replacement = StaticMemberReplacement(
            request_id,
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
            request_id,
        )
        self._effects.set_heartbeat_timer(group, member, now)
        if group.state is S.STABLE and group.select_protocol() == group.protocol:
            assignment = {m.member_id: m.assignment for m in group.members.values()}
            self._store(group, StoreReason.STATIC_MEMBER, assignment, replacement)
        elif group.state is not S.PREPARING_REBALANCE:
            # The leader may be about to assign to the old id.
            self._prepare_rebalance(group, now, f"static member {join.instance_id} came back")

    def _rename_member(self, group: Group, instance_id: str, old_id: str, new_id: str) -> Member:
        """Replace the id of a static member. The caller sets its heartbeat timer."""
        self._effects.cancel_timer(GroupTimer.HEARTBEAT, group, old_id)
        member = group.replace_static_member(instance_id, old_id, new_id)
        member.session_timer_ms = None
        return member

    def _static_member_stored(
        self, group: Group, store: StoreGroup, error: ErrorCode, now: Now
    ) -> None:
        replacement = store.replacement
        assert replacement is not None
        member = group.members.get(replacement.new_id)
        if member is None or member.join_request != replacement.request_id:
            return  # answered meanwhile: fenced, removed, or part of a rebalance
        if group.state is not S.STABLE or group.generation != store.generation:
            return  # the rebalance that has begun responds
        if error is not ErrorCode.NONE:
            self._effects.warn(f"static member not stored group={group} error={error.name}")
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
            self._effects.set_heartbeat_timer(group, member, now)
            result = JoinResult(
                error,
                NO_MEMBER,
                group.generation,
                group.protocol_type,
                group.protocol,
                replacement.old_leader or "",
            )
            self._effects.reply(replacement.request_id, result)
            return
        group.set_join_request(member, None)
        leads = group.leader == replacement.new_id
        if replacement.supports_skipping_assignment:
            result = join_result(group, member, as_leader=leads)
            result = result._replace(skip_assignment=leads)
        else:
            # An older client that leads would assign again, without need. With its old id as the
            # leader it does not.
            result = join_result(group, member, as_leader=False)
            result = result._replace(leader=replacement.old_leader or "")
        self._effects.reply(replacement.request_id, result)
        self._effects.set_heartbeat_timer(group, member, now)

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
        self._effects.info(
            f"rebalance begins group={group.group_id} old_generation={group.generation} "
            f"reason={reason}"
        )
        if was_empty:
            delay_ms = self.settings.initial_rebalance_delay_ms
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._effects.set_timer(GroupTimer.JOIN, group, now, delay_ms)
        else:
            group.initial_delay_ms = None
            self._effects.set_timer(GroupTimer.JOIN, group, now, group.rebalance_timeout_ms)
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
            self._effects.set_timer(GroupTimer.JOIN, group, now, delay_ms)
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
            self._effects.info(f"members did not rejoin group={group.group_id} removed={removed}")
        if group.members and not self._elect_leader(group):
            # Static members only, and none has joined: wait until their sessions expire.
            group.initial_delay_ms = None
            wait_ms = max(group.rebalance_timeout_ms, MIN_POSTPONED_JOIN_MS)
            self._effects.set_timer(GroupTimer.JOIN, group, now, wait_ms)
            return
        self._effects.cancel_timer(GroupTimer.JOIN, group)
        group.initial_delay_ms = None
        group.new_member_added = False
        group.init_next_generation(now)
        self._effects.log(group.subscription_warning())
        if not group.members:
            self._effects.info(
                f"group is empty group={group.group_id} generation={group.generation}"
            )
            self._store(group, StoreReason.EMPTY_GENERATION, {})
            return
        self._effects.info(
            f"generation begins group={group.group_id} generation={group.generation} "
            f"members={len(group.members)} protocol={group.protocol} leader={group.leader}"
        )
        for member in group.members.values():
            if member.join_request is not None:
                leads = group.leader == member.member_id
                result = join_result(group, member, as_leader=leads)
                self._effects.reply(member.join_request, result)
                group.set_join_request(member, None)
            self._effects.set_heartbeat_timer(group, member, now)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        self._effects.set_timer(GroupTimer.SYNC, group, now, group.rebalance_timeout_ms)

    def _elect_leader(self, group: Group) -> bool:
        """Make a member that has joined the leader; False if none has."""
        old_leader = group.leader
        elected = group.elect_joined_leader()
        if group.leader != old_leader:
            self._effects.info(
                f"group leader did not rejoin group={group.group_id} leader={old_leader} "
                f"new={group.leader}"
            )
        return elected

    # --- SyncGroup --------------------------------------------------------------------------------

    def _sync(self, event: SyncRequested, now: Now) -> None:
        """Respond when the leader's assignment is committed in the log."""
        request_id, sync = event
        group = self.groups.get(sync.group_id)
        if group is None:
            self._effects.reply(request_id, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        member_id = sync.member_id
        error = validate_generation(group, sync.generation, member_id, sync.instance_id)
        self._effects.fenced(error, group, member_id, sync.instance_id)
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
            self._effects.reply(request_id, SyncResult(error))
            return
        member = group.members[member_id]
        group.pending_sync.pop(member_id, None)
        if not group.pending_sync:
            self._stop_sync_timer(group)
        if group.state is S.STABLE:
            self._effects.reply(request_id, sync_result(group, member))
            self._effects.set_heartbeat_timer(group, member, now)
            return
        self._effects.reply_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_request = request_id
        if group.leader == member_id:
            everyone = {m: sync.assignment.get(m, b"") for m in group.members}
            missing = [m for m in group.members if m not in sync.assignment]
            if missing:
                self._effects.warn(
                    f"members without assignment group={group.group_id} members={missing}"
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
                self._effects.reply_sync(
                    member, sync_result(group, member) if ok else SyncResult(error)
                )
                self._effects.set_heartbeat_timer(group, member, now)

    def _store(
        self,
        group: Group,
        reason: StoreReason,
        assignment: Mapping[str, bytes],
        replacement: StaticMemberReplacement | None = None,
    ) -> None:
        self._last_token += 1
        store = StoreGroup(
            self._last_token,
            group.group_id,
            group.generation,
            group_value(group, assignment),
            reason,
            assignment,
            replacement,
        )
        self._pending_stores[store.token] = PendingStore(store, group)
        self._effects.store(store)

    def _records_stored(self, token: int, error: ErrorCode, now: Now) -> None:
        store, group = self._pending_stores.pop(token)
        if store.reason is StoreReason.STATIC_MEMBER:
            self._static_member_stored(group, store, error, now)
        elif store.reason is StoreReason.EMPTY_GENERATION:
            if error is not ErrorCode.NONE:
                # The next coordinator loads the generation before; its sessions will expire.
                self._effects.warn(f"empty group not stored group={group} error={error.name}")
        elif group.state is S.COMPLETING_REBALANCE and group.generation == store.generation:
            if error is not ErrorCode.NONE:
                self._assignment_failed(group, error, now)
            else:
                for member in group.members.values():
                    group.assign(member, store.assignment[member.member_id])
                group.transition_to(S.STABLE, now)
                self._reply_all_syncs(group, ErrorCode.NONE, now)

    def _assignment_failed(self, group: Group, error: ErrorCode, now: Now) -> None:
        for member in group.members.values():
            group.assign(member, b"")
        self._reply_all_syncs(group, error, now)
        self._prepare_rebalance(group, now, f"{error.name} when its assignment was stored")

    def _stop_sync_timer(self, group: Group) -> None:
        group.pending_sync.clear()
        self._effects.cancel_timer(GroupTimer.SYNC, group)

    def _on_sync_timeout(self, group: Group, now: Now) -> None:
        """Remove the members of a generation that have not asked for their assignment."""
        if group.state not in (S.COMPLETING_REBALANCE, S.STABLE) or not group.pending_sync:
            return
        late = list(group.pending_sync)
        for member_id in late:
            self._remove(group, member_id)
        self._effects.info(f"members did not sync group={group.group_id} removed={late}")
        self._prepare_rebalance(group, now, f"{late} did not sync")

    # --- Heartbeat and LeaveGroup -----------------------------------------------------------------

    def _heartbeat(self, event: HeartbeatReceived, now: Now) -> ErrorCode:
        """Extend the member's session; the error says whether it has to join again."""
        group = self.groups.get(event.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = validate_generation(group, event.generation, event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            self._effects.fenced(error, group, event.member_id, event.instance_id)
            return error
        self._effects.set_heartbeat_timer(group, group.members[event.member_id], now)
        if group.state is S.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _on_session_timeout(self, group: Group, member_id: str, now: Now) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        member.session_timer_ms = None
        if now.mono_ms < member.session_due_ms:
            self._effects.extend_heartbeat_timer(group, member)
            return
        if member.awaits_response:
            return
        self._effects.info(f"session over group={group.group_id} member={member_id}")
        self._remove_member(group, member, now, f"session of {member_id} is over")

    def _on_pending_member_timeout(self, group: Group, member_id: str, now: Now) -> None:
        self._remove(group, member_id)
        self._maybe_complete_join(group, now)

    def _remove_member(self, group: Group, member: Member, now: Now, reason: str) -> None:
        """Remove a member, respond to its waiting requests, and rebalance the others."""
        if member.join_request is not None:
            self._effects.reply_join_error(member.join_request, ErrorCode.UNKNOWN_MEMBER_ID)
        self._effects.reply_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._remove(group, member.member_id)
        if group.state in (S.STABLE, S.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now, reason)
        else:
            self._maybe_complete_join(group, now)

    def _remove(self, group: Group, member_id: str) -> None:
        """Remove a member, or an id that never joined, and its timer."""
        if member_id in group.pending_members:
            self._effects.cancel_timer(GroupTimer.PENDING_MEMBER, group, member_id)
        if group.remove(member_id) is not None:
            self._effects.cancel_timer(GroupTimer.HEARTBEAT, group, member_id)

    def _leave(self, event: LeaveRequested, now: Now) -> LeaveResult:
        group = self.groups.get(event.group_id)
        if group is None:
            return LeaveResult(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(event.members))
        if group.state is S.DEAD:
            return LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return LeaveResult(
            ErrorCode.NONE, tuple(self._leave_one(group, member, now) for member in event.members)
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
            error = validate_member(group, member_id, instance_id)
            self._effects.fenced(error, group, member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._effects.info(
            f"member leaves group={group.group_id} member={member_id} reason={reason}"
        )
        self._remove_member(group, group.members[member_id], now, f"{member_id} leaves: {reason}")
        return ErrorCode.NONE

    # --- offset commits ---------------------------------------------------------------------------

    def _offset_commit(self, event: OffsetCommitRequested, now: Now) -> ErrorCode:
        """Whether offsets may be committed; with NONE the group exists, created if need be."""
        group = self.groups.get(event.group_id)
        if group is None:
            if event.generation >= 0 and not event.transactional:
                return ErrorCode.ILLEGAL_GENERATION
            if not self.memory.has_room_for_texts(text_bytes(len(event.group_id))):
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            group = self.groups[event.group_id] = Group(event.group_id, now.wall_ms, self.memory)
        error = validate_offset_commit(group, event)
        self._effects.fenced(error, group, event.member_id, event.instance_id)
        if error is ErrorCode.NONE and not event.transactional and group.state is not S.EMPTY:
            if group.state is S.COMPLETING_REBALANCE:
                # It knows the new generation, so it will learn that it has to sync first.
                return ErrorCode.REBALANCE_IN_PROGRESS
            self._effects.set_heartbeat_timer(group, group.members[event.member_id], now)
        return error

    # --- groups come and go -----------------------------------------------------------------------

    def _on_group_loaded(self, group: Group, now: Now) -> None:
        assert group.state in (S.EMPTY, S.STABLE)
        self.groups[group.group_id] = group
        group.count_in(self.memory)
        if len(group.members) > self.settings.max_size:
            reason = f"more than group.max.size={self.settings.max_size}"
            self._prepare_rebalance(group, now, reason)
        for member in group.members.values():
            self._effects.set_heartbeat_timer(group, member, now)

    def _on_group_unloaded(self, group: Group, now: Now) -> None:
        """Respond to waiting requests with NOT_COORDINATOR, and remove the group from memory."""
        del self.groups[group.group_id]
        group.count_in(None)
        group.transition_to(S.DEAD, now)
        for member in group.members.values():
            if member.join_request is not None:
                self._effects.reply_join_error(
                    member.join_request, ErrorCode.NOT_COORDINATOR, member.member_id
                )
                group.set_join_request(member, None)
            self._effects.reply_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
            self._effects.cancel_timer(GroupTimer.HEARTBEAT, group, member.member_id)
        self._cancel_group_timers(group)

    def _on_group_deleted(self, group: Group, now: Now) -> None:
        group.transition_to(S.DEAD, now)
        del self.groups[group.group_id]
        group.count_in(None)
        self._cancel_group_timers(group)

    # --- timers -----------------------------------------------------------------------------------

    def _cancel_group_timers(self, group: Group) -> None:
        self._stop_sync_timer(group)
        self._effects.cancel_timer(GroupTimer.JOIN, group)
        for member_id in group.pending_members:
            self._effects.cancel_timer(GroupTimer.PENDING_MEMBER, group, member_id)

    def _on_timer(self, key: TimerKey, now: Now) -> None:
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
