"""DeleteRecords (key 21): move the start of partitions' logs forward.

Kafka's DeleteRecordsRequest and DeleteRecordsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DeleteRecordsRequest (key 21, versions 0-2, flexible 2+) =
    topics:[]DeleteRecordsTopic timeout_ms:int32
DeleteRecordsTopic = name:string partitions:[]DeleteRecordsPartition
DeleteRecordsPartition = partition_index:int32 offset:int64

DeleteRecordsResponse (key 21, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 topics:[]DeleteRecordsTopicResult
DeleteRecordsTopicResult = name:string partitions:[]DeleteRecordsPartitionResult
DeleteRecordsPartitionResult = partition_index:int32 low_watermark:int64 error_code:int16
"""

DeleteRecordsRequest, DeleteRecordsResponse = load(SCHEMA, __name__)
