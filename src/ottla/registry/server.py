"""The process of a registry: a socket, uvicorn, and the client that reads and writes `_schemas`.

Invariants: it serves when all of the topic was read, and not before; connections are bounded.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from ottla.client.client import Client
from ottla.model.ports import address_text
from ottla.net.http_server import is_loopback
from ottla.registry.application import application
from ottla.registry.operations import Registry
from ottla.registry.store import Store

if TYPE_CHECKING:
    from ottla.security.client import ClientSecurity

MOST_CONNECTIONS = 200
END_S = 2
REQUEST_TIMEOUT_S = 10.0
CLIENT_ID = "ottla-schema-registry"


def registry_client(bootstrap: str, security: "ClientSecurity | None" = None) -> Client:
    """Return the client of a registry."""
    from ottla.log.files import OsFiles
    from ottla.net import runtime

    world = runtime.real_world(OsFiles())
    return Client(world, bootstrap, CLIENT_ID, timeout_s=REQUEST_TIMEOUT_S, security=security)


async def serve(
    client: Client,
    listener: socket.socket,
    started: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Serve on a listening socket until a signal, or until `stop` is set; OttlaError.

    `started` gets the address when everything was read.
    """
    host, port = listener.getsockname()[:2]
    try:
        store = Store(client)
        await store.open()
        server = uvicorn.Server(
            uvicorn.Config(
                application(Registry(store), loopback=is_loopback(host)), http="h11", ws="none",
                lifespan="off", log_config=None, access_log=False, server_header=False,
                limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=END_S,
            )
        )  # fmt: skip
        started(f"http://{address_text(host, port)}")
        if stop is None:
            await server.serve(sockets=[listener])
            return
        serving = asyncio.ensure_future(server._serve(sockets=[listener]))  # noqa: SLF001 - without taking the process's signals
        await stop.wait()
        server.should_exit = True
        await serving
    finally:
        listener.close()


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; OSError if the address cannot be had."""
    return socket.create_server((host, port), backlog=64)
