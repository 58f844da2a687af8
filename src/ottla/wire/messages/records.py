"""Batches of records, to brokers and from them, and the offsets in their logs."""

from ottla.wire.schema import made_at_first_use

SCHEMA = """
# A producer's record batches, and the offsets they got.
ProduceRequest (key 0, versions 0-11, flexible 9+) =
    transactional_id:string@3+?=null acks:int16 timeout_ms:int32 topic_data:[]TopicProduceData
TopicProduceData = name:string partition_data:[]PartitionProduceData
PartitionProduceData = index:int32 records:records?

ProduceResponse (key 0, versions 0-11, flexible 9+) =
    responses:[]TopicProduceResponse throttle_time_ms:int32@1+~
    node_endpoints:[]NodeEndpoint@10+#0
TopicProduceResponse = name:string partition_responses:[]PartitionProduceResponse
PartitionProduceResponse =
    index:int32 error_code:int16 base_offset:int64 log_append_time_ms:int64@2+=-1~
    log_start_offset:int64@5+=-1~ record_errors:[]BatchIndexAndErrorMessage@8+~
    error_message:string@8+?=null~ current_leader:LeaderIdAndEpoch@10+#0
BatchIndexAndErrorMessage = batch_index:int32@8+ batch_index_error_message:string@8+?=null
LeaderIdAndEpoch = leader_id:int32@10+=-1 leader_epoch:int32@10+=-1
NodeEndpoint = node_id:int32@10+ host:string@10+ port:int32@10+ rack:string@10+?=null

# Read record batches; followers of a partition replicate by it.
FetchRequest (key 1, versions 0-17, flexible 12+) =
    cluster_id:string@12+?#0=null~ replica_id:int32@0-14=-1 replica_state:ReplicaState@15+#1
    max_wait_ms:int32 min_bytes:int32 max_bytes:int32@3+=0x7fffffff~ isolation_level:int8@4+~
    session_id:int32@7+~ session_epoch:int32@7+=-1~ topics:[]FetchTopic
    forgotten_topics_data:[]ForgottenTopic@7+ rack_id:string@11+~
ReplicaState = replica_id:int32@15+=-1 replica_epoch:int64@15+=-1
FetchTopic = topic:string@0-12~ topic_id:uuid@13+~ partitions:[]FetchPartition
FetchPartition =
    partition:int32 current_leader_epoch:int32@9+=-1~ fetch_offset:int64
    last_fetched_epoch:int32@12+=-1 log_start_offset:int64@5+=-1~ partition_max_bytes:int32
    replica_directory_id:uuid@17+#0~
ForgottenTopic = topic:string@7-12~ topic_id:uuid@13+~ partitions:[]int32@7+

FetchResponse (key 1, versions 0-17, flexible 12+) =
    throttle_time_ms:int32@1+~ error_code:int16@7+~ session_id:int32@7+
    responses:[]FetchableTopicResponse node_endpoints:[]NodeEndpoint@16+#0
FetchableTopicResponse = topic:string@0-12~ topic_id:uuid@13+~ partitions:[]PartitionData
PartitionData =
    partition_index:int32 error_code:int16 high_watermark:int64 last_stable_offset:int64@4+=-1~
    log_start_offset:int64@5+=-1~ diverging_epoch:EpochEndOffset@12+#0
    current_leader:LeaderIdAndEpoch@12+#1 snapshot_id:SnapshotId@12+#2
    aborted_transactions:[]AbortedTransaction@4+?~ preferred_read_replica:int32@11+=-1
    records:records?
EpochEndOffset = epoch:int32@12+=-1 end_offset:int64@12+=-1
LeaderIdAndEpoch = leader_id:int32@12+=-1 leader_epoch:int32@12+=-1
SnapshotId = end_offset:int64=-1 epoch:int32=-1
AbortedTransaction = producer_id:int64@4+ first_offset:int64@4+
NodeEndpoint = node_id:int32@16+ host:string@16+ port:int32@16+ rack:string@16+?=null

# The offset at a timestamp, at the start or at the end of a log.
ListOffsetsRequest (key 2, versions 0-9, flexible 6+) =
    replica_id:int32 isolation_level:int8@2+ topics:[]ListOffsetsTopic
ListOffsetsTopic = name:string partitions:[]ListOffsetsPartition
ListOffsetsPartition =
    partition_index:int32 current_leader_epoch:int32@4+=-1~ timestamp:int64
    max_num_offsets:int32@0=1

ListOffsetsResponse (key 2, versions 0-9, flexible 6+) =
    throttle_time_ms:int32@2+~ topics:[]ListOffsetsTopicResponse
ListOffsetsTopicResponse = name:string partitions:[]ListOffsetsPartitionResponse
ListOffsetsPartitionResponse =
    partition_index:int32 error_code:int16 old_style_offsets:[]int64@0 timestamp:int64@1+=-1
    offset:int64@1+=-1 leader_epoch:int32@4+=-1

# Where a leader epoch ended in a log.
OffsetForLeaderEpochRequest (key 23, versions 0-4, flexible 4+) =
    replica_id:int32@3+=-2~ topics:[]OffsetForLeaderTopic
OffsetForLeaderTopic = topic:string partitions:[]OffsetForLeaderPartition
OffsetForLeaderPartition = partition:int32 current_leader_epoch:int32@2+=-1~ leader_epoch:int32

OffsetForLeaderEpochResponse (key 23, versions 0-4, flexible 4+) =
    throttle_time_ms:int32@2+~ topics:[]OffsetForLeaderTopicResult
OffsetForLeaderTopicResult = topic:string partitions:[]EpochEndOffset
EpochEndOffset = error_code:int16 partition:int32 leader_epoch:int32@1+=-1~ end_offset:int64=-1

# Move the start of partitions' logs forward.
DeleteRecordsRequest (key 21, versions 0-2, flexible 2+) =
    topics:[]DeleteRecordsTopic timeout_ms:int32
DeleteRecordsTopic = name:string partitions:[]DeleteRecordsPartition
DeleteRecordsPartition = partition_index:int32 offset:int64

DeleteRecordsResponse (key 21, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 topics:[]DeleteRecordsTopicResult
DeleteRecordsTopicResult = name:string partitions:[]DeleteRecordsPartitionResult
DeleteRecordsPartitionResult = partition_index:int32 low_watermark:int64 error_code:int16
"""

__getattr__ = made_at_first_use(SCHEMA, __name__)
