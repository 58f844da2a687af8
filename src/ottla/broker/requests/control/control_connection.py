"""ControlConnection: the connection by which the controller sends its requests at the moment.

A controller has one connection to a broker. Where a request is not answered in time, it closes the
connection, opens another, and sends the request and all later ones there. What is still on the way
of the former connection can be delivered after them (a segment that TCP sends again, bytes that a
stopped broker had not read yet). LeaderAndIsr has leader epochs against that; UpdateMetadata has
nothing: the metadata cache would keep what was true long ago. Invariants: within a controller epoch
and a listener, a connection opened before the one that was used last is a former one. Kafka has no
such check.
"""

from dataclasses import dataclass

from ottla.net.connection import Connection


@dataclass(slots=True)
class ControlConnection:
    """The one used last: its listener, its number there, and the epoch of its controller."""

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
