"""Coordinators: which broker keeps a group or a transactional id, and asking it though it moves.

Invariants: what moved, or is still being read by its next coordinator, is looked for again for a
while, never for ever. Kafka: `CoordinatorStrategy` of Kafka's admin client.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.client.client import Client
from ottla.client.error_texts import explained, failure
from ottla.model.errors import ErrorCode, OttlaError

GROUP, TRANSACTION = 0, 1
"""FindCoordinator's key types."""
NOUNS = {GROUP: "group", TRANSACTION: "transactional id"}

VERSION_OF_ONE_GROUP = 5
"""OffsetFetch of one group, with leader epochs."""

TRIES = 60
WAIT_S = 0.25
MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


async def find_coordinator(client: Client, key: str, kind: int = GROUP) -> int:
    """Return the broker that keeps a group or an id; waits for one that is not there yet."""
    code = 0
    with client.waiting() as wait:
        for attempt in range(TRIES):
            if attempt:
                wait.text = f"{NOUNS[kind]} {key}: {explained(code)}"
                await asyncio.sleep(WAIT_S)
            code, node = await client.coordinator(key, kind)
            if code == 0:
                return node
            if code not in MOVED:
                break
    raise failure(f"no coordinator for {NOUNS[kind]} {key}", code)


async def at_coordinator(
    client: Client,
    key: str,
    request: Any,
    code_of: Callable[[Any], int],
    *,
    kind: int = GROUP,
    version: int | None = None,
) -> tuple[int, Any]:
    """Ask the coordinator until it is the right one; return its id and the response."""
    response = None
    with client.waiting() as wait:
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(WAIT_S)
            node = await find_coordinator(client, key, kind)
            try:
                response = await client.call(request, node, version=version)
            except OttlaError as error:
                if not error.retriable or attempt == TRIES - 1:
                    raise
                wait.text = f"{NOUNS[kind]} {key}: {error}"
                await client.metadata([])
                continue
            if code_of(response) not in MOVED:
                return node, response
            wait.text = f"{NOUNS[kind]} {key}: {explained(code_of(response))}"
    raise failure(f"coordinator of {NOUNS[kind]} {key}", code_of(response))


async def at_each_broker(
    client: Client, request: Any, what: str, problems: list[str] | None = None
) -> list[tuple[int, Any]]:
    """Ask every broker for all it keeps, once it has read it.

    `what` says what of a broker could not be had, as `groups of broker`. What a broker refuses, or
    does not respond to, becomes a line of `problems`; OttlaError for None.
    """
    responses = []
    for broker in await client.broker_ids():
        try:
            responses.append((broker, await _once_read(client, request, broker, what)))
        except OttlaError as error:
            if problems is None:
                raise
            problems.append(str(error))
    return responses


async def _once_read(client: Client, request: Any, broker: int, what: str) -> Any:
    response = await client.call(request, broker)
    with client.waiting(f"{what} {broker}: {explained(response.error_code)}"):
        for _ in range(TRIES):
            if response.error_code not in MOVED:
                break
            await asyncio.sleep(WAIT_S)
            response = await client.call(request, broker)
    if response.error_code:
        raise failure(f"{what} {broker}", response.error_code)
    return response
