"""What a Delta log of many versions costs: each batch's commit, opening the table, each reader.

No cluster and no Spark: batches of a few rows are committed as the lake job does.
    PYTHONPATH=src:tests python benchmarks/lake_delta.py --batches 1000
Prints one line of JSON. delta-rs is left out where `deltalake` is not installed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from ottla.pipelines.landing.asking import Topic
from ottla.pipelines.landing.manifest import File, Landed, Manifest, Totals
from ottla.pipelines.landing.spans import Span
from ottla.pipelines.landing.table import Allowed, Table, open_landed, open_table
from support.delta_readers import by_protocol

TOPIC = Topic("t", "cluster", "id", (0,))
ROWS, FILES = 10, 4


def commit(table: Table) -> None:
    stage = table.stage()
    start = table.next_batch * ROWS * FILES
    for at in range(FILES):
        first = start + at * ROWS
        rows = pa.table(
            {
                "n": pa.array(range(first, first + ROWS), pa.int64()),
                "kafka_partition": pa.array([0] * ROWS, pa.int32()),
                "kafka_offset": pa.array(range(first, first + ROWS), pa.int64()),
            }
        )
        folder = stage.data / f"event_date=2026-01-0{1 + at}"
        folder.mkdir(parents=True)
        parquet.write_table(rows, folder / f"part-{at}.parquet", store_schema=False)
    end = start + ROWS * FILES
    landed = Landed(start=start, end=end, rows=end - start)

    def make(files: list[File], dead_files: list[File], previous: str) -> Manifest:
        return Manifest(
            binding=table.binding, batch=table.next_batch, first=table.next_batch,
            previous=previous, committed_ms=time.time_ns() // 10**6,
            schema=table.schema_version(), partitions={0: [landed]}, files=files,
            dead_files=dead_files, landed={0: [Span(0, end)]}, epochs={},
            totals={0: Totals(rows=end)}, date_column="event_date",
        )  # fmt: skip

    table.commit(stage, make)


def timed(work: Any) -> tuple[Any, float, float]:
    """Return a result, and the seconds of the clock and of this process's CPU that it took."""
    clock, cpu = time.monotonic(), time.process_time()
    result = work()
    return result, round(time.monotonic() - clock, 3), round(time.process_time() - cpu, 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1_000)
    parser.add_argument("--format", choices=("parquet", "delta"), default="delta")
    args = parser.parse_args()
    told: dict[str, Any] = {"batches": args.batches, "files": FILES * args.batches}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "t"
        table = open_table(
            folder, TOPIC, "read_uncommitted", lambda: {0: 0}, Allowed(), sync=False,
            table_format=args.format,
        )  # fmt: skip
        fields = [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]
        table.write_schema(json.dumps({"type": "struct", "fields": fields}))
        _, *told["commits_s"] = timed(lambda: [commit(table) for _ in range(args.batches)])
        wrong, *told["problems_s"] = timed(table.problems)
        assert wrong == []
        table.close()
        table, *told["open_s"] = timed(lambda: open_landed(folder, sync=False))
        table.close()
        if args.format == "delta":
            data = folder / "delta" / "data"
            told["log_bytes"] = sum(p.stat().st_size for p in (data / "_delta_log").iterdir())
            rows, *told["by_protocol_s"] = timed(lambda: by_protocol(data))
            assert len(rows) == args.batches * ROWS * FILES
            try:
                import deltalake
            except ImportError:
                pass
            else:
                found, *told["delta_rs_open_s"] = timed(lambda: deltalake.DeltaTable(str(data)))
                rows, *told["delta_rs_rows_s"] = timed(found.to_pyarrow_table)
                assert rows.num_rows == args.batches * ROWS * FILES
    told["load_average"] = round(os.getloadavg()[0], 1)
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
