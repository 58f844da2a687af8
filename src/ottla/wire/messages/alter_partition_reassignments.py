"""AlterPartitionReassignments (key 45): move partitions to other brokers, or stop doing so.

Kafka's AlterPartitionReassignmentsRequest and AlterPartitionReassignmentsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
AlterPartitionReassignmentsRequest (key 45, versions 0-0, flexible 0+) =
    timeout_ms:int32=60000 topics:[]ReassignableTopic
ReassignableTopic = name:string partitions:[]ReassignablePartition
ReassignablePartition = partition_index:int32 replicas:[]int32?=null

AlterPartitionReassignmentsResponse (key 45, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?
    responses:[]ReassignableTopicResponse
ReassignableTopicResponse = name:string partitions:[]ReassignablePartitionResponse
ReassignablePartitionResponse = partition_index:int32 error_code:int16 error_message:string?
"""

AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse = load(SCHEMA, __name__)
