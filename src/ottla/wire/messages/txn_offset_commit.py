"""TxnOffsetCommit (key 28): a group's offsets, as part of a transaction.

Kafka's TxnOffsetCommitRequest and TxnOffsetCommitResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
TxnOffsetCommitRequest (key 28, versions 0-4, flexible 3+) =
    transactional_id:string group_id:string producer_id:int64 producer_epoch:int16
    generation_id:int32@3+=-1 member_id:string@3+ group_instance_id:string@3+?=null
    topics:[]TxnOffsetCommitRequestTopic
TxnOffsetCommitRequestTopic = name:string partitions:[]TxnOffsetCommitRequestPartition
TxnOffsetCommitRequestPartition =
    partition_index:int32 committed_offset:int64 committed_leader_epoch:int32@2+=-1~
    committed_metadata:string?

TxnOffsetCommitResponse (key 28, versions 0-4, flexible 3+) =
    throttle_time_ms:int32 topics:[]TxnOffsetCommitResponseTopic
TxnOffsetCommitResponseTopic = name:string partitions:[]TxnOffsetCommitResponsePartition
TxnOffsetCommitResponsePartition = partition_index:int32 error_code:int16
"""

TxnOffsetCommitRequest, TxnOffsetCommitResponse = load(SCHEMA, __name__)
