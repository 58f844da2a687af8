"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids.

Kafka's AllocateProducerIdsRequest and AllocateProducerIdsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
AllocateProducerIdsRequest (key 67, versions 0-0, flexible 0+) =
    broker_id:int32 broker_epoch:int64=-1

AllocateProducerIdsResponse (key 67, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 producer_id_start:int64 producer_id_len:int32
"""

AllocateProducerIdsRequest, AllocateProducerIdsResponse = load(SCHEMA, __name__)
