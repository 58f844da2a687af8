"""The coordination service: our own ZooKeeper session, its in-memory twin, Kafka's znodes.

`session` speaks ZooKeeper's protocol on the event loop, one object per session generation;
`memory` is the other end of the same wire, for tests and the simulator; `znodes` knows every
path and its JSON; `store` is what the broker and the controller use: typed, fenced, with
retries only where a lost reply can be told from a lost request; `embedded` starts a real one.
"""
