"""A world whose connections are TLS.

Who may call: who opens sessions with ZooKeeper over TLS.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.model.ports import World

if TYPE_CHECKING:
    from ottla.security.client import ClientTls


def tls_world(world: World, tls: "ClientTls") -> World:
    """Return the world with a network that speaks TLS."""
    from ottla.net.tls_network import TlsNetwork  # noqa: PLC0415 - lazy: it takes memory

    return replace(world, network=TlsNetwork(world.network, tls))
