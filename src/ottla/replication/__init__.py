"""Replication: partitions on this broker, their leaders, their followers, and what waits on them.

The deciders (`isr`, `partition_state`, `truncation`, `fetch_session`) hold the rules.
`partition` is one replica and is synchronous: an append and its high-watermark move are one step.
`replica_manager` owns the partitions, `fetcher` follows other leaders, `purgatory` keeps the
responses that must wait, `alter_partition` carries ISR changes to the controller.
The broker's handlers call in; nothing here calls up.
"""
