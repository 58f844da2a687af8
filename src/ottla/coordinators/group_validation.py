"""Whether a request fits its group: member, instance id, generation, size.

A decider: it changes nothing. Kafka: `validateMember`, `validateCurrentMember`,
`validateOffsetCommit` and `acceptJoiningMember` of `GroupCoordinator`.
"""

from ottla.coordinators.group import Group, GroupState
from ottla.coordinators.group_events import NO_MEMBER, Join, OffsetCommitRequested
from ottla.model.errors import ErrorCode

S = GroupState


def accepts_joining_member(group: Group, join: Join, max_size: int) -> bool:
    """Return whether there is room for this member: group.max.size (KIP-389), and memory."""
    member_id = join.member_id
    if not group.has_room(join.owner, member_id, join.client_id, join.protocols):
        return False
    if group.state in (S.EMPTY, S.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is S.PREPARING_REBALANCE:
        # Those that wait are counted, not the members: a group that is too large for a lowered
        # setting loses the members that rejoin last.
        awaits_join = member is not None and member.join_request is not None
        return awaits_join or group.awaiting_join < max_size
    return member is not None or len(group.members) < max_size


def validate_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Check that a member is in the group, and that its instance id is not another's now."""
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def validate_generation(
    group: Group, generation: int, member_id: str, instance_id: str | None
) -> ErrorCode:
    """Check that a member is in the group and knows its generation."""
    if group.state is S.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = validate_member(group, member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def validate_offset_commit(group: Group, commit: OffsetCommitRequested) -> ErrorCode:
    """Check that offsets may be committed by this member, or without one."""
    generation, member_id, instance_id = commit.generation, commit.member_id, commit.instance_id
    if group.state is S.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is S.EMPTY:
        return ErrorCode.NONE  # a consumer that assigns itself, or an administrator
    if generation >= 0 or member_id != NO_MEMBER or instance_id is not None:
        return validate_generation(group, generation, member_id, instance_id)
    # Old transactional producers know neither member nor generation.
    if commit.transactional or group.state is S.EMPTY:
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_MEMBER_ID
