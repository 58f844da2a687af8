"""Replicas compared: what the files of all brokers hold, partition by partition, offset by offset.

Invariants: nothing is written; what a running cluster says (high watermarks, ISR) is asked before
files are listed, so that every replica in sync has at least that much. Kafka:
`ReplicaVerificationTool` asks brokers, `DumpLogSegments` reads one file; this reads all files.
"""
