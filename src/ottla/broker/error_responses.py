"""Error responses: how each API says that the whole request failed.

Who may call: `answers`. Invariants: one function per API that can fail as a whole; an API without
one closes its connection, as the JVM does with a request it cannot parse. Answers to the
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


def _simple(response: Callable[..., Any]) -> Build:
    """Return a builder for responses whose only error field is `error_code`."""
    return lambda _request, _version, code, _message: response(error_code=code)


def _with_message(response: Callable[..., Any]) -> Build:
    """Return a builder for responses with `error_code` and `error_message` at the top."""
    return lambda _request, _version, code, message: response(
        error_code=code, error_message=message
    )


def _alter_configs(response: Any) -> Build:
    return lambda request, _version, code, message: response(
        responses=[
            response.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


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


def _describe_client_quotas(_request: Any, _version: int, code: int, message: str | None) -> Any:
    return describe_client_quotas.DescribeClientQuotasResponse(
        error_code=code, error_message=message, entries=None
    )


def _alter_replica_log_dirs(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = alter_replica_log_dirs.AlterReplicaLogDirsResponse
    return r(
        results=[
            r.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    r.AlterReplicaLogDirPartitionResult(partition_index=p, error_code=code)
                    for p in topic.partitions
                ],
            )
            for folder in request.dirs
            for topic in folder.topics
        ]
    )


def _create_partitions(request: Any, _version: int, code: int, message: str | None) -> Any:
    r = create_partitions.CreatePartitionsResponse
    return r(
        results=[
            r.CreatePartitionsTopicResult(name=t.name, error_code=code, error_message=message)
            for t in request.topics
        ]
    )


def _elect_leaders(request: Any, version: int, code: int, message: str | None) -> Any:
    r = elect_leaders.ElectLeadersResponse
    return r(
        error_code=code if version >= 1 else 0,
        replica_election_results=[
            r.ReplicaElectionResult(
                topic=t.topic,
                partition_result=[
                    r.PartitionResult(partition_id=p, error_code=code, error_message=message)
                    for p in t.partitions
                ],
            )
            for t in request.topic_partitions or ()
        ],
    )


def _produce(request: Any, _version: int, code: int, message: str | None) -> Any:
    r = produce.ProduceResponse
    return r(
        responses=[
            r.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    r.PartitionProduceResponse(
                        index=p.index,
                        error_code=code,
                        base_offset=NONE,
                        log_append_time_ms=NONE,
                        log_start_offset=NONE,
                        error_message=message,
                    )
                    for p in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: Any, version: int, code: int, _message: str | None) -> Any:
    r = fetch.FetchResponse
    if version >= 13:
        return r(error_code=code)
    return r(
        error_code=code if version >= 7 else 0,
        responses=[
            r.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    r.PartitionData(
                        partition_index=p.partition, error_code=code, high_watermark=NONE
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _list_offsets(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = list_offsets.ListOffsetsResponse
    return r(
        topics=[
            r.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    r.ListOffsetsPartitionResponse(
                        partition_index=p.partition_index,
                        error_code=code,
                        timestamp=NONE,
                        offset=NONE,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


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


def _create_topics(request: Any, _version: int, code: int, message: str | None) -> Any:
    r = create_topics.CreateTopicsResponse
    return r(
        topics=[
            r.CreatableTopicResult(name=t.name, error_code=code, error_message=message)
            for t in request.topics
        ]
    )


def _delete_topics(request: Any, version: int, code: int, message: str | None) -> Any:
    r = delete_topics.DeleteTopicsResponse
    if version >= 6:
        topics = [(t.name, t.topic_id) for t in request.topics]
    else:
        topics = [(name, bytes(16)) for name in request.topic_names]
    return r(
        responses=[
            r.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message
            )
            for name, topic_id in topics
        ]
    )


def _delete_records(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = delete_records.DeleteRecordsResponse
    return r(
        topics=[
            r.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    r.DeleteRecordsPartitionResult(
                        partition_index=p.partition_index, error_code=code, low_watermark=NONE
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_configs(request: Any, _version: int, code: int, message: str | None) -> Any:
    r = describe_configs.DescribeConfigsResponse
    return r(
        results=[
            r.DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _init_producer_id(_request: Any, _version: int, code: int, _message: str | None) -> Any:
    return init_producer_id.InitProducerIdResponse(
        error_code=code, producer_id=NONE, producer_epoch=NONE
    )


def _epochs(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = offset_for_leader_epoch.OffsetForLeaderEpochResponse
    return r(
        topics=[
            r.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    r.EpochEndOffset(
                        error_code=code, partition=p.partition, leader_epoch=NONE, end_offset=NONE
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_commit(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = offset_commit.OffsetCommitResponse
    return r(
        topics=[
            r.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    r.OffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=code
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: Any, version: int, code: int, _message: str | None) -> Any:
    r = offset_fetch.OffsetFetchResponse
    if version >= 8:
        groups = [
            r.OffsetFetchResponseGroup(group_id=g.group_id, error_code=code) for g in request.groups
        ]
        return r(groups=groups)
    if version >= 2:
        return r(error_code=code)
    return r(
        topics=[
            r.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    r.OffsetFetchResponsePartition(
                        partition_index=p, committed_offset=NONE, metadata="", error_code=code
                    )
                    for p in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _find_coordinator(request: Any, version: int, code: int, message: str | None) -> Any:
    r = find_coordinator.FindCoordinatorResponse
    if version < 4:
        return r(error_code=code, error_message=message, node_id=NONE, host="", port=NONE)
    return r(
        coordinators=[
            r.Coordinator(key=key, node_id=NONE, port=NONE, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ]
    )


def _join_group(_request: Any, version: int, code: int, _message: str | None) -> Any:
    return join_group.JoinGroupResponse(error_code=code, protocol_name=None if version >= 7 else "")


def _describe_groups(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = describe_groups.DescribeGroupsResponse
    return r(groups=[r.DescribedGroup(group_id=g, error_code=code) for g in request.groups])


def _delete_groups(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = delete_groups.DeleteGroupsResponse
    return r(
        results=[r.DeletableGroupResult(group_id=g, error_code=code) for g in request.groups_names]
    )


def _add_partitions(request: Any, version: int, code: int, _message: str | None) -> Any:
    r = add_partitions_to_txn.AddPartitionsToTxnResponse
    if version >= 4:
        return r(error_code=code)
    return r(
        results_by_topic_v3_and_below=[
            r.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    r.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _txn_offset_commit(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = txn_offset_commit.TxnOffsetCommitResponse
    return r(
        topics=[
            r.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    r.TxnOffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=code
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _write_txn_markers(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = write_txn_markers.WriteTxnMarkersResponse
    return r(
        markers=[
            r.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    r.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            r.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=code
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _describe_producers(request: Any, _version: int, code: int, message: str | None) -> Any:
    r = describe_producers.DescribeProducersResponse
    return r(
        topics=[
            r.TopicResponse(
                name=topic.name,
                partitions=[
                    r.PartitionResponse(
                        partition_index=index, error_code=code, error_message=message
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_transactions(request: Any, _version: int, code: int, _message: str | None) -> Any:
    r = describe_transactions.DescribeTransactionsResponse
    return r(
        transaction_states=[
            r.TransactionState(transactional_id=name, error_code=code)
            for name in request.transactional_ids
        ]
    )


_BUILDERS: dict[int, Build] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    4: _simple(leader_and_isr.LeaderAndIsrResponse),
    5: _simple(stop_replica.StopReplicaResponse),
    6: _simple(update_metadata.UpdateMetadataResponse),
    7: _simple(controlled_shutdown.ControlledShutdownResponse),
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    12: _simple(heartbeat.HeartbeatResponse),
    13: _simple(leave_group.LeaveGroupResponse),
    14: _simple(sync_group.SyncGroupResponse),
    15: _describe_groups,
    16: _simple(list_groups.ListGroupsResponse),
    18: _simple(api_versions.ApiVersionsResponse),
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    22: _init_producer_id,
    23: _epochs,
    24: _add_partitions,
    25: _simple(add_offsets_to_txn.AddOffsetsToTxnResponse),
    26: _simple(end_txn.EndTxnResponse),
    27: _write_txn_markers,
    28: _txn_offset_commit,
    32: _describe_configs,
    33: _alter_configs(alter_configs.AlterConfigsResponse),
    34: _alter_replica_log_dirs,
    35: _simple(describe_log_dirs.DescribeLogDirsResponse),
    37: _create_partitions,
    42: _delete_groups,
    43: _elect_leaders,
    44: _alter_configs(incremental_alter_configs.IncrementalAlterConfigsResponse),
    45: _with_message(alter_partition_reassignments.AlterPartitionReassignmentsResponse),
    46: _with_message(list_partition_reassignments.ListPartitionReassignmentsResponse),
    47: _simple(offset_delete.OffsetDeleteResponse),
    48: _describe_client_quotas,
    49: _alter_client_quotas,
    56: _simple(alter_partition.AlterPartitionResponse),
    57: _with_message(update_features.UpdateFeaturesResponse),
    60: _with_message(describe_cluster.DescribeClusterResponse),
    61: _describe_producers,
    65: _describe_transactions,
    66: _simple(list_transactions.ListTransactionsResponse),
    67: _simple(allocate_producer_ids.AllocateProducerIdsResponse),
}


def error_response(api_key: int, version: int, request: Any, error: OttlaError) -> Any:
    """Return the response message of an API for a request that failed as a whole."""
    code = error.code if error.code != ErrorCode.NONE else ErrorCode.UNKNOWN_SERVER_ERROR
    return _BUILDERS[api_key](request, version, int(code), str(error) or None)
