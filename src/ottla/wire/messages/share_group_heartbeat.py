"""ShareGroupHeartbeat (key 76): a member of a share group reports and gets its assignment.

Kafka's ShareGroupHeartbeatRequest and ShareGroupHeartbeatResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ShareGroupHeartbeatRequest (key 76, versions 1-1, flexible 0+) =
    group_id:string member_id:string member_epoch:int32 rack_id:string?=null
    subscribed_topic_names:[]string?=null

ShareGroupHeartbeatResponse (key 76, versions 1-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?=null member_id:string?=null
    member_epoch:int32 heartbeat_interval_ms:int32 assignment:Assignment?=null
Assignment = topic_partitions:[]TopicPartitions
TopicPartitions = topic_id:uuid partitions:[]int32
"""

ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse = load(SCHEMA, __name__)
