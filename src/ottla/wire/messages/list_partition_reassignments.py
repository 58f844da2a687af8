"""ListPartitionReassignments (key 46): moves of partitions under way.

Kafka's ListPartitionReassignmentsRequest and ListPartitionReassignmentsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ListPartitionReassignmentsRequest (key 46, versions 0-0, flexible 0+) =
    timeout_ms:int32=60000 topics:[]ListPartitionReassignmentsTopics?=null
ListPartitionReassignmentsTopics = name:string partition_indexes:[]int32

ListPartitionReassignmentsResponse (key 46, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?
    topics:[]OngoingTopicReassignment
OngoingTopicReassignment = name:string partitions:[]OngoingPartitionReassignment
OngoingPartitionReassignment =
    partition_index:int32 replicas:[]int32 adding_replicas:[]int32 removing_replicas:[]int32
"""

ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse = load(SCHEMA, __name__)
