"""What requests of security may touch of the broker.

Who may call: the handlers of this family; whoever assembles a broker has all of it.
"""

from typing import Protocol

from ottla.broker.authorization.acl_cache import AclCache
from ottla.zookeeper.store import Store


class AclsServer(Protocol):
    """What requests for ACLs may touch."""

    acl_cache: AclCache | None

    @property
    def store(self) -> Store:
        """The current ZooKeeper session's; ConnectionLostError if there is none."""
        ...
