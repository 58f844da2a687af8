"""Current session: this broker's session with ZooKeeper, and its registration in it.

Objects that outlive sessions get this, not a store. Invariant: only `membership` and `broker`
change it.
"""

from typing import TYPE_CHECKING

from ottla.model.errors import ConnectionLostError
from ottla.model.protocol import UNKNOWN_BROKER_EPOCH

if TYPE_CHECKING:
    from ottla.zookeeper.store import Store


class CurrentSession:
    """What is current. `broker_epoch`: of the last registration, -1 before the first one."""

    def __init__(self) -> None:
        self.current: Store | None = None
        """The session's store; None while there is no session."""
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    @property
    def store(self) -> "Store":
        """Return the session's store; ConnectionLostError if there is no session."""
        if self.current is None:
            raise ConnectionLostError("no ZooKeeper session at the moment")
        return self.current
