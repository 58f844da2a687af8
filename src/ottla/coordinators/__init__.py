"""Coordinators of consumer groups and transactions; their state is kept in internal topics.

`groups` decides (members, generations, states), `offsets` decides what a group has committed,
`group_records` is how both stand in `__consumer_offsets`. `coordinator_log` appends to such a
topic and loads a partition when this broker is elected its leader; it knows nothing of groups.
`group_coordinator` is the shell around the three; the broker's handlers call only it.

`transactions` decides who may begin, join and end a transaction, `transaction` is one id's state,
`transaction_records` is how it stands in `__transaction_state`; `transaction_coordinator` is their
shell. `transaction_markers` sends the outcome of transactions to partition leaders;
`transaction_verifier` asks, for a leader, whether a partition belongs to a transaction.
"""
