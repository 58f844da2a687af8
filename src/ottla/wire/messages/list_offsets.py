"""ListOffsets (key 2): the offset at a timestamp, at the start or at the end of a log.

Kafka's ListOffsetsRequest and ListOffsetsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

ListOffsetsRequest, ListOffsetsResponse = load(SCHEMA, __name__)
