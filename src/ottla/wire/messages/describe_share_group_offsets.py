"""DescribeShareGroupOffsets (key 90): from where on share groups still have records to deliver.

Kafka's DescribeShareGroupOffsetsRequest and DescribeShareGroupOffsetsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeShareGroupOffsetsRequest (key 90, versions 0-1, flexible 0+) =
    groups:[]Group
Group =
    group_id:string topics:[]Topic?
Topic = topic_name:string partitions:[]int32

DescribeShareGroupOffsetsResponse (key 90, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 groups:[]Group
Group =
    group_id:string topics:[]Topic error_code:int16
    error_message:string?=null
Topic =
    topic_name:string topic_id:uuid partitions:[]Partition
Partition =
    partition_index:int32 start_offset:int64 leader_epoch:int32 lag:int64@1+=-1~
    error_code:int16 error_message:string?=null
"""

DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse = load(SCHEMA, __name__)
