"""Log ends: reads from live replicas where their logs end, before an unclean election.

Invariants: each broker gets one request, over a connection of its own, all at the same time; a
broker without a response within `TIMEOUT_S` is left out. The request is ListOffsets with the
replica id of the "debugging consumer", to which followers respond with their log end, JVM brokers
too. In KRaft it is GetReplicaLogInfo (KIP-966).
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ottla.controller.channels import Connect
from ottla.controller.context import Context
from ottla.controller.elections import LogEnd
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import DEBUGGING_CONSUMER, LATEST
from ottla.wire.codec import encode_request
from ottla.wire.messages.records import ListOffsetsRequest

logger = logging.getLogger(__name__)

TIMEOUT_S = 2.0
VERSION = 5
"""Known to every broker of 2.2 and later; responses carry the leader epoch since version 4."""
LIST_OFFSETS = 2


class LogEndRequests:
    """Sends ListOffsets over connections that `connect` opens to the controller's listener."""

    def __init__(self, context: Context, connect: Connect, listener: str) -> None:
        self._context = context
        self._connect = connect
        self._listener = listener

    async def fetch(
        self, wanted: Mapping[int, Sequence[TopicPartition]]
    ) -> dict[TopicPartition, dict[int, LogEnd]]:
        """Return the log ends in the brokers' responses, by partition and broker."""
        found: dict[TopicPartition, dict[int, LogEnd]] = {}
        brokers = list(wanted)
        responses = await asyncio.gather(
            *(self._fetch(b, wanted[b]) for b in brokers), return_exceptions=True
        )
        for broker, response in zip(brokers, responses, strict=True):
            if isinstance(response, BaseException):
                if not isinstance(response, (OttlaError, TimeoutError)):
                    raise response
                logger.warning("log ends not read broker=%d error=%r", broker, response)
                continue
            for tp, end in response.items():
                found.setdefault(tp, {})[broker] = end
        return found

    async def _fetch(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LogEnd]:
        broker = self._context.brokers[broker_id]
        endpoint = next((e for e in broker.endpoints if e.listener == self._listener), None)
        if endpoint is None:
            return {}
        async with asyncio.timeout(TIMEOUT_S):
            peer = await self._connect(endpoint)
            try:
                body = encode_request(_request(partitions), VERSION)
                response = await peer.send_encoded(LIST_OFFSETS, VERSION, body, TIMEOUT_S)
            finally:
                peer.close()
        return {
            TopicPartition(topic.name, p.partition_index): (p.leader_epoch, p.offset)
            for topic in response.topics
            for p in topic.partitions
            if p.error_code == ErrorCode.NONE
        }


def _request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
    r = ListOffsetsRequest
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for tp in partitions:
        topic = topics.setdefault(tp.topic, r.ListOffsetsTopic(name=tp.topic))
        topic.partitions.append(
            r.ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST)
        )
    return r(replica_id=DEBUGGING_CONSUMER, topics=list(topics.values()))
