"""Which broker is asked: the coordinator of a key, the leaders of partitions, or each of them.

Invariants: a coordinator that moved, or still reads what it keeps, is looked for again, but only
for a limited time. What a broker refuses, or does not respond to, becomes a line of `problems`,
where there is such a list, and is an OttlaError otherwise. Kafka: `CoordinatorStrategy`,
`AllBrokersStrategy` and `PartitionLeaderStrategy` of Kafka's admin client.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, NamedTuple

from ottla.client.client import Client
from ottla.client.error_texts import explained, failure
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.wire.schema import R, Request

GROUP, TRANSACTION = 0, 1
"""FindCoordinator's key types."""
NOUNS = {GROUP: "group", TRANSACTION: "transactional id"}

VERSION_OF_ONE_GROUP = 5
"""OffsetFetch of one group, with leader epochs."""

PATIENCE_S = 15.0
BUSY_S, BUSY_WAIT_S = 120.0, 0.01
"""How long, and how often, a coordinator is asked again that still ends the transaction before."""
MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


def code_of_all(response: Any) -> int:
    """Return the error code of a response as a whole."""
    return int(response.error_code)


class Coordinator:
    """Asks the coordinator of one group, or one transactional id."""

    def __init__(
        self, client: Client, key: str, kind: int = GROUP, *, patience_s: float = PATIENCE_S
    ) -> None:
        """`patience_s`: how long it may be away before that is an error."""
        self.broker: int | None = None
        """The broker it is, as far as known."""
        self._client = client
        self._what = f"{NOUNS[kind]} {key}"
        self._key = key
        self._kind = kind
        self._patience_s = patience_s
        self._reached = False

    async def ask(
        self,
        request: Request[R],
        code_of: Callable[[R], int] = code_of_all,
        *,
        again: Collection[int] = MOVED,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Return the coordinator's response; one whose code is in `again` is not the last word."""
        patience = self._client.patience(self._patience_s)
        busy = self._client.patience(BUSY_S, BUSY_WAIT_S)
        with self._client.waiting() as wait:
            while True:
                try:
                    if self.broker is None:
                        self.broker = await self._find()
                    response = await self._client.call(
                        request, self.broker, version=version, timeout_s=timeout_s
                    )
                    code = code_of(response)
                    if code not in again:
                        return response
                    problem = failure(f"coordinator of {self._what}", code)
                    wait.text = f"{self._what}: {explained(code)}"
                except OttlaError as error:
                    if not self._reached:
                        raise  # no broker can be asked at all: nothing has moved
                    problem = error
                    wait.text = f"{self._what}: {error}"
                if problem.code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    await busy.wait(problem)  # its markers are being written
                    continue
                await patience.wait(problem)
                self.broker = None
                await self._client.refresh(())

    async def _find(self) -> int:
        code, broker = await self._client.coordinator(self._key, self._kind)
        self._reached = True
        if code:
            raise failure(f"no coordinator for {self._what}", code)
        return broker


async def at_coordinator(
    client: Client,
    key: str,
    request: Request[R],
    code_of: Callable[[R], int] = code_of_all,
    *,
    kind: int = GROUP,
    version: int | None = None,
) -> tuple[int, R]:
    """Ask a coordinator once; return its broker id and the response."""
    coordinator = Coordinator(client, key, kind)
    response = await coordinator.ask(request, code_of, version=version)
    assert coordinator.broker is not None
    return coordinator.broker, response


async def at_each_broker(
    client: Client, request: Request[R], what: str, problems: list[str] | None = None
) -> list[tuple[int, R]]:
    """Ask every broker for all it keeps, once it has read it; return the responses by broker.

    `what` says what of a broker could not be had, as `groups of broker`.
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


async def _once_read(client: Client, request: Request[R], broker: int, what: str) -> R:
    patience = client.patience(PATIENCE_S)
    with client.waiting() as wait:
        while True:
            response = await client.call(request, broker)
            code = code_of_all(response)
            if not code:
                return response
            problem = failure(f"{what} {broker}", code)
            if code not in MOVED:
                raise problem
            wait.text = str(problem)
            await patience.wait(problem)


async def by_leader(
    client: Client, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, OttlaError]]:
    """Return which partitions each broker leads, and why the others have no leader."""
    led: dict[int, list[TopicPartition]] = {}
    without: dict[TopicPartition, OttlaError] = {}
    for tp in partitions:
        try:
            led.setdefault(await client.leader(*tp), []).append(tp)
        except OttlaError as error:
            without[tp] = error
    return led, without


class Asked(NamedTuple, Generic[R]):
    """What leaders of partitions responded, and why some have not."""

    responses: list[R]
    leaderless: dict[TopicPartition, OttlaError]
    failed: dict[int, OttlaError]
    """By broker."""

    def note(self, what: str, problems: list[str] | None) -> None:
        """Make a line of what failed: `what`, as `offsets`, could not be had of a leader."""
        for leader, error in self.failed.items():
            if problems is None:
                raise error
            problems.append(f"{what} of partitions led by broker {leader}: {error}")


async def at_each_leader(
    client: Client,
    partitions: Iterable[TopicPartition],
    request_of: Callable[[list[TopicPartition]], Request[R]],
    *,
    at_once: int | None = None,
    timeout_s: float | None = None,
) -> Asked[R]:
    """Ask the leaders of partitions, all at the same time.

    `request_of` is given partitions of one leader, `at_once` at most.
    """
    led, leaderless = await by_leader(client, partitions)
    asked: Asked[R] = Asked([], leaderless, {})

    async def ask(leader: int, some: list[TopicPartition]) -> None:
        size = at_once or len(some)
        try:
            for start in range(0, len(some), size):
                request = request_of(some[start : start + size])
                asked.responses.append(await client.call(request, leader, timeout_s=timeout_s))
        except OttlaError as error:
            asked.failed[leader] = error

    await asyncio.gather(*(ask(leader, some) for leader, some in sorted(led.items())))
    return asked
