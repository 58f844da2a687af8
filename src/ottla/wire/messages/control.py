"""Between the controller and its brokers."""

from ottla.wire.schema import made_at_first_use

SCHEMA = """
# The controller tells a broker which partitions it leads or follows.
LeaderAndIsrRequest (key 4, versions 0-7, flexible 4+) =
    controller_id:int32 is_kraft_controller:bool@7+ controller_epoch:int32
    broker_epoch:int64@2+=-1~ type:int8@5+
    ungrouped_partition_states:[]LeaderAndIsrPartitionState@0-1
    topic_states:[]LeaderAndIsrTopicState@2+ live_leaders:[]LeaderAndIsrLiveLeader
LeaderAndIsrTopicState =
    topic_name:string@2+ topic_id:uuid@5+~ partition_states:[]LeaderAndIsrPartitionState@2+
LeaderAndIsrLiveLeader = broker_id:int32 host_name:string port:int32
LeaderAndIsrPartitionState =
    topic_name:string@0-1~ partition_index:int32 controller_epoch:int32 leader:int32
    leader_epoch:int32 isr:[]int32 partition_epoch:int32 replicas:[]int32
    adding_replicas:[]int32@3+~ removing_replicas:[]int32@3+~ is_new:bool@1+~
    leader_recovery_state:int8@6+

LeaderAndIsrResponse (key 4, versions 0-7, flexible 4+) =
    error_code:int16 partition_errors:[]LeaderAndIsrPartitionError@0-4
    topics:[]LeaderAndIsrTopicError@5+
LeaderAndIsrTopicError = topic_id:uuid@5+ partition_errors:[]LeaderAndIsrPartitionError@5+
LeaderAndIsrPartitionError = topic_name:string@0-4~ partition_index:int32 error_code:int16

# The controller tells a broker to stop replicas, or to delete them.
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

# The controller tells every broker about partitions and brokers.
UpdateMetadataRequest (key 6, versions 0-8, flexible 6+) =
    controller_id:int32 is_kraft_controller:bool@8+ type:int8@8+#0 controller_epoch:int32
    broker_epoch:int64@5+=-1~ ungrouped_partition_states:[]UpdateMetadataPartitionState@0-4
    topic_states:[]UpdateMetadataTopicState@5+ live_brokers:[]UpdateMetadataBroker
UpdateMetadataTopicState =
    topic_name:string@5+ topic_id:uuid@7+~ partition_states:[]UpdateMetadataPartitionState@5+
UpdateMetadataBroker =
    id:int32 v0_host:string@0~ v0_port:int32@0~ endpoints:[]UpdateMetadataEndpoint@1+~
    rack:string@2+?~
UpdateMetadataEndpoint = port:int32@1+ host:string@1+ listener:string@3+~ security_protocol:int16@1+
UpdateMetadataPartitionState =
    topic_name:string@0-4~ partition_index:int32 controller_epoch:int32 leader:int32
    leader_epoch:int32 isr:[]int32 zk_version:int32 replicas:[]int32
    offline_replicas:[]int32@4+~

UpdateMetadataResponse (key 6, versions 0-8, flexible 6+) = error_code:int16

# A broker asks the controller to move its leaders away.
ControlledShutdownRequest (key 7, versions 0-3, flexible 3+) =
    broker_id:int32 broker_epoch:int64@2+=-1~

ControlledShutdownResponse (key 7, versions 0-3, flexible 3+) =
    error_code:int16 remaining_partitions:[]RemainingPartition
RemainingPartition = topic_name:string partition_index:int32

# A leader asks the controller to change an ISR.
AlterPartitionRequest (key 56, versions 0-3, flexible 0+) =
    broker_id:int32 broker_epoch:int64=-1 topics:[]TopicData
TopicData = topic_name:string@0-1~ topic_id:uuid@2+~ partitions:[]PartitionData
PartitionData =
    partition_index:int32 leader_epoch:int32 new_isr:[]int32@0-2
    new_isr_with_epochs:[]BrokerState@3+ leader_recovery_state:int8@1+ partition_epoch:int32
BrokerState = broker_id:int32@3+ broker_epoch:int64@3+=-1

AlterPartitionResponse (key 56, versions 0-3, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 topics:[]TopicData
TopicData = topic_name:string@0-1~ topic_id:uuid@2+~ partitions:[]PartitionData
PartitionData =
    partition_index:int32 error_code:int16 leader_id:int32 leader_epoch:int32 isr:[]int32
    leader_recovery_state:int8@1+~ partition_epoch:int32

# A broker asks the controller for a block of producer ids.
AllocateProducerIdsRequest (key 67, versions 0-0, flexible 0+) =
    broker_id:int32 broker_epoch:int64=-1

AllocateProducerIdsResponse (key 67, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 producer_id_start:int64 producer_id_len:int32

# A request forwarded to the controller with its sender's principal.
EnvelopeRequest (key 58, versions 0-0, flexible 0+) =
    request_data:bytes request_principal:bytes? client_host_address:bytes

EnvelopeResponse (key 58, versions 0-0, flexible 0+) = response_data:bytes?=null error_code:int16
"""

__getattr__ = made_at_first_use(SCHEMA, __name__)
