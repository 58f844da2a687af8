"""What a coordinator keeps in `__consumer_offsets`: offsets and groups.

In a record an int16 version stands before each; it also says which key it is (0 and 1 an offset,
2 a group). Kafka's OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue.
"""

from ottla.wire.schema import load

SCHEMA = """
OffsetCommitKey (key -1, versions 0-1) = group:string topic:string partition:int32

OffsetCommitValue (key -1, versions 0-4, flexible 4+) =
    offset:int64 leader_epoch:int32@3+=-1~ metadata:string commit_timestamp:int64
    expire_timestamp:int64@1=-1~

GroupMetadataKey (key -1, versions 2-2) = group:string

GroupMetadataValue (key -1, versions 0-4, flexible 4+) =
    protocol_type:string generation:int32 protocol:string? leader:string?
    current_state_timestamp:int64@2+=-1~ members:[]MemberMetadata
MemberMetadata =
    member_id:string group_instance_id:string@3+?=null~ client_id:string client_host:string
    rebalance_timeout:int32@1+=-1~ session_timeout:int32 subscription:bytes assignment:bytes
"""

OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue = load(SCHEMA, __name__)
