"""StopReplica (key 5): the controller tells a broker to stop replicas, or to delete them.

Kafka's StopReplicaRequest and StopReplicaResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
StopReplicaRequest (key 5, versions 0-4, flexible 2+) =
    controller_id:int32 is_kraft_controller:bool@4+ controller_epoch:int32
    broker_epoch:int64@1+=-1~ delete_partitions:bool@0-2
    ungrouped_partitions:[]StopReplicaPartitionV0@0 topics:[]StopReplicaTopicV1@1-2
    topic_states:[]StopReplicaTopicState@3+
StopReplicaPartitionV0 = topic_name:string@0 partition_index:int32@0
StopReplicaTopicV1 = name:string@1-2 partition_indexes:[]int32@1-2
StopReplicaTopicState = topic_name:string@3+ partition_states:[]StopReplicaPartitionState@3+
StopReplicaPartitionState =
    partition_index:int32@3+ leader_epoch:int32@3+=-1 delete_partition:bool@3+

StopReplicaResponse (key 5, versions 0-4, flexible 2+) =
    error_code:int16 partition_errors:[]StopReplicaPartitionError
StopReplicaPartitionError = topic_name:string partition_index:int32 error_code:int16
"""

StopReplicaRequest, StopReplicaResponse = load(SCHEMA, __name__)
