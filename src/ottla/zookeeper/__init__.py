"""The coordination service: a ZooKeeper session, a ZooKeeper server, Kafka's znodes.

`session` speaks ZooKeeper's protocol on the event loop, one object per session; `memory` is a
server of the same protocol, in memory for tests and the simulator, or over a `database` that keeps
ZooKeeper's files (`txn_log`, `snapshot_file`) for one machine; `znodes` has every path and its
JSON; `store` is what the broker and the controller use: typed, fenced, with retries only where a
lost reply can be distinguished from a lost request; `embedded` starts a server, ours or a real one.
"""
