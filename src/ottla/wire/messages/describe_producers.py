"""DescribeProducers (key 61): the producers a partition's log knows.

Kafka's DescribeProducersRequest and DescribeProducersResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

DescribeProducersRequest, DescribeProducersResponse = load(SCHEMA, __name__)
