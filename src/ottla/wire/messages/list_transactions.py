"""ListTransactions (key 66): the transactions a broker coordinates.

Kafka's ListTransactionsRequest and ListTransactionsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ListTransactionsRequest (key 66, versions 0-1, flexible 0+) =
    state_filters:[]string producer_id_filters:[]int64 duration_filter:int64@1+=-1

ListTransactionsResponse (key 66, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 unknown_state_filters:[]string
    transaction_states:[]TransactionState
TransactionState = transactional_id:string producer_id:int64 transaction_state:string
"""

ListTransactionsRequest, ListTransactionsResponse = load(SCHEMA, __name__)
