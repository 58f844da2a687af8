"""Transactions and their producers, and what is kept of them."""

from ottla.wire.schema import made_at_first_use

SCHEMA = """
# A producer id and epoch, with or without a transactional id.
InitProducerIdRequest (key 22, versions 0-5, flexible 2+) =
    transactional_id:string? transaction_timeout_ms:int32 producer_id:int64@3+=-1
    producer_epoch:int16@3+=-1

InitProducerIdResponse (key 22, versions 0-5, flexible 2+) =
    throttle_time_ms:int32~ error_code:int16 producer_id:int64=-1 producer_epoch:int16

# Partitions a transaction will write to; brokers verify by it.
AddPartitionsToTxnRequest (key 24, versions 0-5, flexible 3+) =
    transactions:[]AddPartitionsToTxnTransaction@4+ v3_and_below_transactional_id:string@0-3
    v3_and_below_producer_id:int64@0-3 v3_and_below_producer_epoch:int16@0-3
    v3_and_below_topics:[]AddPartitionsToTxnTopic@0-3
AddPartitionsToTxnTransaction =
    transactional_id:string@4+ producer_id:int64@4+ producer_epoch:int16@4+ verify_only:bool@4+
    topics:[]AddPartitionsToTxnTopic@4+
AddPartitionsToTxnTopic = name:string partitions:[]int32

AddPartitionsToTxnResponse (key 24, versions 0-5, flexible 3+) =
    throttle_time_ms:int32 error_code:int16@4+~
    results_by_transaction:[]AddPartitionsToTxnResult@4+
    results_by_topic_v3_and_below:[]AddPartitionsToTxnTopicResult@0-3
AddPartitionsToTxnResult =
    transactional_id:string@4+ topic_results:[]AddPartitionsToTxnTopicResult@4+
AddPartitionsToTxnTopicResult = name:string results_by_partition:[]AddPartitionsToTxnPartitionResult
AddPartitionsToTxnPartitionResult = partition_index:int32 partition_error_code:int16

# A group whose offsets a transaction will commit.
AddOffsetsToTxnRequest (key 25, versions 0-4, flexible 3+) =
    transactional_id:string producer_id:int64 producer_epoch:int16 group_id:string

AddOffsetsToTxnResponse (key 25, versions 0-4, flexible 3+) =
    throttle_time_ms:int32 error_code:int16

# A group's offsets, as part of a transaction.
TxnOffsetCommitRequest (key 28, versions 0-4, flexible 3+) =
    transactional_id:string group_id:string producer_id:int64 producer_epoch:int16
    generation_id:int32@3+=-1 member_id:string@3+ group_instance_id:string@3+?=null
    topics:[]TxnOffsetCommitRequestTopic
TxnOffsetCommitRequestTopic = name:string partitions:[]TxnOffsetCommitRequestPartition
TxnOffsetCommitRequestPartition =
    partition_index:int32 committed_offset:int64 committed_leader_epoch:int32@2+=-1~
    committed_metadata:string?

TxnOffsetCommitResponse (key 28, versions 0-4, flexible 3+) =
    throttle_time_ms:int32 topics:[]TxnOffsetCommitResponseTopic
TxnOffsetCommitResponseTopic = name:string partitions:[]TxnOffsetCommitResponsePartition
TxnOffsetCommitResponsePartition = partition_index:int32 error_code:int16

# Commit or abort a transaction.
EndTxnRequest (key 26, versions 0-4, flexible 3+) =
    transactional_id:string producer_id:int64 producer_epoch:int16 committed:bool

EndTxnResponse (key 26, versions 0-4, flexible 3+) = throttle_time_ms:int32 error_code:int16

# A coordinator has commit or abort markers appended.
WriteTxnMarkersRequest (key 27, versions 0-1, flexible 1+) = markers:[]WritableTxnMarker
WritableTxnMarker =
    producer_id:int64 producer_epoch:int16 transaction_result:bool
    topics:[]WritableTxnMarkerTopic coordinator_epoch:int32
WritableTxnMarkerTopic = name:string partition_indexes:[]int32

WriteTxnMarkersResponse (key 27, versions 0-1, flexible 1+) = markers:[]WritableTxnMarkerResult
WritableTxnMarkerResult = producer_id:int64 topics:[]WritableTxnMarkerTopicResult
WritableTxnMarkerTopicResult = name:string partitions:[]WritableTxnMarkerPartitionResult
WritableTxnMarkerPartitionResult = partition_index:int32 error_code:int16

# The producers a partition's log knows.
DescribeProducersRequest (key 61, versions 0-0, flexible 0+) = topics:[]TopicRequest
TopicRequest = name:string partition_indexes:[]int32

DescribeProducersResponse (key 61, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 topics:[]TopicResponse
TopicResponse = name:string partitions:[]PartitionResponse
PartitionResponse =
    partition_index:int32 error_code:int16 error_message:string?=null
    active_producers:[]ProducerState
ProducerState =
    producer_id:int64 producer_epoch:int32 last_sequence:int32=-1 last_timestamp:int64=-1
    coordinator_epoch:int32 current_txn_start_offset:int64=-1

# State of transactions by id.
DescribeTransactionsRequest (key 65, versions 0-0, flexible 0+) = transactional_ids:[]string

DescribeTransactionsResponse (key 65, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 transaction_states:[]TransactionState
TransactionState =
    error_code:int16 transactional_id:string transaction_state:string
    transaction_timeout_ms:int32 transaction_start_time_ms:int64 producer_id:int64
    producer_epoch:int16 topics:[]TopicData
TopicData = topic:string partitions:[]int32

# The transactions a broker coordinates.
ListTransactionsRequest (key 66, versions 0-1, flexible 0+) =
    state_filters:[]string producer_id_filters:[]int64 duration_filter:int64@1+=-1

ListTransactionsResponse (key 66, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 unknown_state_filters:[]string
    transaction_states:[]TransactionState
TransactionState = transactional_id:string producer_id:int64 transaction_state:string

# What a coordinator keeps in __transaction_state. An int16 version stands before each.
TransactionLogKey (key -1, versions 0-0) = transactional_id:string

TransactionLogValue (key -1, versions 0-1, flexible 1+) =
    producer_id:int64 producer_epoch:int16 transaction_timeout_ms:int32 transaction_status:int8
    transaction_partitions:[]PartitionsSchema? transaction_last_update_timestamp_ms:int64
    transaction_start_timestamp_ms:int64
PartitionsSchema = topic:string partition_ids:[]int32
"""

__getattr__ = made_at_first_use(SCHEMA, __name__)
