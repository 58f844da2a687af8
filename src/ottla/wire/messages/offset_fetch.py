"""OffsetFetch (key 9): a group's progress, read back.

Kafka's OffsetFetchRequest and OffsetFetchResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
OffsetFetchRequest (key 9, versions 0-9, flexible 6+) =
    group_id:string@0-7 topics:[]OffsetFetchRequestTopic@0-7?2-7
    groups:[]OffsetFetchRequestGroup@8+ require_stable:bool@7+
OffsetFetchRequestTopic = name:string@0-7 partition_indexes:[]int32@0-7
OffsetFetchRequestGroup =
    group_id:string@8+ member_id:string@9+?=null~ member_epoch:int32@9+=-1~
    topics:[]OffsetFetchRequestTopics@8+?
OffsetFetchRequestTopics = name:string@8+ partition_indexes:[]int32@8+

OffsetFetchResponse (key 9, versions 0-9, flexible 6+) =
    throttle_time_ms:int32@3+~ topics:[]OffsetFetchResponseTopic@0-7 error_code:int16@2-7~
    groups:[]OffsetFetchResponseGroup@8+
OffsetFetchResponseTopic = name:string@0-7 partitions:[]OffsetFetchResponsePartition@0-7
OffsetFetchResponsePartition =
    partition_index:int32@0-7 committed_offset:int64@0-7 committed_leader_epoch:int32@5-7=-1~
    metadata:string@0-7? error_code:int16@0-7
OffsetFetchResponseGroup =
    group_id:string@8+ topics:[]OffsetFetchResponseTopics@8+ error_code:int16@8+
OffsetFetchResponseTopics = name:string@8+ partitions:[]OffsetFetchResponsePartitions@8+
OffsetFetchResponsePartitions =
    partition_index:int32@8+ committed_offset:int64@8+ committed_leader_epoch:int32@8+=-1~
    metadata:string@8+? error_code:int16@8+
"""

OffsetFetchRequest, OffsetFetchResponse = load(SCHEMA, __name__)
