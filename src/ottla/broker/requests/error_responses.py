"""Error responses: how each API says that the whole request failed.

Who may call: `answers`. Invariants: one row per API that can fail as a whole; an API without one
closes its connection, as the JVM does with a request it cannot parse. Kafka: the
`getErrorResponse` of Kafka's request classes.
"""

from collections.abc import Callable
from typing import Any

from ottla.model.errors import ErrorCode, OttlaError
from ottla.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)

Build = Callable[[Any, int, int, str | None], Any]
NONE = -1
_RESOURCE = {"resource_type": "resource_type", "resource_name": "resource_name"}


class Each:
    """A list of an answer: an item for each of a request's.

    `field` of the answer gets an `item` for each element of the request's `of` (a path: lists
    within lists become one). `copies` names what an item takes over, by the element's field; "" is
    the element itself. The items of the innermost list carry the constants and the error: in
    `code` and, with `message`, in error_message.
    """

    def __init__(
        self,
        field: str,
        item: Callable[..., Any],
        of: str,
        copies: dict[str, str],
        inner: "Each | None" = None,
        *,
        code: str = "error_code",
        message: bool = False,
        **constants: Any,
    ) -> None:
        self.field, self.inner = field, inner
        self._item, self._path, self._copies = item, of.split("."), copies
        self._code, self._message, self._constants = code, message, constants

    def items(self, request: Any, code: int, message: str | None) -> list[Any]:
        """Return the items for a request, or for an element of one."""
        elements = [request]
        for name in self._path:
            elements = [e for parent in elements for e in getattr(parent, name) or ()]
        return [self._answer(element, code, message) for element in elements]

    def _answer(self, element: Any, code: int, message: str | None) -> Any:
        values = {k: getattr(element, v) if v else element for k, v in self._copies.items()}
        if self.inner is not None:
            values[self.inner.field] = self.inner.items(element, code, message)
        else:
            values |= {self._code: code, **self._constants}
            if self._message:
                values["error_message"] = message
        return self._item(**values)

    def fields(self, request: Any, code: int, message: str | None) -> dict[str, Any]:
        """Return what the answer's constructor takes."""
        return {self.field: self.items(request, code, message)}


def _simple(response: Callable[..., Any], **constants: Any) -> Build:
    """Return a builder for responses whose only error field is `error_code`."""
    return lambda _request, _version, code, _message: response(error_code=code, **constants)


def _with_message(response: Callable[..., Any], **constants: Any) -> Build:
    """Return a builder for responses with `error_code` and `error_message` at the top."""
    return lambda _request, _version, code, message: response(
        error_code=code, error_message=message, **constants
    )


def _echo(response: Callable[..., Any], each: Each) -> Build:
    """Return a builder for responses that say the error once for each thing that was asked."""
    return lambda request, _version, code, message: response(**each.fields(request, code, message))


def _by_version(first: int, newer: Build, older: Build) -> Build:
    """Return a builder for responses that have another shape from a version on."""
    return lambda request, version, code, message: (newer if version >= first else older)(
        request, version, code, message
    )


def _alter_configs(response: Any) -> Build:
    item = response.AlterConfigsResourceResponse
    return _echo(response, Each("responses", item, "resources", _RESOURCE, message=True))


def _alter_client_quotas(request: Any, _version: int, code: int, message: str | None) -> Any:
    r = alter_client_quotas.AlterClientQuotasResponse
    return r(
        entries=[
            r.EntryData(
                error_code=code,
                error_message=message,
                entity=[
                    r.EntityData(entity_type=e.entity_type, entity_name=e.entity_name)
                    for e in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _elect_leaders(request: Any, version: int, code: int, message: str | None) -> Any:
    r = elect_leaders.ElectLeadersResponse
    results = Each("replica_election_results", r.ReplicaElectionResult, "topic_partitions",
                   {"topic": "topic"},
                   Each("partition_result", r.PartitionResult, "partitions",
                        {"partition_id": ""}, message=True))  # fmt: skip
    return r(error_code=code if version >= 1 else 0, **results.fields(request, code, message))


def _fetch(request: Any, version: int, code: int, message: str | None) -> Any:
    r = fetch.FetchResponse
    if version >= 13:
        return r(error_code=code)
    partitions = Each("partitions", r.PartitionData, "partitions",
                      {"partition_index": "partition"}, high_watermark=NONE)  # fmt: skip
    topics = Each("responses", r.FetchableTopicResponse, "topics", {"topic": "topic"}, partitions)
    return r(error_code=code if version >= 7 else 0, **topics.fields(request, code, message))


def _metadata(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = metadata.MetadataResponse
    return r(
        topics=[
            r.MetadataResponseTopic(
                error_code=code, name="" if t.name is None else t.name, topic_id=t.topic_id
            )
            for t in request.topics or ()
        ]
    )


def _join_group(_request: Any, version: int, code: int, _message: str | None) -> Any:
    return join_group.JoinGroupResponse(error_code=code, protocol_name=None if version >= 7 else "")


def _within_topics(
    response: Any,
    topic: Callable[..., Any],
    partition: Callable[..., Any],
    *,
    index: tuple[str, str] = ("partition_index", "partition_index"),
    partitions: str = "partitions",
    **more: Any,
) -> Build:
    """Return a builder for responses of `topics` with `name` and `partitions`, as requests have.

    `index` are the names of a partition's number in the answer and in the request ("" where the
    request has just numbers), `partitions` the request's list of them.
    """
    inner = Each("partitions", partition, partitions, dict([index]), **more)
    return _echo(response, Each("topics", topic, "topics", {"name": "name"}, inner))


_PRODUCE = produce.ProduceResponse
_LIST_OFFSETS = list_offsets.ListOffsetsResponse
_OFFSET_COMMIT = offset_commit.OffsetCommitResponse
_OFFSET_FETCH = offset_fetch.OffsetFetchResponse
_COORDINATOR = find_coordinator.FindCoordinatorResponse
_GROUPS = describe_groups.DescribeGroupsResponse
_CREATE_TOPICS = create_topics.CreateTopicsResponse
_DELETE_TOPICS = delete_topics.DeleteTopicsResponse
_DELETE_RECORDS = delete_records.DeleteRecordsResponse
_EPOCHS = offset_for_leader_epoch.OffsetForLeaderEpochResponse
_ADD_PARTITIONS = add_partitions_to_txn.AddPartitionsToTxnResponse
_MARKERS = write_txn_markers.WriteTxnMarkersResponse
_TXN_OFFSETS = txn_offset_commit.TxnOffsetCommitResponse
_DESCRIBE_CONFIGS = describe_configs.DescribeConfigsResponse
_LOG_DIRS = alter_replica_log_dirs.AlterReplicaLogDirsResponse
_CREATE_PARTITIONS = create_partitions.CreatePartitionsResponse
_DELETE_GROUPS = delete_groups.DeleteGroupsResponse
_PRODUCERS = describe_producers.DescribeProducersResponse
_TRANSACTIONS = describe_transactions.DescribeTransactionsResponse

_BUILDERS: dict[int, Build] = {
    0: _echo(_PRODUCE, Each(
        "responses", _PRODUCE.TopicProduceResponse, "topic_data", {"name": "name"},
        Each("partition_responses", _PRODUCE.PartitionProduceResponse, "partition_data",
             {"index": "index"}, message=True,
             base_offset=NONE, log_append_time_ms=NONE, log_start_offset=NONE))),
    1: _fetch,
    2: _within_topics(
        _LIST_OFFSETS, _LIST_OFFSETS.ListOffsetsTopicResponse,
        _LIST_OFFSETS.ListOffsetsPartitionResponse, timestamp=NONE, offset=NONE),
    3: _metadata,
    4: _simple(leader_and_isr.LeaderAndIsrResponse),
    5: _simple(stop_replica.StopReplicaResponse),
    6: _simple(update_metadata.UpdateMetadataResponse),
    7: _simple(controlled_shutdown.ControlledShutdownResponse),
    8: _within_topics(
        _OFFSET_COMMIT, _OFFSET_COMMIT.OffsetCommitResponseTopic,
        _OFFSET_COMMIT.OffsetCommitResponsePartition),
    9: _by_version(
        8,
        _echo(_OFFSET_FETCH, Each("groups", _OFFSET_FETCH.OffsetFetchResponseGroup, "groups",
                                  {"group_id": "group_id"})),
        _by_version(
            2,
            _simple(_OFFSET_FETCH),
            _within_topics(
                _OFFSET_FETCH, _OFFSET_FETCH.OffsetFetchResponseTopic,
                _OFFSET_FETCH.OffsetFetchResponsePartition, index=("partition_index", ""),
                partitions="partition_indexes", committed_offset=NONE, metadata=""))),
    10: _by_version(
        4,
        _echo(_COORDINATOR, Each("coordinators", _COORDINATOR.Coordinator, "coordinator_keys",
                                 {"key": ""}, message=True, node_id=NONE, port=NONE)),
        _with_message(_COORDINATOR, node_id=NONE, host="", port=NONE)),
    11: _join_group,
    12: _simple(heartbeat.HeartbeatResponse),
    13: _simple(leave_group.LeaveGroupResponse),
    14: _simple(sync_group.SyncGroupResponse),
    15: _echo(_GROUPS, Each("groups", _GROUPS.DescribedGroup, "groups", {"group_id": ""})),
    16: _simple(list_groups.ListGroupsResponse),
    18: _simple(api_versions.ApiVersionsResponse),
    19: _echo(_CREATE_TOPICS, Each("topics", _CREATE_TOPICS.CreatableTopicResult, "topics",
                                   {"name": "name"}, message=True)),
    20: _by_version(
        6,
        _echo(_DELETE_TOPICS, Each("responses", _DELETE_TOPICS.DeletableTopicResult, "topics",
                                   {"name": "name", "topic_id": "topic_id"}, message=True)),
        _echo(_DELETE_TOPICS, Each("responses", _DELETE_TOPICS.DeletableTopicResult, "topic_names",
                                   {"name": ""}, message=True, topic_id=bytes(16)))),
    21: _within_topics(
        _DELETE_RECORDS, _DELETE_RECORDS.DeleteRecordsTopicResult,
        _DELETE_RECORDS.DeleteRecordsPartitionResult, low_watermark=NONE),
    22: _simple(
        init_producer_id.InitProducerIdResponse, producer_id=NONE, producer_epoch=NONE),
    23: _echo(_EPOCHS, Each(
        "topics", _EPOCHS.OffsetForLeaderTopicResult, "topics", {"topic": "topic"},
        Each("partitions", _EPOCHS.EpochEndOffset, "partitions", {"partition": "partition"},
             leader_epoch=NONE, end_offset=NONE))),
    24: _by_version(
        4,
        _simple(_ADD_PARTITIONS),
        _echo(_ADD_PARTITIONS, Each(
            "results_by_topic_v3_and_below", _ADD_PARTITIONS.AddPartitionsToTxnTopicResult,
            "v3_and_below_topics", {"name": "name"},
            Each("results_by_partition", _ADD_PARTITIONS.AddPartitionsToTxnPartitionResult,
                 "partitions", {"partition_index": ""}, code="partition_error_code")))),
    25: _simple(add_offsets_to_txn.AddOffsetsToTxnResponse),
    26: _simple(end_txn.EndTxnResponse),
    27: _echo(_MARKERS, Each(
        "markers", _MARKERS.WritableTxnMarkerResult, "markers", {"producer_id": "producer_id"},
        Each("topics", _MARKERS.WritableTxnMarkerTopicResult, "topics", {"name": "name"},
             Each("partitions", _MARKERS.WritableTxnMarkerPartitionResult, "partition_indexes",
                  {"partition_index": ""})))),
    28: _within_topics(
        _TXN_OFFSETS, _TXN_OFFSETS.TxnOffsetCommitResponseTopic,
        _TXN_OFFSETS.TxnOffsetCommitResponsePartition),
    32: _echo(_DESCRIBE_CONFIGS, Each(
        "results", _DESCRIBE_CONFIGS.DescribeConfigsResult, "resources", _RESOURCE, message=True)),
    33: _alter_configs(alter_configs.AlterConfigsResponse),
    34: _echo(_LOG_DIRS, Each(
        "results", _LOG_DIRS.AlterReplicaLogDirTopicResult, "dirs.topics", {"topic_name": "name"},
        Each("partitions", _LOG_DIRS.AlterReplicaLogDirPartitionResult, "partitions",
             {"partition_index": ""}))),
    35: _simple(describe_log_dirs.DescribeLogDirsResponse),
    37: _echo(_CREATE_PARTITIONS, Each(
        "results", _CREATE_PARTITIONS.CreatePartitionsTopicResult, "topics", {"name": "name"},
        message=True)),
    42: _echo(_DELETE_GROUPS, Each("results", _DELETE_GROUPS.DeletableGroupResult, "groups_names",
                                   {"group_id": ""})),
    43: _elect_leaders,
    44: _alter_configs(incremental_alter_configs.IncrementalAlterConfigsResponse),
    45: _with_message(alter_partition_reassignments.AlterPartitionReassignmentsResponse),
    46: _with_message(list_partition_reassignments.ListPartitionReassignmentsResponse),
    47: _simple(offset_delete.OffsetDeleteResponse),
    48: _with_message(describe_client_quotas.DescribeClientQuotasResponse, entries=None),
    49: _alter_client_quotas,
    56: _simple(alter_partition.AlterPartitionResponse),
    57: _with_message(update_features.UpdateFeaturesResponse),
    60: _with_message(describe_cluster.DescribeClusterResponse),
    61: _within_topics(
        _PRODUCERS, _PRODUCERS.TopicResponse, _PRODUCERS.PartitionResponse,
        index=("partition_index", ""), partitions="partition_indexes", message=True),
    65: _echo(_TRANSACTIONS, Each("transaction_states", _TRANSACTIONS.TransactionState,
                                  "transactional_ids", {"transactional_id": ""})),
    66: _simple(list_transactions.ListTransactionsResponse),
    67: _simple(allocate_producer_ids.AllocateProducerIdsResponse),
}  # fmt: skip


def error_response(api_key: int, version: int, request: Any, error: OttlaError) -> Any:
    """Return the response message of an API for a request that failed as a whole."""
    code = error.code if error.code != ErrorCode.NONE else ErrorCode.UNKNOWN_SERVER_ERROR
    return _BUILDERS[api_key](request, version, int(code), str(error) or None)
