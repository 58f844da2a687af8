"""Coordinators of consumer groups and transactions; their state is kept in internal topics.

Each has a decider, with a method for each event, and a shell, which has the log, the clock and the
event loop. The shell is the decider's port. `requests` has what comes in and goes out, as values.

`groups` decides (members, generations, states), `offsets` holds what a group has committed,
`group_records` encodes both as records of `__consumer_offsets`. `coordinator_log` appends to such a
topic and loads a partition when this broker is elected its leader; it knows nothing of groups.
`group_coordinator` is the shell around the three; the broker's handlers call only it.

`transactions` decides who may begin, join and end a transaction, `transaction` is one id's state,
`transaction_records` encodes it as records of `__transaction_state`; `transaction_coordinator` is
the shell. `transaction_markers` sends the outcome of transactions to partition leaders;
`transaction_verifier` asks, for a leader, whether a partition belongs to a transaction.
"""
