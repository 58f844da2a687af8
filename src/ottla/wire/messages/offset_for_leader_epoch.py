"""OffsetForLeaderEpoch (key 23): where a leader epoch ended in a log.

Kafka's OffsetForLeaderEpochRequest and OffsetForLeaderEpochResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
OffsetForLeaderEpochRequest (key 23, versions 0-4, flexible 4+) =
    replica_id:int32@3+=-2~ topics:[]OffsetForLeaderTopic
OffsetForLeaderTopic = topic:string partitions:[]OffsetForLeaderPartition
OffsetForLeaderPartition = partition:int32 current_leader_epoch:int32@2+=-1~ leader_epoch:int32

OffsetForLeaderEpochResponse (key 23, versions 0-4, flexible 4+) =
    throttle_time_ms:int32@2+~ topics:[]OffsetForLeaderTopicResult
OffsetForLeaderTopicResult = topic:string partitions:[]EpochEndOffset
EpochEndOffset = error_code:int16 partition:int32 leader_epoch:int32@1+=-1~ end_offset:int64=-1
"""

OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse = load(SCHEMA, __name__)
