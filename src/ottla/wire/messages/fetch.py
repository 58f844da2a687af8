"""Fetch (key 1): read record batches; followers of a partition replicate by it.

Kafka's FetchRequest and FetchResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

FetchRequest, FetchResponse = load(SCHEMA, __name__)
