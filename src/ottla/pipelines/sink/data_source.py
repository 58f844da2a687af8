"""`format("ottla")` as Spark finds it: the source of `source.data_source`, and the sink."""

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from ottla.pipelines.source.data_source import TopicSource

if TYPE_CHECKING:
    from ottla.pipelines.sink.writer import BatchWriter, StreamWriter


class TopicFormat(TopicSource):
    """Topics of a Kafka-compatible cluster, read and written."""

    def writer(self, schema: t.StructType, overwrite: bool) -> "BatchWriter":
        from ottla.pipelines.sink.writer import batch_writer  # imports pyarrow

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: t.StructType,
        overwrite: bool,  # noqa: ARG002 - a stream's rows are only appended
    ) -> "StreamWriter":
        from ottla.pipelines.sink.writer import stream_writer  # as above

        return stream_writer(self.options, schema)
