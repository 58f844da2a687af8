"""A project for Spark's declarative pipelines (`spark-pipelines run`), which users copy and change.

`project/` is what `ottla pipeline init` copies; nothing here imports it. `cluster_offsets` is what
its files ask the cluster by.
"""
