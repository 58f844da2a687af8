"""The effects of one event of a group, in the order in which they are to be carried out.

A decider: it collects values.
"""

from typing import NamedTuple

from ottla.coordinators.group import Group, Member
from ottla.coordinators.group_events import (
    NO_MEMBER,
    Effect,
    GroupTimer,
    JoinResult,
    Reply,
    Result,
    StoreGroup,
    SyncResult,
    TimerKey,
)
from ottla.coordinators.timers import CancelTimer, Now, SetTimer
from ottla.model.effects import LogLine, info, warning
from ottla.model.errors import ErrorCode


class PendingStore(NamedTuple):
    """A record that is being written, and the group it was made of."""

    store: StoreGroup
    group: Group


class GroupEffects:
    """A list of effects, with a method for each that `groups` has."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def take(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def reply(self, request_id: int, result: Result) -> None:
        self._effects.append(Reply(request_id, result))

    def reply_join_error(
        self, request_id: int, error: ErrorCode, member_id: str = NO_MEMBER
    ) -> None:
        self._effects.append(Reply(request_id, JoinResult(error, member_id)))

    def reply_sync(self, member: Member, result: SyncResult) -> None:
        """Respond to the SyncGroup of a member, if one waits."""
        if member.sync_request is not None:
            self._effects.append(Reply(member.sync_request, result))
            member.sync_request = None

    def store(self, store: StoreGroup) -> None:
        self._effects.append(store)

    def log(self, log: LogLine | None) -> None:
        if log is not None:
            self._effects.append(log)

    def info(self, text: str) -> None:
        self._effects.append(info(text))

    def warn(self, text: str) -> None:
        self._effects.append(warning(text))

    def fenced(
        self, error: ErrorCode, group: Group, member_id: str, instance_id: str | None
    ) -> None:
        """Log that the instance id belongs to another member now, if that is the error."""
        if error is ErrorCode.FENCED_INSTANCE_ID and instance_id is not None:
            self.info(
                f"static member fenced group={group.group_id} instance={instance_id} "
                f"member={member_id} current={group.static_members[instance_id]}"
            )

    def set_timer(
        self, kind: GroupTimer, group: Group, now: Now, wait_ms: float, member_id: str = NO_MEMBER
    ) -> None:
        key = TimerKey(kind, group.group_id, member_id)
        self._effects.append(SetTimer(key, now.mono_ms + wait_ms))

    def set_heartbeat_timer(
        self, group: Group, member: Member, now: Now, wait_ms: float | None = None
    ) -> None:
        """Let a member's session expire after its session timeout, or `wait_ms`.

        A timer that expires earlier stays: `extend_heartbeat_timer` moves it when it expires.
        """
        if wait_ms is None:
            wait_ms = member.session_timeout_ms
        due_ms = member.session_due_ms = now.mono_ms + wait_ms
        if member.session_timer_ms is None or due_ms < member.session_timer_ms:
            self.extend_heartbeat_timer(group, member)

    def extend_heartbeat_timer(self, group: Group, member: Member) -> None:
        """Let the member's timer expire when its session does."""
        due_ms = member.session_timer_ms = member.session_due_ms
        key = TimerKey(GroupTimer.HEARTBEAT, group.group_id, member.member_id)
        self._effects.append(SetTimer(key, due_ms))

    def cancel_timer(self, kind: GroupTimer, group: Group, member_id: str = NO_MEMBER) -> None:
        self._effects.append(CancelTimer(TimerKey(kind, group.group_id, member_id)))
