"""Requests for the records and offsets of partitions, answered by the broker that has the log."""
