"""AlterPartition (key 56): a leader asks the controller to change an ISR.

Kafka's AlterPartitionRequest and AlterPartitionResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

AlterPartitionRequest, AlterPartitionResponse = load(SCHEMA, __name__)
