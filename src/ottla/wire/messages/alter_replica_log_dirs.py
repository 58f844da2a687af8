"""AlterReplicaLogDirs (key 34): move replicas between a broker's log directories.

Kafka's AlterReplicaLogDirsRequest and AlterReplicaLogDirsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
AlterReplicaLogDirsRequest (key 34, versions 0-2, flexible 2+) = dirs:[]AlterReplicaLogDir
AlterReplicaLogDir = path:string topics:[]AlterReplicaLogDirTopic
AlterReplicaLogDirTopic = name:string partitions:[]int32

AlterReplicaLogDirsResponse (key 34, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 results:[]AlterReplicaLogDirTopicResult
AlterReplicaLogDirTopicResult = topic_name:string partitions:[]AlterReplicaLogDirPartitionResult
AlterReplicaLogDirPartitionResult = partition_index:int32 error_code:int16
"""

AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse = load(SCHEMA, __name__)
