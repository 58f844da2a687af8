"""DescribeGroups (key 15): state and members of classic groups.

Kafka's DescribeGroupsRequest and DescribeGroupsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeGroupsRequest (key 15, versions 0-5, flexible 5+) =
    groups:[]string include_authorized_operations:bool@3+

DescribeGroupsResponse (key 15, versions 0-5, flexible 5+) =
    throttle_time_ms:int32@1+~ groups:[]DescribedGroup
DescribedGroup =
    error_code:int16 group_id:string group_state:string protocol_type:string
    protocol_data:string members:[]DescribedGroupMember
    authorized_operations:int32@3+=-2147483648
DescribedGroupMember =
    member_id:string group_instance_id:string@4+?=null~ client_id:string client_host:string
    member_metadata:bytes member_assignment:bytes
"""

DescribeGroupsRequest, DescribeGroupsResponse = load(SCHEMA, __name__)
