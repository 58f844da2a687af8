"""LeaderAndIsr (key 4): the controller tells a broker which partitions it leads or follows.

Kafka's LeaderAndIsrRequest and LeaderAndIsrResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

LeaderAndIsrRequest, LeaderAndIsrResponse = load(SCHEMA, __name__)
