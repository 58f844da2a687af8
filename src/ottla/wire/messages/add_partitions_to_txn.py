"""AddPartitionsToTxn (key 24): partitions a transaction will write to; brokers verify by it.

Kafka's AddPartitionsToTxnRequest and AddPartitionsToTxnResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

AddPartitionsToTxnRequest, AddPartitionsToTxnResponse = load(SCHEMA, __name__)
