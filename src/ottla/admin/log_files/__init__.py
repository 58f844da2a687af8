"""Files of a log, read without a broker and without Java: `ottla dump-log`.

Invariants: nothing is written; damage is reported with its place and never ends the reading of
another file; the lines are those of Kafka's `DumpLogSegments`.
"""
