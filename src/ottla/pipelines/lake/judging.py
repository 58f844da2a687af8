"""A stream of records to rows and dead letters in Spark, as the lake job judges them.

For what Spark lands itself, such as the declarative project.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.pipelines.lake.json_columns import JsonColumns
from ottla.pipelines.lake.schemas import DETAIL, META, REASON, VALUE
from ottla.pipelines.lake.writing import split_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def judged(records: "DataFrame", schema: pa.Schema, *, strict: bool) -> "DataFrame":
    """Return all records with the columns of their JSON values, and where they came from.

    A dead letter has a `reason`, and perhaps a `detail`; each has its original bytes, kafka_value.
    """
    from pyspark.sql.pandas.types import from_arrow_schema  # no public way

    wanted = pa.schema(
        [*schema, *META, (REASON, pa.string()), (DETAIL, pa.string()), (VALUE, pa.binary())]
    )

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = JsonColumns(schema, strict=strict)
        for batch in batches:
            rows, dead, _ = split_records(columns, schema, batch, keep=True)
            for some in (rows, dead):
                found = [
                    some.column(f.name).cast(f.type)
                    if f.name in some.column_names
                    else pa.nulls(some.num_rows, f.type)
                    for f in wanted
                ]
                yield from pa.table(found, schema=wanted).to_batches()

    return records.mapInArrow(judge, from_arrow_schema(wanted))
