"""OffsetCommit (key 8): a group's progress, written down.

Kafka's OffsetCommitRequest and OffsetCommitResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
OffsetCommitRequest (key 8, versions 0-9, flexible 8+) =
    group_id:string generation_id_or_member_epoch:int32@1+=-1~ member_id:string@1+~
    group_instance_id:string@7+?=null retention_time_ms:int64@2-4=-1~
    topics:[]OffsetCommitRequestTopic
OffsetCommitRequestTopic = name:string partitions:[]OffsetCommitRequestPartition
OffsetCommitRequestPartition =
    partition_index:int32 committed_offset:int64 committed_leader_epoch:int32@6+=-1~
    commit_timestamp:int64@1=-1 committed_metadata:string?

OffsetCommitResponse (key 8, versions 0-9, flexible 8+) =
    throttle_time_ms:int32@3+~ topics:[]OffsetCommitResponseTopic
OffsetCommitResponseTopic = name:string partitions:[]OffsetCommitResponsePartition
OffsetCommitResponsePartition = partition_index:int32 error_code:int16
"""

OffsetCommitRequest, OffsetCommitResponse = load(SCHEMA, __name__)
