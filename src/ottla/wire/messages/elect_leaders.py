"""ElectLeaders (key 43): elect preferred or unclean leaders.

Kafka's ElectLeadersRequest and ElectLeadersResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ElectLeadersRequest (key 43, versions 0-2, flexible 2+) =
    election_type:int8@1+ topic_partitions:[]TopicPartitions? timeout_ms:int32=60000
TopicPartitions = topic:string partitions:[]int32

ElectLeadersResponse (key 43, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 error_code:int16@1+ replica_election_results:[]ReplicaElectionResult
ReplicaElectionResult = topic:string partition_result:[]PartitionResult
PartitionResult = partition_id:int32 error_code:int16 error_message:string?
"""

ElectLeadersRequest, ElectLeadersResponse = load(SCHEMA, __name__)
