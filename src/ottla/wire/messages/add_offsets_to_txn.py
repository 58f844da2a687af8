"""AddOffsetsToTxn (key 25): a group whose offsets a transaction will commit.

Kafka's AddOffsetsToTxnRequest and AddOffsetsToTxnResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
AddOffsetsToTxnRequest (key 25, versions 0-4, flexible 3+) =
    transactional_id:string producer_id:int64 producer_epoch:int16 group_id:string

AddOffsetsToTxnResponse (key 25, versions 0-4, flexible 3+) =
    throttle_time_ms:int32 error_code:int16
"""

AddOffsetsToTxnRequest, AddOffsetsToTxnResponse = load(SCHEMA, __name__)
