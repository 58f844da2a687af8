"""Controller: the cluster's one mind.

Deciders (pure, over values): `states` transition tables, `context` what is known, `elections` who
may lead, `plan` what a decision is, `leadership` plans for many partitions, `isr_changes` judges
AlterPartition, `placement` puts replicas on brokers, `batch` turns moves into requests. Shells
around them: `term` one term of office, `moves` read-decide-write-settle-tell, `channels` one
ordered queue per broker, `journal` what was decided and why, `loop` one event at a time.
"""
