"""Client: a cluster seen from outside, for tools, jobs and tests.

One connection to each broker (`client`), records out (`consumer`, `group_consumer`) and in
(`producer`, `transactional_producer`), and what Kafka's admin client does: topics, settings,
groups, users, ACLs, log dirs, offsets, elections, reassignments and their throttles. Works with any
Kafka. Nothing here parses what people type, or prints.
"""
