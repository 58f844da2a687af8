"""AlterReplicaLogDirs: in which log dir a replica is to lie.

A replica that is not here yet is created in the dir named for it; one that is used moves there in
the background; to name the dir it lies in cancels that. Kafka:
`KafkaApis.handleAlterReplicaLogDirsRequest` (KIP-113).
"""

import logging

from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.connection import Connection
from ottla.security.acls import ALTER
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.cluster import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from ottla.wire.portions import MANY_CHANGES, in_portions

logger = logging.getLogger(__name__)


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: AlterReplicaLogDirsRequest,
) -> Parts:
    r = AlterReplicaLogDirsResponse
    codes: dict[str, dict[int, ErrorCode]] = {}
    for log_dir in request.dirs:
        for topic in log_dir.topics:
            for index in topic.partitions:
                code = _place(server, TopicPartition(topic.name, index), log_dir.path)
                codes.setdefault(topic.name, {})[index] = code
    results = [
        r.AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                r.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                for index, code in found.items()
            ],
        )
        for name, found in codes.items()
    ]
    return respond(header, r(results=results))


def _place(server: BrokerServices, tp: TopicPartition, path: str) -> ErrorCode:
    try:
        server.replicas.moves.place(tp, path)
    except OttlaError as error:
        logger.info("replica not placed partition=%s path=%s error=%s", tp, path, error)
        return error.code
    return ErrorCode.NONE


ALTER_REPLICA_LOG_DIRS = Api(
    AlterReplicaLogDirsRequest,
    handle,
    access=on_cluster(ALTER),
    error=error_response(
        AlterReplicaLogDirsResponse, "dirs.topics.partitions", "results.partitions"
    ),
    large=in_portions("dirs.topics.partitions", "results.partitions", many=MANY_CHANGES),
)
