"""Asking the coordinator of a group or a transactional id, wherever it moves.

Invariants: an answer that says "not here" or "not yet" is never passed on; a request is repeated
until another response comes, as a Java client does with endless patience: what must not wait for
ever is judged at the end of a run. The coordinator is looked up again after every lost connection.
"""

import asyncio
from collections.abc import Callable, Iterable

from ottla.client.client import Client
from ottla.client.coordinators import MOVED
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import World
from ottla.wire.schema import R, Request

SHORT_WAIT_S = 0.1


class Coordinator:
    """The coordinator of one group or transactional id. `broker` is where it was last."""

    def __init__(self, world: World, client: Client, key: str, kind: int) -> None:
        self._world = world
        self._client = client
        self._key = key
        self._kind = kind
        self.broker: int | None = None

    async def ask(
        self,
        request: Request[R],
        codes_of: Callable[[R], Iterable[int]],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        again: frozenset[ErrorCode] = frozenset(),
    ) -> R:
        """Return the first response none of whose codes sends us elsewhere or asks for patience.

        `again` are further codes with which the same request is to be repeated.
        """
        while True:
            try:
                if self.broker is None:
                    self.broker = await self._find()
                response = await self._client.call(
                    request, self.broker, version=version, timeout_s=timeout_s
                )
            except OttlaError:
                self.broker = None
            else:
                codes = set(codes_of(response))
                if not codes & (MOVED | again):
                    return response
                if codes & {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
                    self.broker = None
            await asyncio.sleep(SHORT_WAIT_S * (1 + self._world.random.random()))

    async def _find(self) -> int:
        while True:
            code, node = await self._client.coordinator(self._key, self._kind)
            if code == ErrorCode.NONE:
                return node
            if code not in MOVED:
                raise AssertionError(f"no coordinator: {ErrorCode(code).name}")
            await asyncio.sleep(SHORT_WAIT_S * (1 + self._world.random.random()))
