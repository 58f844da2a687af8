"""Connections: which one the controller and each transactional producer used last.

Both have one connection to a broker at a time. Where a request is not answered in time, they close
the connection, open another, and send the request and all later ones there. What is still on its
way on the former connection can be delivered after them (a segment that TCP sends again, bytes that
a stopped broker had not read yet). A late request is refused. Kafka before 4.0 has no such checks.
"""

from dataclasses import dataclass

from ottla.model.errors import ErrorCode, OttlaError
from ottla.net.connection import Connection

MOST_PRODUCERS = 20_000


@dataclass(slots=True)
class ControlConnection:
    """The controller's: its listener, its number there, and the epoch of its controller.

    LeaderAndIsr has leader epochs against late requests; UpdateMetadata has nothing: the metadata
    cache would keep what was true long ago. Invariant: within a controller epoch and a listener, a
    connection opened before the one that was used last is a former one.
    """

    listener: str = ""
    number: int = -1
    controller_epoch: int = -1

    def accept(self, conn: Connection, controller_epoch: int) -> bool:
        """Take this connection as the one used last; False where the controller used a later one.

        The controller epoch must have been checked: that of a former controller changes nothing.
        """
        same = (self.listener, self.controller_epoch) == (conn.listener, controller_epoch)
        if same and conn.id < self.number:
            return False
        self.listener, self.number = conn.listener, conn.id
        self.controller_epoch = controller_epoch
        return True


class ProducerConnections:
    """The last connection of each of the `MOST_PRODUCERS` that used one most recently.

    A producer's former connection may deliver a request when the producer has sent it again and
    begun its next transaction, under the same producer epoch: an EndTxn would end the wrong
    transaction, and commit half of it (KIP-890 part 2 gives each transaction an epoch). The late
    request is refused with an error after which every client looks up the coordinator and sends the
    request again; its connection is closed, so that it arrives on a new one.
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def check(
        self, conn: Connection, request: str, transactional_id: str, producer_id: int, epoch: int
    ) -> None:
        """Take this connection as the one used last; OttlaError if a later one was.

        Requests of another kind (`request`) may use another connection.
        """
        # By a hash, as an id may be 32 KB long: two producers in one place connect more often.
        key = hash((conn.listener, request, transactional_id, producer_id, epoch))
        last = self._last.pop(key, -1)
        self._last[key] = max(last, conn.id)
        if len(self._last) > MOST_PRODUCERS:
            del self._last[next(iter(self._last))]
        if conn.id < last:
            reason = "late request of a transaction: its producer has used a later connection"
            conn.refuse_soon(reason)
            raise OttlaError(reason, ErrorCode.COORDINATOR_NOT_AVAILABLE)
