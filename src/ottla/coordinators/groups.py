"""Groups: joins, generations, heartbeats and departures of all groups on this broker.

A decider: time is an argument (`Now`), chance comes in with the request (`Join.fresh`), and what is
to be done in the world is left in `effects`: answers to tickets, and records to be written, whose
outcome comes back through `stored`. Who may call: `group_coordinator`, which has checked before
that the group's partition is ours and loaded. Invariants:
- every JoinGroup and SyncGroup gets exactly one answer, sooner or later
- a generation has one leader; assignments go out only in the generation they were made for, and
  only when they stand in the log
- members that must answer have a deadline in `timers`

Kafka: `GroupCoordinator` (KIP-62, KIP-134, KIP-345, KIP-389, KIP-394, KIP-800,
KIP-814). The protocol of KIP-848 does not exist in ZooKeeper mode.
"""

import logging
from collections.abc import Mapping

from ottla.coordinators.group import Group, Member
from ottla.coordinators.group_records import group_value
from ottla.coordinators.group_states import GroupState
from ottla.coordinators.group_values import (
    NO_MEMBER,
    Answer,
    GroupSettings,
    Join,
    JoinResult,
    Reason,
    Store,
    Swap,
    SyncResult,
)
from ottla.coordinators.timers import Now, Timer, Timers
from ottla.model.errors import ErrorCode

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A first JoinGroup may wait so long: its sender cannot heartbeat, it does not know its id yet."""

POSTPONED_AT_LEAST_MS = 100
"""A rebalance that nobody came to is looked at again no sooner, whatever timeouts clients name."""

S = GroupState


class Groups:
    """All groups of this broker's partitions, by id."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
        self.timers = Timers()
        self._effects: list[Answer | Store] = []

    def take_effects(self) -> list[Answer | Store]:
        """Return what is to be done, in order, and forget it."""
        effects, self._effects = self._effects, []
        return effects

    # --- JoinGroup --------------------------------------------------------------------------------

    def join(self, request: Join, ticket: object, now: Now) -> None:
        """Take in a JoinGroup; the answer to `ticket` may come now or when the rebalance ends."""
        settings = self.settings
        timeout_ms = request.session_timeout_ms
        if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
            self._refuse(ticket, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
            return
        group = self.groups.get(request.group_id)
        is_new = request.member_id == NO_MEMBER
        if group is None:
            if not is_new:
                self._refuse(ticket, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
                return
            group = self.groups[request.group_id] = Group(request.group_id, now.wall_ms)
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self._refuse(ticket, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif group.state is S.DEAD:
            self._refuse(ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif is_new:
            self._join_new(group, request, ticket, now)
        else:
            self._join_known(group, request, ticket, now)
        self._try_complete_join(group, now)

    def _refuse(self, ticket: object, error: ErrorCode, member_id: str = NO_MEMBER) -> None:
        self._effects.append(Answer(ticket, JoinResult(error, member_id)))

    def _has_room(self, group: Group, member_id: str) -> bool:
        """Tell whether group.max.size lets this member in (KIP-389)."""
        if group.state in (S.EMPTY, S.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is S.PREPARING_REBALANCE:
            # Those who wait count, not the members: a group that has become too large for a
            # lowered setting loses the last who rejoin.
            waits = member is not None and member.join is not None
            return waits or group.awaiting_join < self.settings.max_size
        return member is not None or len(group.members) < self.settings.max_size

    def _join_new(self, group: Group, request: Join, ticket: object, now: Now) -> None:
        name = request.client_id if request.instance_id is None else request.instance_id
        member_id = f"{name}-{request.fresh}"
        if request.instance_id is not None:
            old_id = group.static_members.get(request.instance_id)
            if old_id is not None:
                self._return_static(group, request, old_id, member_id, ticket, now)
                return
        elif request.id_required:
            timer = Timer(lambda at: self._pending_expired(group, member_id, at))
            group.pending_members[member_id] = timer
            self.timers.set(timer, now.mono_ms + request.session_timeout_ms)
            self._refuse(ticket, ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return
        self._add_member(group, request, member_id, ticket, now)

    def _join_known(self, group: Group, request: Join, ticket: object, now: Now) -> None:
        member_id = request.member_id
        if member_id in group.pending_members and request.instance_id is None:
            self._add_member(group, request, member_id, ticket, now)
            return
        error = self._check_member(group, member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            self._refuse(ticket, error, member_id)
            return
        member = group.members[member_id]
        same = member.protocols == tuple(request.protocols)
        if group.state is S.EMPTY:
            self._refuse(ticket, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        elif same and (
            group.state is S.COMPLETING_REBALANCE
            # A leader may rejoin because of what it sees of topics: that is a reason to rebalance.
            or (group.state is S.STABLE and group.leader != member_id)
        ):
            # Its first answer was lost, perhaps. The generation is the one it belongs to.
            leads = group.state is S.COMPLETING_REBALANCE and group.leader == member_id
            self._effects.append(Answer(ticket, self._joined(group, member, as_leader=leads)))
        else:
            self._supersede(member)
            group.update(
                member,
                request.protocols,
                request.rebalance_timeout_ms,
                request.session_timeout_ms,
                ticket,
            )
            self._rebalance(group, now, f"{member_id} joins again: {request.reason}")

    def _supersede(self, member: Member) -> None:
        """Answer a JoinGroup that waits while its sender asks anew, on another connection."""
        if member.join is not None:
            self._refuse(member.join, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)

    def _add_member(
        self, group: Group, request: Join, member_id: str, ticket: object, now: Now
    ) -> None:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        if group.state is S.PREPARING_REBALANCE and group.generation == 0:
            group.new_member_added = True
        group.add(member, request.protocol_type, ticket)
        self._expect(group, member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance(group, now, f"{member_id} joins: {request.reason}")

    def _joined(self, group: Group, member: Member, *, as_leader: bool) -> JoinResult:
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            group.leader or "",
            members=group.member_metadata() if as_leader else (),
        )

    # --- static members (KIP-345) -----------------------------------------------------------------

    def _return_static(
        self, group: Group, request: Join, old_id: str, new_id: str, ticket: object, now: Now
    ) -> None:
        """Let a static member come back under a new id; without a rebalance, if that can be."""
        assert request.instance_id is not None
        old_leader = group.leader
        member = group.replace_static(request.instance_id, old_id, new_id)
        if member.join is not None:
            self._refuse(member.join, ErrorCode.FENCED_INSTANCE_ID, old_id)
            group.wait_join(member, None)
        if member.sync is not None:
            self._answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        swap = Swap(
            request.instance_id,
            old_id,
            new_id,
            old_leader,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            request.may_skip_assignment,
            ticket,
        )
        group.update(
            member,
            request.protocols,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            ticket,
        )
        self._expect(group, member, now, member.session_timeout_ms)
        if group.state is S.STABLE and group.select_protocol() == group.protocol:
            assignment = {m.member_id: m.assignment for m in group.members.values()}
            self._store(group, Reason.STATIC_MEMBER, assignment, swap)
        elif group.state is not S.PREPARING_REBALANCE:
            # The old id may be on its way into an assignment that would not fit any more.
            self._rebalance(group, now, f"static member {request.instance_id} came back")

    def _static_stored(self, store: Store, error: ErrorCode, now: Now) -> None:
        group, swap = store.group, store.swap
        assert swap is not None
        member = group.members.get(swap.new_id)
        if member is None or member.join is not swap.ticket:
            return  # answered meanwhile: fenced, removed, or part of a rebalance
        if group.state is not S.STABLE or group.generation != store.generation:
            return  # a rebalance has begun, which answers
        if error is not ErrorCode.NONE:
            logger.warning("static member not stored group=%s error=%s", group, error.name)
            group.update(
                member,
                swap.protocols,
                swap.rebalance_timeout_ms,
                swap.session_timeout_ms,
                None,
            )
            group.replace_static(swap.instance_id, swap.new_id, swap.old_id)
            self._expect(group, member, now, member.session_timeout_ms)
            result = JoinResult(
                error,
                NO_MEMBER,
                group.generation,
                group.protocol_type,
                group.protocol,
                swap.old_leader or "",
            )
            self._effects.append(Answer(swap.ticket, result))
            return
        group.wait_join(member, None)
        leads = group.leader == swap.new_id
        if swap.may_skip_assignment:
            result = self._joined(group, member, as_leader=leads)._replace(skip_assignment=leads)
        else:
            # An older client that led would assign anew, for nothing: the old id leads, it reads.
            result = self._joined(group, member, as_leader=False)
            result = result._replace(leader=swap.old_leader or "")
        self._effects.append(Answer(swap.ticket, result))
        self._expect(group, member, now, member.session_timeout_ms)

    # --- rebalance --------------------------------------------------------------------------------

    def _rebalance(self, group: Group, now: Now, reason: str) -> None:
        """Ask all members to join anew, unless that is under way or no longer possible."""
        if not group.can_rebalance:
            return
        if group.state is S.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
            self._propagate(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._stop_sync_timer(group)
        was_empty = group.state is S.EMPTY
        group.enter(S.PREPARING_REBALANCE, now)
        logger.info(
            "rebalance begins group=%s old_generation=%d reason=%s",
            group.group_id, group.generation, reason,
        )  # fmt: skip
        if was_empty:
            delay_ms = self.settings.initial_rebalance_delay_ms
            group.initial_delay_ms = delay_ms
            group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_joins(group, now, delay_ms)
        else:
            group.initial_delay_ms = None
            self._wait_for_joins(group, now, group.rebalance_timeout_ms)
            self._try_complete_join(group, now)

    def _wait_for_joins(self, group: Group, now: Now, wait_ms: float) -> None:
        if group.join_timer is None:
            group.join_timer = Timer(lambda at: self._join_timer_rang(group, at))
        self.timers.set(group.join_timer, now.mono_ms + wait_ms)

    def _join_timer_rang(self, group: Group, now: Now) -> None:
        if group.state is not S.PREPARING_REBALANCE:
            return
        waited_ms = group.initial_delay_ms
        if waited_ms is not None and group.new_member_added and group.initial_left_ms:
            # Somebody came while we waited: others may be about to (KIP-134).
            group.new_member_added = False
            delay_ms = min(self.settings.initial_rebalance_delay_ms, group.initial_left_ms)
            group.initial_left_ms = max(group.initial_left_ms - waited_ms, 0)
            group.initial_delay_ms = delay_ms
            self._wait_for_joins(group, now, delay_ms)
            return
        self._complete_join(group, now)

    def _try_complete_join(self, group: Group, now: Now) -> None:
        """End the joining at once when all are there; a first rebalance waits for its delay."""
        if (
            group.state is S.PREPARING_REBALANCE
            and group.initial_delay_ms is None
            and group.all_joined
        ):
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: Now) -> None:
        """Begin the next generation with those who are there."""
        late = [m for m in group.members.values() if m.join is None and m.instance_id is None]
        for member in late:
            group.remove(member.member_id)
        if late:
            logger.info(
                "members did not rejoin group=%s removed=%s",
                group.group_id, [m.member_id for m in late],
            )  # fmt: skip
        if group.members and not group.elect_joined_leader():
            # Static members only, none of them here: wait until their sessions are over.
            group.initial_delay_ms = None
            again_ms = max(group.rebalance_timeout_ms, POSTPONED_AT_LEAST_MS)
            self._wait_for_joins(group, now, again_ms)
            return
        if group.join_timer is not None:
            group.join_timer.cancel()
        group.initial_delay_ms = None
        group.new_member_added = False
        group.begin_generation(now)
        if not group.members:
            logger.info("group is empty group=%s generation=%d", group.group_id, group.generation)
            self._store(group, Reason.EMPTY_GENERATION, {})
            return
        logger.info(
            "generation begins group=%s generation=%d members=%d protocol=%s leader=%s",
            group.group_id, group.generation, len(group.members), group.protocol, group.leader,
        )  # fmt: skip
        for member in group.members.values():
            ticket = member.join
            if ticket is not None:
                leads = group.leader == member.member_id
                self._effects.append(Answer(ticket, self._joined(group, member, as_leader=leads)))
                group.wait_join(member, None)
            self._expect(group, member, now, member.session_timeout_ms)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        if group.sync_timer is None:
            group.sync_timer = Timer(lambda at: self._sync_timer_rang(group, at))
        self.timers.set(group.sync_timer, now.mono_ms + group.rebalance_timeout_ms)

    # --- SyncGroup --------------------------------------------------------------------------------

    def sync(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        protocol_type: str | None,
        protocol: str | None,
        assignment: Mapping[str, bytes],
        ticket: object,
        now: Now,
    ) -> None:
        """Take in a SyncGroup; the answer waits for the leader's assignment to be in the log."""
        group = self.groups.get(group_id)
        if group is None:
            self._effects.append(Answer(ticket, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)))
            return
        error = self._check_generation(group, generation, member_id, instance_id)
        if error is ErrorCode.NONE:
            if protocol_type not in (None, group.protocol_type) or protocol not in (
                None,
                group.protocol,
            ):
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            elif group.state is S.EMPTY:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif group.state is S.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            self._effects.append(Answer(ticket, SyncResult(error)))
            return
        member = group.members[member_id]
        group.pending_sync.pop(member_id, None)
        if not group.pending_sync:
            self._stop_sync_timer(group)
        if group.state is S.STABLE:
            self._effects.append(Answer(ticket, self._assigned(group, member)))
            self._expect(group, member, now, member.session_timeout_ms)
            return
        if member.sync is not None:
            self._answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync = ticket
        if group.leader == member_id:
            everyone = {m: assignment.get(m, b"") for m in group.members}
            missing = [m for m in group.members if m not in assignment]
            if missing:
                logger.warning("members without assignment group=%s %s", group_id, missing)
            self._store(group, Reason.ASSIGNMENT, everyone)

    def _assigned(self, group: Group, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)

    def _answer_sync(self, member: Member, result: SyncResult) -> None:
        if member.sync is not None:
            self._effects.append(Answer(member.sync, result))
            member.sync = None

    def _propagate(self, group: Group, error: ErrorCode, now: Now) -> None:
        """Answer every SyncGroup that waits."""
        for member in group.members.values():
            if member.sync is not None:
                ok = error is ErrorCode.NONE
                self._answer_sync(
                    member, self._assigned(group, member) if ok else SyncResult(error)
                )
                self._expect(group, member, now, member.session_timeout_ms)

    def _store(
        self,
        group: Group,
        reason: Reason,
        assignment: Mapping[str, bytes],
        swap: Swap | None = None,
    ) -> None:
        value = group_value(group, assignment)
        self._effects.append(Store(group, group.generation, value, reason, assignment, swap))

    def stored(self, store: Store, error: ErrorCode, now: Now) -> None:
        """Go on after a group's record was written, or was not."""
        group = store.group
        if store.reason is Reason.STATIC_MEMBER:
            self._static_stored(store, error, now)
        elif store.reason is Reason.EMPTY_GENERATION:
            if error is not ErrorCode.NONE:
                # The generation before comes back with the next coordinator, and its sessions end.
                logger.warning("empty group not stored group=%s error=%s", group, error.name)
        elif group.state is S.COMPLETING_REBALANCE and group.generation == store.generation:
            if error is not ErrorCode.NONE:
                for member in group.members.values():
                    member.assignment = b""
                self._propagate(group, error, now)
                self._rebalance(group, now, f"{error.name} when its assignment was stored")
            else:
                for member in group.members.values():
                    member.assignment = store.assignment[member.member_id]
                group.enter(S.STABLE, now)
                self._propagate(group, ErrorCode.NONE, now)

    def _stop_sync_timer(self, group: Group) -> None:
        group.pending_sync.clear()
        if group.sync_timer is not None:
            group.sync_timer.cancel()

    def _sync_timer_rang(self, group: Group, now: Now) -> None:
        """Remove members that joined a generation and never asked for their assignment."""
        if group.state not in (S.COMPLETING_REBALANCE, S.STABLE) or not group.pending_sync:
            return
        late = list(group.pending_sync)
        for member_id in late:
            group.remove(member_id)
        logger.info("members did not sync group=%s removed=%s", group.group_id, late)
        self._rebalance(group, now, f"{late} did not sync")

    # --- Heartbeat and LeaveGroup -----------------------------------------------------------------

    def _check_member(self, group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that a member is one, and that its instance id is still its own."""
        if instance_id is not None:
            owner = group.static_members.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                logger.info(
                    "static member fenced group=%s instance=%s member=%s current=%s",
                    group.group_id, instance_id, member_id, owner,
                )  # fmt: skip
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _check_generation(
        self, group: Group, generation: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        if group.state is S.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._check_member(group, member_id, instance_id)
        if error is ErrorCode.NONE and generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, now: Now
    ) -> ErrorCode:
        """Take note that a member is alive; tell it if it has to join anew."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_generation(group, generation, member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        member = group.members[member_id]
        self._expect(group, member, now, member.session_timeout_ms)
        if group.state is S.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _expect(self, group: Group, member: Member, now: Now, within_ms: float) -> None:
        """Have a member show up within this time."""
        timer = member.timer
        if timer is None:
            timer = member.timer = Timer(lambda at: self._session_over(group, member, at))
        self.timers.set(timer, now.mono_ms + within_ms)

    def _session_over(self, group: Group, member: Member, now: Now) -> None:
        if group.members.get(member.member_id) is not member or member.waits:
            return
        logger.info("session over group=%s member=%s", group.group_id, member.member_id)
        self._remove_member(group, member, now, f"session of {member.member_id} is over")

    def _pending_expired(self, group: Group, member_id: str, now: Now) -> None:
        group.remove(member_id)
        self._try_complete_join(group, now)

    def _remove_member(self, group: Group, member: Member, now: Now, reason: str) -> None:
        if member.join is not None:
            self._refuse(member.join, ErrorCode.UNKNOWN_MEMBER_ID)
        self._answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        if group.state in (S.STABLE, S.COMPLETING_REBALANCE):
            self._rebalance(group, now, reason)
        else:
            self._try_complete_join(group, now)

    def leave(
        self,
        group_id: str,
        leaving: list[tuple[str, str | None, str | None]],
        now: Now,
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Let members go: (member id or "", instance id, reason) each; an error for each."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        if group.state is S.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        return ErrorCode.NONE, [self._leave(group, *one, now) for one in leaving]

    def _leave(
        self, group: Group, member_id: str, instance_id: str | None, reason: str | None, now: Now
    ) -> ErrorCode:
        if member_id == NO_MEMBER:
            # An administrator names a static member by what he knows of it.
            current = group.static_members.get(instance_id) if instance_id is not None else None
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id in group.pending_members:
            group.remove(member_id)
            self._try_complete_join(group, now)
            return ErrorCode.NONE
        else:
            error = self._check_member(group, member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
        logger.info("member leaves group=%s member=%s reason=%s", group.group_id, member_id, reason)
        self._remove_member(group, group.members[member_id], now, f"{member_id} leaves: {reason}")
        return ErrorCode.NONE

    # --- commits ----------------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        now: Now,
        *,
        transactional: bool = False,
    ) -> tuple[ErrorCode, Group | None]:
        """Judge an OffsetCommit; the group is there if the answer is NONE, made if need be."""
        group = self.groups.get(group_id)
        if group is None:
            if generation >= 0 and not transactional:
                return ErrorCode.ILLEGAL_GENERATION, None
            group = self.groups[group_id] = Group(group_id, now.wall_ms)
        error = self._may_commit(group, generation, member_id, instance_id, transactional)
        if error is ErrorCode.NONE and not transactional and group.state is not S.EMPTY:
            if group.state is S.COMPLETING_REBALANCE:
                # It knows the new generation, so it will not miss that it has to sync first.
                return ErrorCode.REBALANCE_IN_PROGRESS, None
            member = group.members[member_id]
            self._expect(group, member, now, member.session_timeout_ms)
        return error, group if error is ErrorCode.NONE else None

    def _may_commit(
        self,
        group: Group,
        generation: int,
        member_id: str,
        instance_id: str | None,
        transactional: bool,
    ) -> ErrorCode:
        if group.state is S.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and group.state is S.EMPTY:
            return ErrorCode.NONE  # a consumer that assigns itself, or an administrator
        if generation >= 0 or member_id != NO_MEMBER or instance_id is not None:
            return self._check_generation(group, generation, member_id, instance_id)
        # Old transactional producers know neither member nor generation.
        if transactional or group.state is S.EMPTY:
            return ErrorCode.NONE
        return ErrorCode.UNKNOWN_MEMBER_ID

    # --- coming and going of groups ---------------------------------------------------------------

    def load(self, group: Group, now: Now) -> None:
        """Take over a group that was read from the log."""
        assert group.state in (S.EMPTY, S.STABLE)
        self.groups[group.group_id] = group
        if len(group.members) > self.settings.max_size:
            self._rebalance(group, now, f"more than group.max.size={self.settings.max_size}")
        for member in group.members.values():
            self._expect(group, member, now, member.session_timeout_ms)

    def unload(self, group: Group, now: Now) -> None:
        """Let a group go to its new coordinator; whoever waits is told to look for that."""
        self.groups.pop(group.group_id, None)
        group.enter(S.DEAD, now)
        for member in list(group.members.values()):
            if member.join is not None:
                self._refuse(member.join, ErrorCode.NOT_COORDINATOR, member.member_id)
                group.wait_join(member, None)
            self._answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
            if member.timer is not None:
                member.timer.cancel()
        self._forget_timers(group)

    def remove(self, group: Group, now: Now) -> None:
        """Forget an empty group for good."""
        group.enter(S.DEAD, now)
        self.groups.pop(group.group_id, None)
        self._forget_timers(group)

    def _forget_timers(self, group: Group) -> None:
        self._stop_sync_timer(group)
        for timer in (group.join_timer, *group.pending_members.values()):
            if timer is not None:
                timer.cancel()

    def ring(self, now: Now) -> bool:
        """Let one timer that is due have its say; False if none is."""
        timer = self.timers.pop(now.mono_ms)
        if timer is None:
            return False
        timer.ring(now)
        return True
