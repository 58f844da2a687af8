"""CreateTopics (key 19): new topics, with assignment or counts.

Kafka's CreateTopicsRequest and CreateTopicsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

CreateTopicsRequest, CreateTopicsResponse = load(SCHEMA, __name__)
