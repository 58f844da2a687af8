"""DescribeTransactions (key 65): state of transactions by id.

Kafka's DescribeTransactionsRequest and DescribeTransactionsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeTransactionsRequest (key 65, versions 0-0, flexible 0+) = transactional_ids:[]string

DescribeTransactionsResponse (key 65, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 transaction_states:[]TransactionState
TransactionState =
    error_code:int16 transactional_id:string transaction_state:string
    transaction_timeout_ms:int32 transaction_start_time_ms:int64 producer_id:int64
    producer_epoch:int16 topics:[]TopicData
TopicData = topic:string partitions:[]int32
"""

DescribeTransactionsRequest, DescribeTransactionsResponse = load(SCHEMA, __name__)
