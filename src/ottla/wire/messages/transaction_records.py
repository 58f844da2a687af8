"""What a coordinator keeps in `__transaction_state`: transactions and their partitions.

In a record an int16 version stands before each. Kafka's TransactionLogKey and TransactionLogValue.
"""

from ottla.wire.schema import load

SCHEMA = """
TransactionLogKey (key -1, versions 0-0) = transactional_id:string

TransactionLogValue (key -1, versions 0-1, flexible 1+) =
    producer_id:int64 producer_epoch:int16 transaction_timeout_ms:int32 transaction_status:int8
    transaction_partitions:[]PartitionsSchema? transaction_last_update_timestamp_ms:int64
    transaction_start_timestamp_ms:int64
PartitionsSchema = topic:string partition_ids:[]int32
"""

TransactionLogKey, TransactionLogValue = load(SCHEMA, __name__)
