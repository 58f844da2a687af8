"""OffsetDelete (key 47): forget a group's offsets of some partitions.

Kafka's OffsetDeleteRequest and OffsetDeleteResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
OffsetDeleteRequest (key 47, versions 0-0) = group_id:string topics:[]OffsetDeleteRequestTopic
OffsetDeleteRequestTopic = name:string partitions:[]OffsetDeleteRequestPartition
OffsetDeleteRequestPartition = partition_index:int32

OffsetDeleteResponse (key 47, versions 0-0) =
    error_code:int16 throttle_time_ms:int32~ topics:[]OffsetDeleteResponseTopic
OffsetDeleteResponseTopic = name:string partitions:[]OffsetDeleteResponsePartition
OffsetDeleteResponsePartition = partition_index:int32 error_code:int16
"""

OffsetDeleteRequest, OffsetDeleteResponse = load(SCHEMA, __name__)
