"""Drill: after a failover drill, one page per partition that joins what the other jobs find.

`acks` reads what was acknowledged to producers, `reasons` what the controllers' journals say of
each election, `runs` which offsets each replica holds, `cells` judges offsets by these, `joining`
makes one report of a partition; `job` runs all of it on Spark, `outputs` and `page` write it. Kafka
has no such tool.
"""
