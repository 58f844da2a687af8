"""Log ends: reads from live replicas where their logs end, before an unclean election.

Who may call: `loop`, which gives `ask` to the driver. Invariants: each broker is asked
once, over a connection of its own, all at once; who does not answer within `TIMEOUT_S` is left
out. Asked is ListOffsets as the "debugging replica", which followers answer up to their log end,
JVM brokers too. KRaft's controller is to ask GetReplicaLogInfo (KIP-966).
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
from ottla.wire.messages.list_offsets import ListOffsetsRequest

logger = logging.getLogger(__name__)

TIMEOUT_S = 2.0
VERSION = 5
"""Known to every broker of 2.2 and later; answers carry the leader epoch since version 4."""
LIST_OFFSETS = 2


class LogEndRequests:
    """Asks over connections that `connect` opens to the listener the controller uses."""

    def __init__(self, context: Context, connect: Connect, listener: str) -> None:
        self._context = context
        self._connect = connect
        self._listener = listener

    async def ask(
        self, wanted: Mapping[int, Sequence[TopicPartition]]
    ) -> dict[TopicPartition, dict[int, LogEnd]]:
        """Return the log ends in the brokers' responses, by partition and broker."""
        found: dict[TopicPartition, dict[int, LogEnd]] = {}
        brokers = list(wanted)
        answers = await asyncio.gather(
            *(self._ask(b, wanted[b]) for b in brokers), return_exceptions=True
        )
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, (OttlaError, TimeoutError)):
                    raise answer
                logger.warning("log ends not read broker=%d error=%r", broker, answer)
                continue
            for tp, end in answer.items():
                found.setdefault(tp, {})[broker] = end
        return found

    async def _ask(
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
                answer = await peer.send_encoded(LIST_OFFSETS, VERSION, body, TIMEOUT_S)
            finally:
                peer.close()
        return {
            TopicPartition(topic.name, p.partition_index): (p.leader_epoch, p.offset)
            for topic in answer.topics
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
