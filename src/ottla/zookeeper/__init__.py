"""The coordination service: a ZooKeeper session, an in-memory ZooKeeper, Kafka's znodes.

`session` speaks ZooKeeper's protocol on the event loop, one object per session; `memory` is a
server of the same protocol, for tests and the simulator; `znodes` has every path and its JSON;
`store` is what the broker and the controller use: typed, fenced, with retries only where a lost
reply can be distinguished from a lost request; `embedded` starts a real server.
"""
