"""Coordinators: what keeps its state in an internal topic. Consumer groups and transactions.

`groups` decides (members, generations, states), `offsets` decides what a group has committed,
`group_records` is how both stand in `__consumer_offsets`. `state_log` appends to such a topic and
reads it back when leadership of a partition comes; it knows nothing of groups. `group_coordinator`
is the shell that joins the three; the broker's handlers talk to it alone.

`transactions` decides who may begin, join and end a transaction, `transaction` is one id's state,
`transaction_records` is how it stands in `__transaction_state`; `transaction_coordinator` is their
shell. `transaction_markers` tells leaders how transactions ended, `transaction_verifier` asks for
leaders whether a partition belongs to one.
"""
