"""DescribeLogDirs: what lies in this broker's data folders, and how large it is.

Who may call: the router. Answers to `KafkaApis.handleDescribeLogDirsRequest` and
`ReplicaManager.describeLogDirs` (KIP-113, KIP-827). Sizes of whole volumes are not told (-1).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.answers import answer
from ottla.model.errors import ErrorCode
from ottla.model.ports import Buffer
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices
    from ottla.net.connection import Connection

Partition = DescribeLogDirsResponse.DescribeLogDirsPartition


def handle(
    server: "BrokerServices",
    conn: "Connection",  # noqa: ARG001
    header: RequestHeader,
    request: DescribeLogDirsRequest,
) -> Sequence[Buffer]:
    wanted = None
    if request.topics is not None:
        wanted = {(t.topic, p) for t in request.topics for p in t.partitions}
    logs = server.replicas.logs
    found: dict[str, dict[str, list[Partition]]] = {path: {} for path in logs.live_dirs}
    for log in logs.logs():
        topics = found.get(log.dir.rpartition("/")[0])
        if topics is not None and (wanted is None or log.tp in wanted):
            partition = Partition(
                partition_index=log.tp.partition,
                partition_size=log.size,
                offset_lag=max(0, log.high_watermark - log.log_end_offset),
            )
            topics.setdefault(log.tp.topic, []).append(partition)
    r = DescribeLogDirsResponse
    results = [
        r.DescribeLogDirsResult(
            log_dir=path,
            topics=[
                r.DescribeLogDirsTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        for path, topics in found.items()
    ]
    results += [
        r.DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        for path in logs.offline_dirs
    ]
    return answer(header, r(results=results))
