"""The cluster as clients see it: versions, metadata, log directories."""

from ottla.wire.schema import made_at_first_use

SCHEMA = """
# Which keys and versions a broker serves.
ApiVersionsRequest (key 18, versions 0-4, flexible 3+) =
    client_software_name:string@3+~ client_software_version:string@3+~

ApiVersionsResponse (key 18, versions 0-4, flexible 3+) =
    error_code:int16 api_keys:[]ApiVersion throttle_time_ms:int32@1+~
    supported_features:[]SupportedFeatureKey@3+#0~ finalized_features_epoch:int64@3+#1=-1~
    finalized_features:[]FinalizedFeatureKey@3+#2~ zk_migration_ready:bool@3+#3~
ApiVersion = api_key:int16 min_version:int16 max_version:int16
SupportedFeatureKey = name:string@3+ min_version:int16@3+ max_version:int16@3+
FinalizedFeatureKey = name:string@3+ max_version_level:int16@3+ min_version_level:int16@3+

# Topics, partitions and brokers as one broker knows them.
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

# Brokers, controller and cluster id.
DescribeClusterRequest (key 60, versions 0-1, flexible 0+) =
    include_cluster_authorized_operations:bool endpoint_type:int8@1+=1

DescribeClusterResponse (key 60, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?=null endpoint_type:int8@1+=1
    cluster_id:string controller_id:int32=-1 brokers:[]DescribeClusterBroker
    cluster_authorized_operations:int32=-2147483648
DescribeClusterBroker = broker_id:int32 host:string port:int32 rack:string?=null

# Sizes of replicas per log directory.
DescribeLogDirsRequest (key 35, versions 0-4, flexible 2+) = topics:[]DescribableLogDirTopic?
DescribableLogDirTopic = topic:string partitions:[]int32

DescribeLogDirsResponse (key 35, versions 0-4, flexible 2+) =
    throttle_time_ms:int32 error_code:int16@3+~ results:[]DescribeLogDirsResult
DescribeLogDirsResult =
    error_code:int16 log_dir:string topics:[]DescribeLogDirsTopic total_bytes:int64@4+=-1~
    usable_bytes:int64@4+=-1~
DescribeLogDirsTopic = name:string partitions:[]DescribeLogDirsPartition
DescribeLogDirsPartition =
    partition_index:int32 partition_size:int64 offset_lag:int64 is_future_key:bool

# Move replicas between a broker's log directories.
AlterReplicaLogDirsRequest (key 34, versions 0-2, flexible 2+) = dirs:[]AlterReplicaLogDir
AlterReplicaLogDir = path:string topics:[]AlterReplicaLogDirTopic
AlterReplicaLogDirTopic = name:string partitions:[]int32

AlterReplicaLogDirsResponse (key 34, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 results:[]AlterReplicaLogDirTopicResult
AlterReplicaLogDirTopicResult = topic_name:string partitions:[]AlterReplicaLogDirPartitionResult
AlterReplicaLogDirPartitionResult = partition_index:int32 error_code:int16

# Finalize feature levels.
UpdateFeaturesRequest (key 57, versions 0-1, flexible 0+) =
    timeout_ms:int32=60000 feature_updates:[]FeatureUpdateKey validate_only:bool@1+
FeatureUpdateKey =
    feature:string max_version_level:int16 allow_downgrade:bool@0 upgrade_type:int8@1+=1

UpdateFeaturesResponse (key 57, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?
    results:[]UpdatableFeatureResult
UpdatableFeatureResult = feature:string error_code:int16 error_message:string?
"""

__getattr__ = made_at_first_use(SCHEMA, __name__)
