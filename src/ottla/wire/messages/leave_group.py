"""LeaveGroup (key 13): members leave a group.

Kafka's LeaveGroupRequest and LeaveGroupResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
LeaveGroupRequest (key 13, versions 0-5, flexible 4+) =
    group_id:string member_id:string@0-2 members:[]MemberIdentity@3+
MemberIdentity = member_id:string@3+ group_instance_id:string@3+?=null reason:string@5+?=null~

LeaveGroupResponse (key 13, versions 0-5, flexible 4+) =
    throttle_time_ms:int32@1+~ error_code:int16 members:[]MemberResponse@3+
MemberResponse = member_id:string@3+ group_instance_id:string@3+? error_code:int16@3+
"""

LeaveGroupRequest, LeaveGroupResponse = load(SCHEMA, __name__)
