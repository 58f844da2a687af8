"""WriteTxnMarkers (key 27): a coordinator has commit or abort markers appended.

Kafka's WriteTxnMarkersRequest and WriteTxnMarkersResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
WriteTxnMarkersRequest (key 27, versions 0-1, flexible 1+) = markers:[]WritableTxnMarker
WritableTxnMarker =
    producer_id:int64 producer_epoch:int16 transaction_result:bool
    topics:[]WritableTxnMarkerTopic coordinator_epoch:int32
WritableTxnMarkerTopic = name:string partition_indexes:[]int32

WriteTxnMarkersResponse (key 27, versions 0-1, flexible 1+) = markers:[]WritableTxnMarkerResult
WritableTxnMarkerResult = producer_id:int64 topics:[]WritableTxnMarkerTopicResult
WritableTxnMarkerTopicResult = name:string partitions:[]WritableTxnMarkerPartitionResult
WritableTxnMarkerPartitionResult = partition_index:int32 error_code:int16
"""

WriteTxnMarkersRequest, WriteTxnMarkersResponse = load(SCHEMA, __name__)
