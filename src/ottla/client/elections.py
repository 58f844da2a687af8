"""Elections on request: preferred leaders back to their places, or a leader at any price.

And before a broker stops: its leaders are moved to other brokers (ControlledShutdown).

Invariants: what the controller responds for each partition is reported per partition; an election
that was not needed is not a failure. Kafka: `LeaderElectionCommand` (KIP-183, KIP-460).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from ottla.client.client import CONTROLLER, Client, partitions_of
from ottla.client.error_texts import reason
from ottla.model.errors import BrokerNotAliveError, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition, by_topic
from ottla.model.printable import plural
from ottla.model.protocol import UNKNOWN_BROKER_EPOCH
from ottla.wire.messages.control import ControlledShutdownRequest
from ottla.wire.messages.topics import ElectLeadersRequest

TIMEOUT_MS = 30_000
ELECTED = "elected"
PORTION = 1000
"""So many partitions are elected for by one request."""


class Kind(StrEnum):
    """Which election."""

    preferred = "preferred"
    unclean = "unclean"


NUMBERS = {Kind.preferred: 0, Kind.unclean: 1}


class Outcome(NamedTuple):
    """What came of one partition; `problem` is None where it is led as asked."""

    partition: TopicPartition
    result: str
    problem: str | None


async def elect(
    client: Client,
    kind: Kind,
    partitions: Iterable[TopicPartition] | None,
    tell: Callable[[int, int], None] | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> list[Outcome]:
    """Hold elections for these partitions, or for all that need one; return what came of each.

    Many are asked for in portions; `tell` hears (done, of) between them.
    """
    if partitions is None:
        return await _elect(client, kind, None, timeout_ms)
    wanted = sorted(set(partitions))
    found: list[Outcome] = []
    for first in range(0, len(wanted), PORTION):
        if first and tell is not None:
            tell(first, len(wanted))
        found += await _elect(client, kind, wanted[first : first + PORTION], timeout_ms)
    return sorted(found)


async def _elect(
    client: Client, kind: Kind, partitions: Sequence[TopicPartition] | None, timeout_ms: int
) -> list[Outcome]:
    request = ElectLeadersRequest
    named = None
    if partitions is not None:
        topics = by_topic(partitions).items()
        named = [request.TopicPartitions(topic=t, partitions=p) for t, p in topics]
    response = await client.call(
        request(election_type=NUMBERS[kind], topic_partitions=named, timeout_ms=timeout_ms),
        CONTROLLER,
        timeout_s=timeout_ms / 1000 + 5,
    )
    if response.error_code:
        raise OttlaError(f"no election was held: {reason(response.error_code, None)}")
    return sorted(
        _outcome(TopicPartition(t.topic, p.partition_id), p.error_code, p.error_message)
        for t in response.replica_election_results
        for p in t.partition_result
    )


class Balance(NamedTuple):
    """How many partitions of some topics live brokers lead: the fewest, and the most."""

    fewest: int
    most: int


async def balance(client: Client, topics: Collection[str]) -> Balance:
    """Return how evenly these topics are led."""
    response = await client.metadata(sorted(topics))
    leads = Counter(p.leader_id for topic in response.topics for p in topic.partitions)
    counts = [leads[broker.node_id] for broker in response.brokers]
    return Balance(min(counts, default=0), max(counts, default=0))


async def would_elect(
    client: Client,
    kind: Kind,
    partitions: Iterable[TopicPartition] | None,
) -> list[Outcome]:
    """Return of which partitions an election would be held; change nothing."""
    wanted = None if partitions is None else set(partitions)
    found = []
    for tp, p in partitions_of(await client.metadata(None)):
        needed = p.leader_id < 0 if kind is Kind.unclean else p.leader_id != p.replica_nodes[0]
        if wanted is None and needed:
            found.append(Outcome(tp, "would be elected", None))
        elif wanted is not None and tp in wanted:
            found.append(Outcome(tp, "would be elected" if needed else "not needed", None))
    missing = (wanted or set()) - {outcome.partition for outcome in found}
    return sorted(
        [*found, *(Outcome(tp, "failed", "there is no such partition") for tp in missing)]
    )


def _outcome(tp: TopicPartition, code: int, message: str | None) -> Outcome:
    if code == ErrorCode.NONE:
        return Outcome(tp, ELECTED, None)
    if code == ErrorCode.ELECTION_NOT_NEEDED:
        return Outcome(tp, "not needed", None)
    return Outcome(tp, "failed", reason(code, message))


async def shut_down(
    client: Client,
    broker: int,
    retries: int,
    interval_s: float,
    tell: Callable[[int], None] = lambda _: None,
) -> list[TopicPartition]:
    """Move all leaders off a broker; return the partitions that it still leads.

    `tell` hears how many are left before each further attempt. BrokerNotAliveError if it is not
    alive, OttlaError if the controller refuses.
    """
    alive = await client.broker_ids()
    if broker not in alive:
        known = ", ".join(map(str, alive)) or "none"
        raise BrokerNotAliveError(f"broker {broker} is not alive; alive are {known}")
    if alive == [broker]:
        raise OttlaError(f"broker {broker} is the only one that is alive: no other could lead")
    remaining: list[TopicPartition] = []
    request = ControlledShutdownRequest(broker_id=broker, broker_epoch=UNKNOWN_BROKER_EPOCH)
    for attempt in range(retries + 1):
        if attempt:
            tell(len(remaining))
            with client.waiting(
                f"{plural(len(remaining), 'partition')} that broker {broker} leads"
            ):
                await asyncio.sleep(interval_s)
        response = await client.call(request, CONTROLLER)
        if response.error_code:
            why = reason(response.error_code, None)
            raise OttlaError(f"broker {broker} was not shut down: {why}")
        remaining = sorted(
            TopicPartition(p.topic_name, p.partition_index) for p in response.remaining_partitions
        )
        if not remaining:
            break
    return remaining
