"""OffsetForLeaderEpoch: where an epoch ended in this leader's log (KIP-101, KIP-320).

Invariants: only a leader responds, and only to who names its current epoch or none (R3). Kafka:
`KafkaApis.handleOffsetForLeaderEpochRequest`.
"""

from ottla.broker.requests.access import Access, Need, each_named
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import OttlaError
from ottla.net.connection import Connection
from ottla.security.acls import CLUSTER_ACTION, DESCRIBE, TOPIC
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.records import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from ottla.wire.portions import BY_PARTITION

EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: OffsetForLeaderEpochRequest,
) -> Parts:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        responses = []
        for item in topic.partitions:
            try:
                epoch, end = server.replicas.last_offset_for_epoch(
                    topic.topic, item.partition, item.current_leader_epoch, item.leader_epoch
                )
            except OttlaError as error:
                responses.append(
                    EpochEndOffset(
                        partition=item.partition,
                        error_code=error.code,
                        leader_epoch=-1,
                        end_offset=-1,
                    )
                )
            else:
                responses.append(
                    EpochEndOffset(partition=item.partition, leader_epoch=epoch, end_offset=end)
                )
        response.topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=responses
            )
        )
    return respond(header, response)


OFFSET_FOR_LEADER_EPOCH = Api(
    OffsetForLeaderEpochRequest,
    handle,
    access=Access(
        each=each_named(
            Need(DESCRIBE, TOPIC, "topic"), unless=Need(CLUSTER_ACTION, note="or of each topic:")
        )
    ),
    error=error_response(
        OffsetForLeaderEpochResponse,
        "topics.partitions",
        leader_epoch=-1,
        end_offset=-1,
    ),
    large=BY_PARTITION,
    large_response=True,
)
