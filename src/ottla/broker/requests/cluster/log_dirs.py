"""DescribeLogDirs: what lies in this broker's log dirs, and how large it is.

Kafka: `KafkaApis.handleDescribeLogDirsRequest` and `ReplicaManager.describeLogDirs` (KIP-113,
KIP-827). A replica on its way to another dir is named in both, in the one it goes to as future
replica with what it still lacks.
"""

import logging

from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import ELEMENT_BYTES, STEP, Steps, respond, respond_in_steps
from ottla.broker.services import BrokerServices
from ottla.log.log import Log
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.connection import Connection
from ottla.security.acls import ALTER, DESCRIBE
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.cluster import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.wire.portions import MANY_CHANGES, in_portions

Partition = DescribeLogDirsResponse.DescribeLogDirsPartition
Result = DescribeLogDirsResponse.DescribeLogDirsResult

UNKNOWN_LAG = -1


logger = logging.getLogger(__name__)


def alter_log_dirs(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: AlterReplicaLogDirsRequest,
) -> Parts:
    """Set in which log dir replicas are to lie.

    A replica that is not here yet is created in the dir named for it; one that is used moves there
    in the background; to name the dir it lies in cancels that. Kafka:
    `KafkaApis.handleAlterReplicaLogDirsRequest` (KIP-113).
    """
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
    alter_log_dirs,
    access=on_cluster(ALTER),
    error=error_response(
        AlterReplicaLogDirsResponse, "dirs.topics.partitions", "results.partitions"
    ),
    large=in_portions("dirs.topics.partitions", "results.partitions", many=MANY_CHANGES),
)


def describe_log_dirs(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeLogDirsRequest,
) -> Parts | Later:
    return respond_in_steps(server, conn, header, _described(server, request))


def _described(server: BrokerServices, request: DescribeLogDirsRequest) -> Steps:
    wanted = None
    if request.topics is not None:
        wanted = {(t.topic, p) for t in request.topics for p in t.partitions}
    logs = server.replicas.logs
    found: dict[str, dict[str, list[Partition]]] = {path: {} for path in logs.live_dirs}
    for number, log in enumerate(list(logs.all_logs()), 1):
        topics = found.get(log.parent_dir)
        if topics is not None and (wanted is None or log.tp in wanted):
            topics.setdefault(log.tp.topic, []).append(_describe(server, log))
        if not number % STEP:
            yield STEP * ELEMENT_BYTES
    results = [_live(server, path, topics) for path, topics in found.items()]
    results += [
        Result(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR) for path in logs.offline_dirs
    ]
    return DescribeLogDirsResponse(results=results)


def _describe(server: BrokerServices, log: Log) -> Partition:
    """Describe a log; its lag is counted from the partition's own, if that is served."""
    partition = server.replicas.get(log.tp)
    current = partition.log if partition is not None else None
    is_future = server.replicas.logs.future(log.tp) is log
    if current is None:
        lag = UNKNOWN_LAG
    elif is_future:
        lag = current.log_end_offset - log.log_end_offset
    else:
        lag = max(0, current.high_watermark - log.log_end_offset)
    return Partition(
        partition_index=log.tp.partition,
        partition_size=log.size,
        offset_lag=lag,
        is_future_key=is_future,
    )


def _live(server: BrokerServices, path: str, topics: dict[str, list[Partition]]) -> Result:
    try:
        total, usable = server.world.files.space(path)
    except OSError:
        return Result(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    return Result(
        log_dir=path,
        total_bytes=total,
        usable_bytes=usable,
        topics=[
            DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


DESCRIBE_LOG_DIRS = Api(
    DescribeLogDirsRequest,
    describe_log_dirs,
    access=on_cluster(DESCRIBE),
    error=error_response(DescribeLogDirsResponse),
    large_response=True,
)
