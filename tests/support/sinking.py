"""A stream from one topic through Spark into another, as a process that can be killed.

    python tests/support/sinking.py BOOTSTRAP SOURCE TARGET CHECKPOINT OFFSETS_PER_BATCH [MASTER]

Values become "copy of VALUE". Ends when all that was there is copied; prints how many micro-batches
there were.
"""

import os
import sys


def main(bootstrap, source, target, checkpoint, per_batch, master="local[2]"):
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from ottla.pipelines.session import Wanted, Work, start_session
    from ottla.pipelines.sink.data_source import TopicFormat

    conf = {"spark.task.maxFailures": "8"}
    spark = start_session("sinking", Wanted(master, conf), work=Work(quick_java=True))
    spark.dataSource.register(TopicFormat)
    query = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
        .selectExpr("key", "concat('copy of ', string(value)) as value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"{query.lastProgress['batchId'] + 1 if query.lastProgress else 0} micro-batches")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
