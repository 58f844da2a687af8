"""The connections by which transactional producers last sent requests of their transactions.

A producer has one connection to its coordinator at a time, and opens another one when a request
times out. The first connection may still deliver that request when the producer has sent it again
and begun its next transaction, under the same producer epoch: an EndTxn would end the wrong
transaction, and commit half of it (KIP-890 part 2 gives each transaction an epoch). A request on an
older connection than the last one is therefore refused with an error after which every client looks
up the coordinator and sends the request again; its connection is closed, so that it comes on a new
one. Kafka before 4.0 does the late request.
"""

from ottla.model.errors import ErrorCode, OttlaError
from ottla.net.connection import Connection

MOST_PRODUCERS = 20_000


class ProducerConnections:
    """The last connection of each producer, of so many producers that used one last."""

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
