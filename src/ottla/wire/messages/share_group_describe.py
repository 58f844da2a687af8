"""ShareGroupDescribe (key 77): state and members of share groups.

Kafka's ShareGroupDescribeRequest and ShareGroupDescribeResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ShareGroupDescribeRequest (key 77, versions 1-1, flexible 0+) =
    group_ids:[]string include_authorized_operations:bool

ShareGroupDescribeResponse (key 77, versions 1-1, flexible 0+) =
    throttle_time_ms:int32 groups:[]DescribedGroup
DescribedGroup =
    error_code:int16 error_message:string?=null group_id:string group_state:string
    group_epoch:int32 assignment_epoch:int32 assignor_name:string members:[]Member
    authorized_operations:int32=-2147483648
Member =
    member_id:string rack_id:string?=null member_epoch:int32 client_id:string client_host:string
    subscribed_topic_names:[]string assignment:Assignment
TopicPartitions = topic_id:uuid topic_name:string partitions:[]int32
Assignment = topic_partitions:[]TopicPartitions
"""

ShareGroupDescribeRequest, ShareGroupDescribeResponse = load(SCHEMA, __name__)
