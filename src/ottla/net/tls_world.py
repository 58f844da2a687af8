"""A world whose connections are TLS."""

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.model.ports import World

if TYPE_CHECKING:
    from ottla.security.client import ClientTls


def tls_world(world: World, tls: "ClientTls") -> World:
    """Return the world with a network that speaks TLS."""
    from ottla.net.tls_network import TlsNetwork  # lazy: it takes memory

    return replace(world, network=TlsNetwork(world.network, tls))
