"""DescribeLogDirs: what lies in this broker's log dirs, and how large it is.

Kafka: `KafkaApis.handleDescribeLogDirsRequest` and `ReplicaManager.describeLogDirs` (KIP-113,
KIP-827). A replica on its way to another dir is named in both, in the one it goes to as future
replica with what it still lacks.
"""

from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import ELEMENT_BYTES, STEP, Steps, respond_in_steps
from ottla.broker.services import BrokerServices
from ottla.log.log import Log
from ottla.model.errors import ErrorCode
from ottla.net.connection import Connection
from ottla.security.acls import DESCRIBE
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse

Partition = DescribeLogDirsResponse.DescribeLogDirsPartition
Result = DescribeLogDirsResponse.DescribeLogDirsResult

UNKNOWN_LAG = -1


def handle(
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
    handle,
    access=on_cluster(DESCRIBE),
    error=error_response(DescribeLogDirsResponse),
    large_response=True,
)
