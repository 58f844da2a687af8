"""Segment files as rows: `format("ottla-segments")`, for Kafka's folders and ours alike.

Invariants: no broker is asked, nothing is written; a task holds a few MiB of a file at a time,
whatever its size. Files: Kafka's `FileRecords` and `OffsetIndex`, message format v2.
"""
