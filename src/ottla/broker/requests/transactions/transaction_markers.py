"""WriteTxnMarkers: a coordinator has markers written to partitions that this broker leads.

Invariants: a marker counts as written when all in-sync replicas have it; the offsets of a group
become visible, or are dropped, at that moment. A marker for a partition of `__consumer_offsets`
that is still being loaded is refused: the loader would miss it. Kafka:
`KafkaApis.handleWriteTxnMarkersRequest`.
"""

from collections.abc import Sequence

from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Quota, Response
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.log.validate import COORDINATOR
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import GROUP_METADATA_TOPIC, TopicPartition
from ottla.model.ports import Buffer
from ottla.model.protocol import ACKS_ALL
from ottla.net.connection import Connection
from ottla.replication.delayed_produce import DelayedProduce, PartitionResult
from ottla.replication.partition import Partition
from ottla.security.acls import ALTER, CLUSTER_ACTION
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.wire.portions import in_portions
from ottla.wire.records import ABORT, COMMIT, build_control_batch

Marker = WriteTxnMarkersRequest.WritableTxnMarker


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: WriteTxnMarkersRequest,
) -> Response:
    results: list[tuple[Marker, PartitionResult]] = []
    waiting: list[tuple[int, Partition]] = []
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                result = PartitionResult(topic.name, index)
                partition = _append(server, marker, result)
                if partition is not None:
                    waiting.append((len(results), partition))
                results.append((marker, result))
    if not waiting:
        return respond(header, _response(server, request, results))
    pending = PendingMarkers(server, conn, header, request, results)
    pending.wait(waiting, server.config.integer("request.timeout.ms"))
    return pending


class PendingMarkers(DelayedProduce):
    """The response when the in-sync replicas have all markers."""

    __slots__ = ("_header", "_marked", "_request", "_server")

    def __init__(
        self,
        server: BrokerServices,
        conn: Connection,
        header: RequestHeader,
        request: WriteTxnMarkersRequest,
        marked: list[tuple[Marker, PartitionResult]],
    ) -> None:
        results = [result for _, result in marked]
        super().__init__(conn, server.replicas, results, pipelined=False)
        self._server = server
        self._header = header
        self._request = request
        self._marked = marked

    def respond(self) -> Sequence[Buffer]:
        return respond(self._header, _response(self._server, self._request, self._marked))

    def drop(self) -> None:
        """Go on though the coordinator hung up: the offsets of a group wait for the markers too."""


def _append(server: BrokerServices, marker: Marker, result: PartitionResult) -> Partition | None:
    """Append one marker; return its partition if the in-sync replicas are to be waited for."""
    tp = TopicPartition(result.topic, result.index)
    groups = server.groups.log
    if tp.topic == GROUP_METADATA_TOPIC and groups.check_status(tp.partition) is not ErrorCode.NONE:
        result.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return None
    now_ms = server.world.clock.wall_ms()
    batch = build_control_batch(
        COMMIT if marker.transaction_result else ABORT,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now_ms,
    )
    try:
        partition = server.replicas.hosted(*tp)
    except OttlaError as error:
        # Kafka's error for a partition of another broker; a coordinator handles both alike.
        hosted_elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        result.failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if hosted_elsewhere else error.code)
        return None
    try:
        result.info = partition.append_as_leader(
            memoryview(bytearray(batch)), ACKS_ALL, now_ms, COORDINATOR
        )
    except OttlaError as error:
        result.failed(error.code, str(error))
        return None
    log = partition.log
    replicated = log is None or log.high_watermark > result.info.last_offset
    return None if replicated else partition


def _response(
    server: BrokerServices,
    request: WriteTxnMarkersRequest,
    results: list[tuple[Marker, PartitionResult]],
) -> WriteTxnMarkersResponse:
    """Return which markers are written, and complete the offsets of groups."""
    r = WriteTxnMarkersResponse
    groups = server.groups
    by_marker: dict[int, dict[str, list[PartitionResult]]] = {}
    for marker, result in results:
        by_marker.setdefault(id(marker), {}).setdefault(result.topic, []).append(result)
    responses = []
    for marker in request.markers:
        topics = by_marker.get(id(marker), {})
        written = [
            x.index for x in topics.get(GROUP_METADATA_TOPIC, ()) if x.code is ErrorCode.NONE
        ]
        if written:
            groups.complete_transaction(
                marker.producer_id, written, committed=marker.transaction_result
            )
        responses.append(
            r.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    r.WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            r.WritableTxnMarkerPartitionResult(
                                partition_index=x.index, error_code=x.code
                            )
                            for x in found
                        ],
                    )
                    for topic, found in topics.items()
                ],
            )
        )
    return r(markers=responses)


WRITE_TXN_MARKERS = Api(
    WriteTxnMarkersRequest,
    handle,
    access=on_cluster(ALTER, CLUSTER_ACTION),
    error=error_response(
        WriteTxnMarkersResponse, "markers.topics.partition_indexes", "markers.topics.partitions"
    ),
    quota=Quota.NONE,
    large=in_portions("markers.topics.partition_indexes", "markers.topics.partitions"),
)
