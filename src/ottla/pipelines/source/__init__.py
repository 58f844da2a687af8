"""`format("ottla")`: topics as rows, read by Python over Kafka's protocol; batch and streaming.

`pyspark_ottla` offers it to Spark, which finds it by that name. The rows are those of Spark's own
Kafka connector, the options bear its names, and no jar is needed. From the outside in:
`data_source` (what Spark calls), `batch` and `streaming` (planning on the driver), `scan` (a task),
`fetching` (one partition from its leaders), `cluster` (asking for topics and offsets); `options`,
`offsets`, `ranges` and `filters` decide, and touch nothing.
"""
