"""UpdateMetadata (key 6): the controller tells every broker about partitions and brokers.

Kafka's UpdateMetadataRequest and UpdateMetadataResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

UpdateMetadataRequest, UpdateMetadataResponse = load(SCHEMA, __name__)
