"""Pipelines: Spark jobs around a Kafka-compatible cluster; the only room that imports pyspark.

A job is a function of a session and of values; `session.py` makes the session, with Spark's own
Kafka connector beside it. Jobs know brokers by their addresses alone, so each works against any
Kafka. Other rooms start them as a process of their own (`python -m ottla.pipelines.lake`).
"""
