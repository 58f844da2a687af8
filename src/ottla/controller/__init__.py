"""Controller: elections, assignments and deletions of the whole cluster, on one elected broker.

Deciders (pure, over values): `states` transition tables, `context` what is known, `elections` who
may lead, `plan` what a decision is, `leadership` plans for many partitions, `isr_changes` validates
AlterPartition, `placement` puts replicas on brokers, `batch` makes requests of state changes.
Procedures (coroutines that handle an event from the first read to the last request):
`state_changes`, `reassignment`, `deletion`, `brokers`, `topics`, `requests`,
`requested_elections`, `failover`, `snapshot`. What they may use of the world: `cluster_state` reads
and writes, `outbox` sends and records. Around them: `loop` one event at a time, `handlers` the
procedure for an event, `term` everything of one controller epoch, `channels` one ordered queue per
broker, `journal` what was decided and why (`journal_schema`).
"""
