"""ControlledShutdown (key 7): a broker asks the controller to move its leaders away.

Kafka's ControlledShutdownRequest and ControlledShutdownResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ControlledShutdownRequest (key 7, versions 0-3, flexible 3+) =
    broker_id:int32 broker_epoch:int64@2+=-1~

ControlledShutdownResponse (key 7, versions 0-3, flexible 3+) =
    error_code:int16 remaining_partitions:[]RemainingPartition
RemainingPartition = topic_name:string partition_index:int32
"""

ControlledShutdownRequest, ControlledShutdownResponse = load(SCHEMA, __name__)
