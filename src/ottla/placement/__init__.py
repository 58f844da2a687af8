"""Placement: which brokers a partition's replicas are on, and what plans to move them come to.

Kafka's assignment of new partitions (`assignment`), an even spread (`spread`), plans in Kafka's
JSON formats (`plans`), what an election would lose, how long copies take. Pure: plain values in,
plain values out; nothing here asks a cluster.
"""
