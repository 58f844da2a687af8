"""Controller: elections, assignments and deletions of the whole cluster, on one elected broker.

Deciders (pure, over values): `states` transition tables, `context` what is known, `elections` who
may lead, `plan` what a decision is, `leadership` plans for many partitions, `isr_changes` validates
AlterPartition, `placement` puts replicas on brokers, `batch` makes requests of state changes.
Procedures (generators that yield `effects`): `state_changes`, `reassignment`, `deletion`,
`brokers`, `topics`, `requests`, `requested_elections`, `failover`, `snapshot`. Shells around them:
`loop` one event at a time, `handlers` read what an event is about, `driver` performs effects,
`term` everything of one controller epoch, `channels` one ordered queue per broker, `journal` what
was decided and why (`journal_schema`).
"""
