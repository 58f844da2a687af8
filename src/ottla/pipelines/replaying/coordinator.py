"""The broker that keeps a group or a transactional id, asked until it is the right one and ready.

Invariants: a coordinator that moved, died or still reads what it keeps is looked for again, for
`kafka.default.api.timeout.ms` without a success; while the transaction before is being ended, for
two minutes. Kafka: `CoordinatorStrategy`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ottla.model.errors import ErrorCode, OttlaError, error_name
from ottla.pipelines.source.cluster import Cluster

GROUP, TRANSACTION = 0, 1
"""FindCoordinator's types of keys."""
NOUNS = {GROUP: "group", TRANSACTION: "transactional id"}
BUSY_S = 120.0
BUSY_WAIT_S, LONGEST_BUSY_WAIT_S = 0.005, 0.1
NOT_KNOWN = -1


class Coordinator:
    """Asks the coordinator of one key."""

    def __init__(self, cluster: Cluster, key: str, kind: int) -> None:
        self._cluster = cluster
        self._key = key
        self._kind = kind
        self._node = NOT_KNOWN

    async def ask(
        self, request: Any, code_of: Callable[[Any], int], *, version: int | None = None
    ) -> Any:
        """Return the response, whose code is 0; OttlaError with the code that lasts."""
        patience = self._cluster.patience()
        busy_until_s = time.monotonic() + BUSY_S
        wait_s = BUSY_WAIT_S
        while True:
            try:
                if self._node < 0:
                    self._node = await self._find()
                response = await self._cluster.client.call(request, self._node, version=version)
                code = ErrorCode(code_of(response))
                if not code:
                    return response
                error = self._refused("refused by the coordinator", code)
            except OttlaError as caught:
                error = caught
            if error.code == ErrorCode.CONCURRENT_TRANSACTIONS and time.monotonic() < busy_until_s:
                # The end of the transaction before is being written to its partitions.
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, LONGEST_BUSY_WAIT_S)
                continue
            await patience.wait(error)
            self._node = NOT_KNOWN
            await self._refresh()

    async def _find(self) -> int:
        code, node = await self._cluster.client.coordinator(self._key, self._kind)
        if code:
            raise self._refused("no coordinator", ErrorCode(code))
        return node

    async def _refresh(self) -> None:
        """Ask who is alive; the next attempt tells if no broker responds."""
        try:
            await self._cluster.client.metadata([])
        except OttlaError as error:
            if not error.retriable:
                raise

    def _refused(self, what: str, code: ErrorCode) -> OttlaError:
        return OttlaError(f"{NOUNS[self._kind]} {self._key}: {what}: {error_name(code)}", code)
