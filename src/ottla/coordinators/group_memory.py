"""Group memory: what the members of all groups leave in a broker, and how much that may be.

Who may call: `group`, `groups`. Invariants: what counts is the size of what clients sent, whatever
it is; an id that was given out is forgotten before a member is refused for it. Kafka bounds the
number of members alone (group.max.size).
"""

from collections.abc import Iterator, Sequence

MOST_PROTOCOLS = 100
"""assignors that a member may offer; clients have two or three"""

MOST_GROUP_BYTES, MOST_BYTES = 64 << 20, 128 << 20
"""What the members of one group may take, and those of all: who would go beyond it does not join,
as beyond group.max.size."""

MOST_PENDING_BYTES = 16 << 20
"""What ids that were given out and did not join may take: beyond it the oldest are forgotten."""

Protocols = Sequence[tuple[str, bytes]]


def member_bytes(member_id: str, client_id: str, protocols: Protocols) -> int:
    """Return about what a member takes; Python has up to four bytes for a character."""
    offered = sum(200 + 4 * len(name) + len(metadata) for name, metadata in protocols)
    return 1000 + 4 * (len(member_id) + len(client_id)) + offered


class GroupMemory:
    """What counts for all groups that are served."""

    def __init__(self) -> None:
        self.bytes = 0
        """of members"""
        self.pending_bytes = 0
        self._given: dict[tuple[str, str], int] = {}
        """group and member ids that were given out, with their size, the oldest first"""

    def has_room(self, group_bytes: int, more: int, protocols: int) -> bool:
        """Return whether members may take so much more, with so many protocols of one."""
        if protocols > MOST_PROTOCOLS:
            return False
        return more <= 0 or (
            group_bytes + more <= MOST_GROUP_BYTES and self.bytes + more <= MOST_BYTES
        )

    def give(self, group_id: str, member_id: str) -> Iterator[tuple[str, str]]:
        """Count an id that is given out; yield those that are to be forgotten for it."""
        size = 1000 + 4 * (2 * len(group_id) + len(member_id))
        self._given[group_id, member_id] = size
        self.pending_bytes += size
        while self.pending_bytes > MOST_PENDING_BYTES:
            oldest = next(iter(self._given))
            self.taken(*oldest)
            yield oldest

    def taken(self, group_id: str, member_id: str) -> None:
        """Note that an id which was given out is used, or was given up."""
        self.pending_bytes -= self._given.pop((group_id, member_id), 0)
