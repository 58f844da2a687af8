"""Produce (key 0): a producer's record batches, and the offsets they got.

Kafka's ProduceRequest and ProduceResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

ProduceRequest, ProduceResponse = load(SCHEMA, __name__)
