"""Metadata (key 3): topics, partitions and brokers as one broker knows them.

Kafka's MetadataRequest and MetadataResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
MetadataRequest (key 3, versions 0-12, flexible 9+) =
    topics:[]MetadataRequestTopic?1+ allow_auto_topic_creation:bool@4+=true
    include_cluster_authorized_operations:bool@8-10 include_topic_authorized_operations:bool@8+
MetadataRequestTopic = topic_id:uuid@10+~ name:string?10+

MetadataResponse (key 3, versions 0-12, flexible 9+) =
    throttle_time_ms:int32@3+~ brokers:[]MetadataResponseBroker cluster_id:string@2+?=null~
    controller_id:int32@1+=-1~ topics:[]MetadataResponseTopic
    cluster_authorized_operations:int32@8-10=-2147483648
MetadataResponseBroker = node_id:int32 host:string port:int32 rack:string@1+?=null~
MetadataResponseTopic =
    error_code:int16 name:string?12+ topic_id:uuid@10+~ is_internal:bool@1+~
    partitions:[]MetadataResponsePartition topic_authorized_operations:int32@8+=-2147483648
MetadataResponsePartition =
    error_code:int16 partition_index:int32 leader_id:int32 leader_epoch:int32@7+=-1~
    replica_nodes:[]int32 isr_nodes:[]int32 offline_replicas:[]int32@5+~
"""

MetadataRequest, MetadataResponse = load(SCHEMA, __name__)
