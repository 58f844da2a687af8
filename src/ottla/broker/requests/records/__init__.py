"""Requests for the records and offsets of partitions, answered by whoever has the log."""
