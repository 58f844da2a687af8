"""StreamsGroupDescribe (key 89): state, topology and members of Kafka Streams' groups.

Kafka's StreamsGroupDescribeRequest and StreamsGroupDescribeResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

StreamsGroupDescribeRequest, StreamsGroupDescribeResponse = load(SCHEMA, __name__)
