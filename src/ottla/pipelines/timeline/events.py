"""Events: what a line of a state-change log or of a controller's journal says, as columns.

Invariants: one row per line (a journal's line about many partitions: one row each); what a line
does not say is None; `FIELDS` is the order of the columns everywhere.
"""

from typing import NamedTuple


class Event(NamedTuple):
    """One row.

    time_ms    wall clock of who wrote the line, milliseconds since 1970 UTC
    broker     who wrote it: a broker's id, also where it speaks as the controller
    side       `broker` or `controller`
    level      INFO, TRACE and so on; a journal's lines have JOURNAL
    kind       see below
    epoch      the controller epoch: the writer's own, or that of the request it handles
    partition  with `topic`; None for lines about no single partition
    leader     -1 for none
    isr        brokers in the line's order, as `0,1,2`
    version    the partition epoch (ZooKeeper's version of the state znode)
    previous   the writer's leader epoch of this partition before; -1 for none in this life
    about      the broker a controller's line is about: the receiver, the dead one
    before, after   states of a move, as `OnlinePartition`
    offset     a new leader's first, or a follower's log end; of `unread` and `dropped` the lines
    text       the line itself, at most LONGEST_TEXT characters
    """

    time_ms: int
    broker: int
    side: str
    level: str
    kind: str
    epoch: int | None = None
    topic: str | None = None
    partition: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: str | None = None
    version: int | None = None
    previous: int | None = None
    topic_id: str | None = None
    about: int | None = None
    before: str | None = None
    after: str | None = None
    offset: int | None = None
    text: str = ""


FIELDS = Event._fields
LONGEST_TEXT = 2000

BROKER, CONTROLLER = "broker", "controller"

LED = "led"
"""A broker acts as leader from here on."""
FOLLOWED = "followed"
"""A broker acts as follower from here on."""
STOPPED = "stopped"
"""A broker lets go of a replica."""
ASKED = "asked"
"""A broker was sent a leadership; it may still refuse it."""
REFUSED = "refused"
"""A broker ignored a request, mostly because of an older epoch."""
CACHED = "cached"
"""A broker heard of a leadership for its metadata, and of how many (no partition named)."""
DECIDED = "decided"
"""A controller wrote a leadership."""
SENT = "sent"
"""A controller sent a leadership to a broker."""
MOVED = "moved"
"""A controller moved a partition from state to state."""
KNOWN = "known"
"""A controller found this leadership when it was elected (journals)."""
GONE, CAME = "broker-gone", "broker-came"
"""A controller saw a broker's registration go or come (journals)."""
CONTROLLER_ELECTED = "controller-elected"
"""A controller was elected (journals)."""
OTHER = "other"
DROPPED = "dropped"
"""Lines are missing here, its writer says."""
UNREAD = "unread"
"""So many lines of a batch were no state changes, or damaged."""

RULED = (LED, FOLLOWED, STOPPED, ASKED, CACHED, DECIDED, SENT, MOVED, KNOWN)
"""Kinds that the rules for one partition look at."""
