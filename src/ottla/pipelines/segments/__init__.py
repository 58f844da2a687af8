"""Segment files as rows: `format("ottla-segments")`, for Kafka's folders and ours alike.

Who may call: the jobs of this room; Spark, through the package `pyspark_ottla_segments`.
Invariants: no broker is asked, nothing is written; a task holds a few MiB of a file at a time,
whatever its size. Files: Kafka's `FileRecords` and `OffsetIndex`, message format v2.
"""
