"""InitProducerId (key 22): a producer id and epoch, with or without a transactional id.

Kafka's InitProducerIdRequest and InitProducerIdResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
InitProducerIdRequest (key 22, versions 0-5, flexible 2+) =
    transactional_id:string? transaction_timeout_ms:int32 producer_id:int64@3+=-1
    producer_epoch:int16@3+=-1

InitProducerIdResponse (key 22, versions 0-5, flexible 2+) =
    throttle_time_ms:int32~ error_code:int16 producer_id:int64=-1 producer_epoch:int16
"""

InitProducerIdRequest, InitProducerIdResponse = load(SCHEMA, __name__)
