"""One command's conversation with a cluster: a client, made and closed around a coroutine.

Who may call: the admin room. Invariants: uses `net.client` and nothing further in, so that a real
Kafka answers as well as a cluster of ours; every failure to reach anybody is one line.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from ottla.admin.error_texts import explained
from ottla.model.errors import ConnectionLostError, ErrorCode, NotABrokerError, OttlaError
from ottla.model.ports import Files, World
from ottla.net import runtime
from ottla.net.client import Client, parse_bootstrap

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
"""For a connection and the answer to ApiVersions: what is silent so long is no broker."""


def failure(what: str, code: int) -> OttlaError:
    """Return an error that says what failed and what its code means; it carries the code."""
    return OttlaError(f"{what}: {explained(code)}", ErrorCode(code))


def world() -> World:
    """Return the operating system's world without its files: tools speak to brokers only."""
    return runtime.real_world(cast("Files", None))


def connected(
    bootstrap: str, ask: Callable[[Client], Awaitable[T]], *, timeout_s: float = CALL_TIMEOUT_S
) -> T:
    """Run `ask` with a client of the cluster behind `bootstrap`; return its result."""
    try:
        addresses = parse_bootstrap(bootstrap)
    except ValueError as error:
        raise OttlaError(f"--bootstrap-server: {error}") from None

    async def conversation() -> T:
        client = Client(
            world(),
            addresses,
            "ottla-cli",
            timeout_s=timeout_s,
            connect_timeout_s=min(timeout_s, CONNECT_TIMEOUT_S),
            patience_s=CALL_TIMEOUT_S,
        )
        try:
            return await ask(client)
        except NotABrokerError:
            raise
        except ConnectionLostError as error:
            raise ConnectionLostError(
                f"{error}; is the cluster up (ottla status), is --bootstrap-server right?"
            ) from error
        finally:
            await client.close()

    return runtime.run(conversation)
