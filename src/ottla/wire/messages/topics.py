"""Topics: creation, deletion, leaders and reassignments."""

from ottla.wire.schema import made_at_first_use

SCHEMA = """
# New topics, with assignment or counts.
CreateTopicsRequest (key 19, versions 0-7, flexible 5+) =
    topics:[]CreatableTopic timeout_ms:int32=60000 validate_only:bool@1+
CreatableTopic =
    name:string num_partitions:int32 replication_factor:int16
    assignments:[]CreatableReplicaAssignment configs:[]CreatableTopicConfig
CreatableReplicaAssignment = partition_index:int32 broker_ids:[]int32
CreatableTopicConfig = name:string value:string?

CreateTopicsResponse (key 19, versions 0-7, flexible 5+) =
    throttle_time_ms:int32@2+~ topics:[]CreatableTopicResult
CreatableTopicResult =
    name:string topic_id:uuid@7+~ error_code:int16 error_message:string@1+?~
    topic_config_error_code:int16@5+#0~ num_partitions:int32@5+=-1~
    replication_factor:int16@5+=-1~ configs:[]CreatableTopicConfigs@5+?~
CreatableTopicConfigs =
    name:string@5+ value:string@5+? read_only:bool@5+ config_source:int8@5+=-1~
    is_sensitive:bool@5+

# Remove topics by name or id.
DeleteTopicsRequest (key 20, versions 0-6, flexible 4+) =
    topics:[]DeleteTopicState@6+ topic_names:[]string@0-5~ timeout_ms:int32
DeleteTopicState = name:string@6+?=null topic_id:uuid@6+

DeleteTopicsResponse (key 20, versions 0-6, flexible 4+) =
    throttle_time_ms:int32@1+~ responses:[]DeletableTopicResult
DeletableTopicResult =
    name:string?6+ topic_id:uuid@6+~ error_code:int16 error_message:string@5+?=null~

# Add partitions to topics.
CreatePartitionsRequest (key 37, versions 0-3, flexible 2+) =
    topics:[]CreatePartitionsTopic timeout_ms:int32 validate_only:bool
CreatePartitionsTopic = name:string count:int32 assignments:[]CreatePartitionsAssignment?
CreatePartitionsAssignment = broker_ids:[]int32

CreatePartitionsResponse (key 37, versions 0-3, flexible 2+) =
    throttle_time_ms:int32 results:[]CreatePartitionsTopicResult
CreatePartitionsTopicResult = name:string error_code:int16 error_message:string?=null

# Elect preferred or unclean leaders.
ElectLeadersRequest (key 43, versions 0-2, flexible 2+) =
    election_type:int8@1+ topic_partitions:[]TopicPartitions? timeout_ms:int32=60000
TopicPartitions = topic:string partitions:[]int32

ElectLeadersResponse (key 43, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 error_code:int16@1+ replica_election_results:[]ReplicaElectionResult
ReplicaElectionResult = topic:string partition_result:[]PartitionResult
PartitionResult = partition_id:int32 error_code:int16 error_message:string?

# Move partitions to other brokers, or stop doing so.
AlterPartitionReassignmentsRequest (key 45, versions 0-0, flexible 0+) =
    timeout_ms:int32=60000 topics:[]ReassignableTopic
ReassignableTopic = name:string partitions:[]ReassignablePartition
ReassignablePartition = partition_index:int32 replicas:[]int32?=null

AlterPartitionReassignmentsResponse (key 45, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?
    responses:[]ReassignableTopicResponse
ReassignableTopicResponse = name:string partitions:[]ReassignablePartitionResponse
ReassignablePartitionResponse = partition_index:int32 error_code:int16 error_message:string?

# Moves of partitions under way.
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

__getattr__ = made_at_first_use(SCHEMA, __name__)
