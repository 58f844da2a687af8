"""SyncGroup (key 14): the leader hands out assignments, members receive theirs.

Kafka's SyncGroupRequest and SyncGroupResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
SyncGroupRequest (key 14, versions 0-5, flexible 4+) =
    group_id:string generation_id:int32 member_id:string group_instance_id:string@3+?=null
    protocol_type:string@5+?=null~ protocol_name:string@5+?=null~
    assignments:[]SyncGroupRequestAssignment
SyncGroupRequestAssignment = member_id:string assignment:bytes

SyncGroupResponse (key 14, versions 0-5, flexible 4+) =
    throttle_time_ms:int32@1+~ error_code:int16 protocol_type:string@5+?=null~
    protocol_name:string@5+?=null~ assignment:bytes
"""

SyncGroupRequest, SyncGroupResponse = load(SCHEMA, __name__)
