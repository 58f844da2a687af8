"""Operations: what commands share: records, files and values as people write and read them.

And what takes more than a client: the status of a cluster with its processes, draining a broker
with a way back. Invariants: works against any Kafka; returns values and raises `OttlaError`.
"""
