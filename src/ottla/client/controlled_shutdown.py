"""Controlled shutdown of any broker: its leaders move to others before its process is stopped.

Invariants: the controller is asked as a broker that stops asks it, so with any Kafka in ZooKeeper
mode; it is asked again while some leaders could not move, a bounded number of times. Kafka:
`KafkaServer.controlledShutdown`, and the documents' `kafka.admin.ShutdownBroker`.
"""

import asyncio
from collections.abc import Callable

from ottla.client.client import CONTROLLER, Client
from ottla.client.error_texts import reason
from ottla.model.errors import BrokerNotAliveError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural
from ottla.model.protocol import UNKNOWN_BROKER_EPOCH
from ottla.wire.messages.control import ControlledShutdownRequest


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
