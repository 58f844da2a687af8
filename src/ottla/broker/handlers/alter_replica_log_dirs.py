"""AlterReplicaLogDirs: in which data folder a replica is to lie.

Who may call: the router. A replica that is not here yet is created in the folder named for it; one
that lies there already is done. What is not served is the move of a replica between folders while
it is used: KAFKA_STORAGE_ERROR. Answers to `ReplicaManager.alterReplicaLogDirs` (KIP-113).
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.answers import answer
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices
    from ottla.net.connection import Connection

logger = logging.getLogger(__name__)

LONGEST_NAME = 255
FUTURE_SUFFIX = len(".") + 32 + len("-future")


def handle(
    server: "BrokerServices",
    conn: "Connection",  # noqa: ARG001
    header: RequestHeader,
    request: AlterReplicaLogDirsRequest,
) -> Sequence[Buffer]:
    r = AlterReplicaLogDirsResponse
    codes: dict[str, dict[int, ErrorCode]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            for index in topic.partitions:
                code = _place(server, TopicPartition(topic.name, index), folder.path)
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
    return answer(header, r(results=results))


def _place(server: "BrokerServices", tp: TopicPartition, path: str) -> ErrorCode:
    """Have a replica lie in a folder, or say why not."""
    logs = server.replicas.logs
    # So long would be the name of the folder that Kafka moves a replica through.
    if len(str(tp)) + FUTURE_SUFFIX > LONGEST_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path in logs.offline_dirs:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if path not in logs.live_dirs:
        return ErrorCode.LOG_DIR_NOT_FOUND
    log = logs.get(tp)
    if log is None:
        logs.prefer(tp, path)
        if server.metadata.partition(*tp) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.REPLICA_NOT_AVAILABLE
    if log.failed is None and log.dir.rpartition("/")[0] == path:
        return ErrorCode.NONE
    logger.warning("replica not moved tp=%s from=%s to=%s: not served", tp, log.dir, path)
    return ErrorCode.KAFKA_STORAGE_ERROR
