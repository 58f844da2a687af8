"""CreatePartitions (key 37): add partitions to topics.

Kafka's CreatePartitionsRequest and CreatePartitionsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
CreatePartitionsRequest (key 37, versions 0-3, flexible 2+) =
    topics:[]CreatePartitionsTopic timeout_ms:int32 validate_only:bool
CreatePartitionsTopic = name:string count:int32 assignments:[]CreatePartitionsAssignment?
CreatePartitionsAssignment = broker_ids:[]int32

CreatePartitionsResponse (key 37, versions 0-3, flexible 2+) =
    throttle_time_ms:int32 results:[]CreatePartitionsTopicResult
CreatePartitionsTopicResult = name:string error_code:int16 error_message:string?=null
"""

CreatePartitionsRequest, CreatePartitionsResponse = load(SCHEMA, __name__)
