"""Operations: what a command does to a cluster, over `client`.

Invariants: works against any Kafka; returns values and raises `OttlaError`; progress of long work
goes to standard error.
"""
