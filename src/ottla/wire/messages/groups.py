"""Groups: their coordinator, members and offsets, and what is kept of them.

Of the groups of KIP-848 and later (consumer, share, streams) tools ask other brokers; ours refuse.
"""

from ottla.wire.schema import made_at_first_use

SCHEMA = """
# Which broker coordinates a group or a transactional id.
FindCoordinatorRequest (key 10, versions 0-6, flexible 3+) =
    key:string@0-3 key_type:int8@1+ coordinator_keys:[]string@4+

FindCoordinatorResponse (key 10, versions 0-6, flexible 3+) =
    throttle_time_ms:int32@1+~ error_code:int16@0-3 error_message:string@1-3?~ node_id:int32@0-3
    host:string@0-3 port:int32@0-3 coordinators:[]Coordinator@4+
Coordinator =
    key:string@4+ node_id:int32@4+ host:string@4+ port:int32@4+ error_code:int16@4+
    error_message:string@4+?~

# A member enters a group's rebalance.
JoinGroupRequest (key 11, versions 0-9, flexible 6+) =
    group_id:string session_timeout_ms:int32 rebalance_timeout_ms:int32@1+=-1~ member_id:string
    group_instance_id:string@5+?=null protocol_type:string protocols:[]JoinGroupRequestProtocol
    reason:string@8+?=null~
JoinGroupRequestProtocol = name:string metadata:bytes

JoinGroupResponse (key 11, versions 0-9, flexible 6+) =
    throttle_time_ms:int32@2+~ error_code:int16 generation_id:int32=-1
    protocol_type:string@7+?=null~ protocol_name:string?7+ leader:string skip_assignment:bool@9+
    member_id:string members:[]JoinGroupResponseMember
JoinGroupResponseMember = member_id:string group_instance_id:string@5+?=null~ metadata:bytes

# The leader hands out assignments, members receive theirs.
SyncGroupRequest (key 14, versions 0-5, flexible 4+) =
    group_id:string generation_id:int32 member_id:string group_instance_id:string@3+?=null
    protocol_type:string@5+?=null~ protocol_name:string@5+?=null~
    assignments:[]SyncGroupRequestAssignment
SyncGroupRequestAssignment = member_id:string assignment:bytes

SyncGroupResponse (key 14, versions 0-5, flexible 4+) =
    throttle_time_ms:int32@1+~ error_code:int16 protocol_type:string@5+?=null~
    protocol_name:string@5+?=null~ assignment:bytes

# A member says it is alive and learns of rebalances.
HeartbeatRequest (key 12, versions 0-4, flexible 4+) =
    group_id:string generation_id:int32 member_id:string group_instance_id:string@3+?=null

HeartbeatResponse (key 12, versions 0-4, flexible 4+) = throttle_time_ms:int32@1+~ error_code:int16

# Members leave a group.
LeaveGroupRequest (key 13, versions 0-5, flexible 4+) =
    group_id:string member_id:string@0-2 members:[]MemberIdentity@3+
MemberIdentity = member_id:string@3+ group_instance_id:string@3+?=null reason:string@5+?=null~

LeaveGroupResponse (key 13, versions 0-5, flexible 4+) =
    throttle_time_ms:int32@1+~ error_code:int16 members:[]MemberResponse@3+
MemberResponse = member_id:string@3+ group_instance_id:string@3+? error_code:int16@3+

# State and members of classic groups.
DescribeGroupsRequest (key 15, versions 0-5, flexible 5+) =
    groups:[]string include_authorized_operations:bool@3+

DescribeGroupsResponse (key 15, versions 0-5, flexible 5+) =
    throttle_time_ms:int32@1+~ groups:[]DescribedGroup
DescribedGroup =
    error_code:int16 group_id:string group_state:string protocol_type:string
    protocol_data:string members:[]DescribedGroupMember
    authorized_operations:int32@3+=-2147483648
DescribedGroupMember =
    member_id:string group_instance_id:string@4+?=null~ client_id:string client_host:string
    member_metadata:bytes member_assignment:bytes

# The groups a broker coordinates.
ListGroupsRequest (key 16, versions 0-5, flexible 3+) =
    states_filter:[]string@4+ types_filter:[]string@5+

ListGroupsResponse (key 16, versions 0-5, flexible 3+) =
    throttle_time_ms:int32@1+~ error_code:int16 groups:[]ListedGroup
ListedGroup = group_id:string protocol_type:string group_state:string@4+~ group_type:string@5+~

# Remove empty groups.
DeleteGroupsRequest (key 42, versions 0-2, flexible 2+) = groups_names:[]string

DeleteGroupsResponse (key 42, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 results:[]DeletableGroupResult
DeletableGroupResult = group_id:string error_code:int16

# A group's progress, written down.
OffsetCommitRequest (key 8, versions 0-9, flexible 8+) =
    group_id:string generation_id_or_member_epoch:int32@1+=-1~ member_id:string@1+~
    group_instance_id:string@7+?=null retention_time_ms:int64@2-4=-1~
    topics:[]OffsetCommitRequestTopic
OffsetCommitRequestTopic = name:string partitions:[]OffsetCommitRequestPartition
OffsetCommitRequestPartition =
    partition_index:int32 committed_offset:int64 committed_leader_epoch:int32@6+=-1~
    commit_timestamp:int64@1=-1 committed_metadata:string?

OffsetCommitResponse (key 8, versions 0-9, flexible 8+) =
    throttle_time_ms:int32@3+~ topics:[]OffsetCommitResponseTopic
OffsetCommitResponseTopic = name:string partitions:[]OffsetCommitResponsePartition
OffsetCommitResponsePartition = partition_index:int32 error_code:int16

# A group's progress, read back.
OffsetFetchRequest (key 9, versions 0-9, flexible 6+) =
    group_id:string@0-7 topics:[]OffsetFetchRequestTopic@0-7?2-7
    groups:[]OffsetFetchRequestGroup@8+ require_stable:bool@7+
OffsetFetchRequestTopic = name:string@0-7 partition_indexes:[]int32@0-7
OffsetFetchRequestGroup =
    group_id:string@8+ member_id:string@9+?=null~ member_epoch:int32@9+=-1~
    topics:[]OffsetFetchRequestTopics@8+?
OffsetFetchRequestTopics = name:string@8+ partition_indexes:[]int32@8+

OffsetFetchResponse (key 9, versions 0-9, flexible 6+) =
    throttle_time_ms:int32@3+~ topics:[]OffsetFetchResponseTopic@0-7 error_code:int16@2-7~
    groups:[]OffsetFetchResponseGroup@8+
OffsetFetchResponseTopic = name:string@0-7 partitions:[]OffsetFetchResponsePartition@0-7
OffsetFetchResponsePartition =
    partition_index:int32@0-7 committed_offset:int64@0-7 committed_leader_epoch:int32@5-7=-1~
    metadata:string@0-7? error_code:int16@0-7
OffsetFetchResponseGroup =
    group_id:string@8+ topics:[]OffsetFetchResponseTopics@8+ error_code:int16@8+
OffsetFetchResponseTopics = name:string@8+ partitions:[]OffsetFetchResponsePartitions@8+
OffsetFetchResponsePartitions =
    partition_index:int32@8+ committed_offset:int64@8+ committed_leader_epoch:int32@8+=-1~
    metadata:string@8+? error_code:int16@8+

# Forget a group's offsets of some partitions.
OffsetDeleteRequest (key 47, versions 0-0) = group_id:string topics:[]OffsetDeleteRequestTopic
OffsetDeleteRequestTopic = name:string partitions:[]OffsetDeleteRequestPartition
OffsetDeleteRequestPartition = partition_index:int32

OffsetDeleteResponse (key 47, versions 0-0) =
    error_code:int16 throttle_time_ms:int32~ topics:[]OffsetDeleteResponseTopic
OffsetDeleteResponseTopic = name:string partitions:[]OffsetDeleteResponsePartition
OffsetDeleteResponsePartition = partition_index:int32 error_code:int16

# A member of a new-style group reports and gets its assignment.
ConsumerGroupHeartbeatRequest (key 68, versions 0-1, flexible 0+) =
    group_id:string member_id:string member_epoch:int32 instance_id:string?=null
    rack_id:string?=null rebalance_timeout_ms:int32=-1 subscribed_topic_names:[]string?=null
    subscribed_topic_regex:string@1+?=null server_assignor:string?=null
    topic_partitions:[]TopicPartitions?=null
TopicPartitions = topic_id:uuid partitions:[]int32

ConsumerGroupHeartbeatResponse (key 68, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?=null member_id:string?=null
    member_epoch:int32 heartbeat_interval_ms:int32 assignment:Assignment?=null
Assignment = topic_partitions:[]TopicPartitions
TopicPartitions = topic_id:uuid partitions:[]int32

# State and members of new-style groups.
ConsumerGroupDescribeRequest (key 69, versions 0-0, flexible 0+) =
    group_ids:[]string include_authorized_operations:bool

ConsumerGroupDescribeResponse (key 69, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 groups:[]DescribedGroup
DescribedGroup =
    error_code:int16 error_message:string?=null group_id:string group_state:string
    group_epoch:int32 assignment_epoch:int32 assignor_name:string members:[]Member
    authorized_operations:int32=-2147483648
Member =
    member_id:string instance_id:string?=null rack_id:string?=null member_epoch:int32
    client_id:string client_host:string subscribed_topic_names:[]string
    subscribed_topic_regex:string?=null assignment:Assignment target_assignment:Assignment
TopicPartitions = topic_id:uuid topic_name:string partitions:[]int32
Assignment = topic_partitions:[]TopicPartitions

# A member of a share group reports and gets its assignment.
ShareGroupHeartbeatRequest (key 76, versions 1-1, flexible 0+) =
    group_id:string member_id:string member_epoch:int32 rack_id:string?=null
    subscribed_topic_names:[]string?=null

ShareGroupHeartbeatResponse (key 76, versions 1-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?=null member_id:string?=null
    member_epoch:int32 heartbeat_interval_ms:int32 assignment:Assignment?=null
Assignment = topic_partitions:[]TopicPartitions
TopicPartitions = topic_id:uuid partitions:[]int32

# State and members of share groups.
ShareGroupDescribeRequest (key 77, versions 1-1, flexible 0+) =
    group_ids:[]string include_authorized_operations:bool

ShareGroupDescribeResponse (key 77, versions 1-1, flexible 0+) =
    throttle_time_ms:int32 groups:[]DescribedGroup
DescribedGroup =
    error_code:int16 error_message:string?=null group_id:string group_state:string
    group_epoch:int32 assignment_epoch:int32 assignor_name:string members:[]Member
    authorized_operations:int32=-2147483648
Member =
    member_id:string rack_id:string?=null member_epoch:int32 client_id:string client_host:string
    subscribed_topic_names:[]string assignment:Assignment
TopicPartitions = topic_id:uuid topic_name:string partitions:[]int32
Assignment = topic_partitions:[]TopicPartitions

# From where on share groups still have records to deliver.
DescribeShareGroupOffsetsRequest (key 90, versions 0-1, flexible 0+) =
    groups:[]Group
Group =
    group_id:string topics:[]Topic?
Topic = topic_name:string partitions:[]int32

DescribeShareGroupOffsetsResponse (key 90, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 groups:[]Group
Group =
    group_id:string topics:[]Topic error_code:int16
    error_message:string?=null
Topic =
    topic_name:string topic_id:uuid partitions:[]Partition
Partition =
    partition_index:int32 start_offset:int64 leader_epoch:int32 lag:int64@1+=-1~
    error_code:int16 error_message:string?=null

# State, topology and members of Kafka Streams' groups.
StreamsGroupDescribeRequest (key 89, versions 0-0, flexible 0+) =
    group_ids:[]string include_authorized_operations:bool

StreamsGroupDescribeResponse (key 89, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 groups:[]DescribedGroup
DescribedGroup =
    error_code:int16 error_message:string?=null group_id:string group_state:string
    group_epoch:int32 assignment_epoch:int32 topology:Topology?=null members:[]Member
    authorized_operations:int32=-2147483648
Topology = epoch:int32 subtopologies:[]Subtopology?=null
Subtopology =
    subtopology_id:string source_topics:[]string repartition_sink_topics:[]string
    state_changelog_topics:[]TopicInfo repartition_source_topics:[]TopicInfo
Member =
    member_id:string member_epoch:int32 instance_id:string?=null rack_id:string?=null
    client_id:string client_host:string topology_epoch:int32 process_id:string
    user_endpoint:Endpoint?=null client_tags:[]KeyValue task_offsets:[]TaskOffset
    task_end_offsets:[]TaskOffset assignment:Assignment target_assignment:Assignment
    is_classic:bool
Endpoint = host:string port:uint16
TaskOffset = subtopology_id:string partition:int32 offset:int64
Assignment = active_tasks:[]TaskIds standby_tasks:[]TaskIds warmup_tasks:[]TaskIds
TaskIds = subtopology_id:string partitions:[]int32
KeyValue = key:string value:string
TopicInfo = name:string partitions:int32 replication_factor:int16 topic_configs:[]KeyValue

# What consumers tell each other through their group: subscriptions and assignments.
# Opaque to brokers; tools read them. An int16 version stands before each.
ConsumerProtocolSubscription (key -1, versions 0-3) =
    topics:[]string user_data:bytes?=null owned_partitions:[]TopicPartition@1+~
    generation_id:int32@2+=-1~ rack_id:string@3+?=null~
TopicPartition = topic:string@1+ partitions:[]int32@1+

ConsumerProtocolAssignment (key -1, versions 0-3) =
    assigned_partitions:[]TopicPartition user_data:bytes?=null
TopicPartition = topic:string partitions:[]int32

# What a coordinator keeps in __consumer_offsets. An int16 version stands before each; it also says
# which key it is (0 and 1 an offset, 2 a group).
OffsetCommitKey (key -1, versions 0-1) = group:string topic:string partition:int32

OffsetCommitValue (key -1, versions 0-4, flexible 4+) =
    offset:int64 leader_epoch:int32@3+=-1~ metadata:string commit_timestamp:int64
    expire_timestamp:int64@1=-1~

GroupMetadataKey (key -1, versions 2-2) = group:string

GroupMetadataValue (key -1, versions 0-4, flexible 4+) =
    protocol_type:string generation:int32 protocol:string? leader:string?
    current_state_timestamp:int64@2+=-1~ members:[]MemberMetadata
MemberMetadata =
    member_id:string group_instance_id:string@3+?=null~ client_id:string client_host:string
    rebalance_timeout:int32@1+=-1~ session_timeout:int32 subscription:bytes assignment:bytes
"""

__getattr__ = made_at_first_use(SCHEMA, __name__)
