"""EndTxn (key 26): commit or abort a transaction.

Kafka's EndTxnRequest and EndTxnResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
EndTxnRequest (key 26, versions 0-4, flexible 3+) =
    transactional_id:string producer_id:int64 producer_epoch:int16 committed:bool

EndTxnResponse (key 26, versions 0-4, flexible 3+) = throttle_time_ms:int32 error_code:int16
"""

EndTxnRequest, EndTxnResponse = load(SCHEMA, __name__)
