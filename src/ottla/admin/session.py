"""One command's conversation with a cluster: a client, made and closed around a coroutine.

Invariants: uses `client` and nothing further in, so that a real Kafka responds as well as a
cluster of ours; every failure to reach a broker is one line.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar, cast

from ottla.cli import output
from ottla.client.client import Client, parse_bootstrap
from ottla.model.errors import (
    BrokerNotAliveError,
    ConnectionLostError,
    NotABrokerError,
    OttlaError,
    ServerRefusedError,
)
from ottla.model.ports import Files, World
from ottla.model.process import ended_in_order
from ottla.net import runtime
from ottla.wire.schema import R, Request

if TYPE_CHECKING:
    from ottla.security.client import ClientSecurity

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
"""For a connection and the answer to ApiVersions: what is silent so long is no broker."""


def world() -> World:
    """Return the operating system's world without its files: tools speak to brokers only."""
    return runtime.real_world(cast("Files", None))


class _Client(Client):
    """Prints messages."""

    def say(self, text: str) -> None:
        output.say(text)


class _TellingClient(_Client):
    """Says what is asked of whom, and how long the response took (--verbose)."""

    async def call(
        self,
        message: Request[R],
        broker: int | str | None = None,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        began = time.monotonic()
        request = f"{type(message).__name__} to {'any broker' if broker is None else broker}"
        try:
            response = await super().call(message, broker, version=version, timeout_s=timeout_s)
        except OttlaError as error:
            output.say(f"{request}: {error}")
            raise
        output.say(f"{request}: {(time.monotonic() - began) * 1000:.1f} ms")
        return response


def addresses_of(bootstrap: str) -> list[tuple[str, int]]:
    """Return the addresses of --bootstrap-server; OttlaError for what is none."""
    try:
        return parse_bootstrap(bootstrap)
    except ValueError as error:
        raise OttlaError(f"--bootstrap-server: {error}") from None


def client_of(
    addresses: list[tuple[str, int]],
    *,
    timeout_s: float = CALL_TIMEOUT_S,
    client_id: str = "ottla-cli",
    security: "ClientSecurity | None" = None,
) -> Client:
    """Return a client of the cluster at these addresses; whoever asks for it closes it."""
    return (_TellingClient if output.current().verbose else _Client)(
        world(),
        addresses,
        client_id,
        timeout_s=timeout_s,
        connect_timeout_s=min(timeout_s, CONNECT_TIMEOUT_S),
        patience_s=CALL_TIMEOUT_S,
        security=security,
    )


def connected(
    bootstrap: str,
    ask: Callable[[Client], Awaitable[T]],
    *,
    timeout_s: float = CALL_TIMEOUT_S,
    client_id: str = "ottla-cli",
    security: "ClientSecurity | None" = None,
) -> T:
    """Run `ask` with a client of the cluster behind `bootstrap`; return its result."""
    addresses = addresses_of(bootstrap)

    async def conversation() -> T:
        client = client_of(addresses, timeout_s=timeout_s, client_id=client_id, security=security)
        try:
            return await ask(client)
        except (NotABrokerError, BrokerNotAliveError, ServerRefusedError):
            raise
        except ConnectionLostError as error:
            raise ConnectionLostError(
                f"{error}; is the cluster up, is --bootstrap-server right?"
            ) from error
        finally:
            await client.close()

    with ended_in_order():
        return runtime.run(conversation)


async def of_each(
    client: Client,
    names: Iterable[str],
    ask: Callable[[str], Awaitable[T]],
    problems: list[str],
) -> dict[str, T]:
    """Return what `ask` returns for each name; where it fails, a line of `problems` says why.

    A cluster that does not respond is an error of its own, OttlaError.
    """
    await client.metadata([])
    found: dict[str, T] = {}
    for name in names:
        try:
            found[name] = await ask(name)
        except OttlaError as error:
            problems.append(str(error))
    return found
