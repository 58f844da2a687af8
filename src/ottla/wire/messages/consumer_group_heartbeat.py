"""ConsumerGroupHeartbeat (key 68): a member of a new-style group reports and gets its assignment.

Kafka's ConsumerGroupHeartbeatRequest and ConsumerGroupHeartbeatResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ConsumerGroupHeartbeatRequest (key 68, versions 0-1, flexible 0+) =
    group_id:string member_id:string member_epoch:int32 instance_id:string?=null
    rack_id:string?=null rebalance_timeout_ms:int32=-1 subscribed_topic_names:[]string?=null
    subscribed_topic_regex:string@1+?=null server_assignor:string?=null
    topic_partitions:[]TopicPartitions?=null
TopicPartitions = topic_id:uuid partitions:[]int32

ConsumerGroupHeartbeatResponse (key 68, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?=null member_id:string?=null
    member_epoch:int32 heartbeat_interval_ms:int32 assignment:Assignment?=null
Assignment = topic_partitions:[]TopicPartitions
TopicPartitions = topic_id:uuid partitions:[]int32
"""

ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse = load(SCHEMA, __name__)
