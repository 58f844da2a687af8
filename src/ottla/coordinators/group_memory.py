"""Group memory: what the members of all groups leave in a broker, and how much that may be.

Invariants: what counts is the size of what clients sent, whatever it is; an id that was given out
is forgotten before a member is refused for it. Kafka bounds the number of members alone
(group.max.size).
"""

from collections.abc import Iterator, Sequence

MOST_PROTOCOLS = 100
"""assignors that a member may offer; clients have two or three"""

MOST_GROUP_BYTES, MOST_BYTES = 64 << 20, 128 << 20
"""What the members of one group may take, and those of all: who would go beyond it does not join,
as beyond group.max.size. One client's members take half of the latter at most."""

MOST_PENDING_BYTES = 16 << 20
"""What ids that were given out and did not join may take: beyond it those are forgotten of whom has
most of them, the oldest first."""

MOST_TEXT_BYTES = 256 << 20
"""What the names of groups and the metadata of committed offsets may take; beyond it no new group
is made by a client, and offsets are committed without metadata only."""

Protocols = Sequence[tuple[str, bytes]]
"""(name, metadata) of each assignor a member offers, the preferred one first."""


def text_bytes(length: int) -> int:
    """Return what a text of so many characters may take; Python has up to four bytes for one."""
    return 4 * length


def member_bytes(
    member_id: str, client_id: str, protocols: Protocols, assignment: bytes = b""
) -> int:
    """Return about what a member takes."""
    offered = sum(200 + text_bytes(len(name)) + len(metadata) for name, metadata in protocols)
    return 1000 + text_bytes(len(member_id) + len(client_id)) + offered + len(assignment)


class GroupMemory:
    """What counts for all groups that are served.

    `owner` is whose it is: the principal, the address of a client that is not authenticated, or
    empty for what was loaded from the log.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """of members"""
        self.texts = 0
        """of groups' names and offsets' metadata"""
        self.pending_bytes = 0
        self._of: dict[str, int] = {}
        """of an owner's members"""
        self._given: dict[str, dict[tuple[str, str], int]] = {}
        """by owners: group and member ids that were given out, with their size, the oldest first"""
        self._given_to: dict[tuple[str, str], str] = {}
        self._pending_of: dict[str, int] = {}

    def count(self, owner: str, more: int) -> None:
        """Count so many bytes of members more, or less."""
        self.bytes += more
        if owner:
            left = self._of.get(owner, 0) + more
            if left:
                self._of[owner] = left
            else:
                self._of.pop(owner, None)

    def has_room(self, owner: str, group_bytes: int, more: int, protocols: int) -> bool:
        """Return whether members may take so much more, with so many protocols of one."""
        if protocols > MOST_PROTOCOLS:
            return False
        return more <= 0 or (
            group_bytes + more <= MOST_GROUP_BYTES
            and self.bytes + more <= MOST_BYTES
            and self._of.get(owner, 0) + more <= MOST_BYTES // 2
        )

    def has_room_for_texts(self, more: int) -> bool:
        return more <= 0 or self.texts + more <= MOST_TEXT_BYTES

    def give(self, owner: str, group_id: str, member_id: str) -> Iterator[tuple[str, str]]:
        """Count an id that is given out; yield those that are to be forgotten for it."""
        size = 1000 + text_bytes(2 * len(group_id) + len(member_id))
        key = (group_id, member_id)
        self._given.setdefault(owner, {})[key] = size
        self._given_to[key] = owner
        self._pending_of[owner] = self._pending_of.get(owner, 0) + size
        self.pending_bytes += size
        while self.pending_bytes > MOST_PENDING_BYTES:
            greediest = max(self._pending_of, key=self._pending_of.__getitem__)
            oldest = next(iter(self._given[greediest]))
            self.taken(*oldest)
            yield oldest

    def taken(self, group_id: str, member_id: str) -> None:
        """Note that an id which was given out is used, or was given up."""
        key = (group_id, member_id)
        owner = self._given_to.pop(key, None)
        if owner is None:
            return
        given = self._given[owner]
        size = given.pop(key)
        self.pending_bytes -= size
        self._pending_of[owner] -= size
        if not given:
            del self._given[owner], self._pending_of[owner]
