"""Running the lake job for tests, and reading its tables as strangers do.

`Produced` is the truth: what the producer was told by its acknowledgements. Readers are pyarrow,
DuckDB and Spark over the folder `data` alone; none of them knows of manifests.
"""

import io
import json
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from ottla.cli.grammar import read
from ottla.pipelines import job, lake
from ottla.pipelines.config import read_config
from ottla.pipelines.landing.settings import Settings
from ottla.pipelines.result_schemas import RESULTS
from support.killing import killed_when
from support.schemas import problems

SCHEMA = "n long, day string, note string"


@dataclass
class Produced:
    """What was acknowledged: by (partition, offset) the key, the value and the headers."""

    bootstrap: str
    topic: str
    acked: dict = field(default_factory=dict)
    failed: int = 0

    def send(self, records, **settings):
        """Produce (key, value[, headers[, partition]]), wait for all acknowledgements."""
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True,
             "log_level": 0, "message.max.bytes": 2_000_000, **settings}
        )  # fmt: skip
        for key, value, *rest in records:
            headers = rest[0] if rest else []
            partition = {"partition": rest[1]} if len(rest) > 1 else {}

            def told(error, message, key=key, value=value, headers=headers):
                if error is not None:
                    self.failed += 1
                    return
                place = (message.partition(), message.offset())
                assert place not in self.acked
                self.acked[place] = (key, value, headers)

            while True:
                try:
                    producer.produce(
                        self.topic, value, key, headers=headers, on_delivery=told, **partition
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(120) == 0
        assert not self.failed
        return self


def numbered(first, count):
    """Return (key, value) of JSON objects that fit SCHEMA."""
    return [
        (
            f"k{n % 7}".encode(),
            json.dumps({"n": n, "day": f"2026-01-{1 + n % 5:02}", "note": f"note {n}"}).encode(),
        )
        for n in range(first, first + count)
    ]


def settings_of(bootstrap, path, topics, **more):
    """Return the job's settings as lines of --set."""
    found = {
        "cluster.bootstrap_servers": bootstrap,
        "lake.path": str(path),
        "lake.topics": list(topics),
        "value.format": "json",
        "value.schema": SCHEMA,
        "layout.date": "to_date(day)",
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return [f"{key}={json.dumps(value)}" for key, value in found.items() if value is not None]


@dataclass
class Outcome:
    """How a run ended."""

    code: int
    result: dict
    told: str


def run_here(spark, sets, *flags):
    """Run the job in this process, with a session that stays."""
    options = read(lake.Options, [*flags, *(x for s in sets for x in ("--set", s))])
    out, told = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(told):
        code = job.run(lake.NAME, lambda: lake.run(options, spark))
    text = out.getvalue()
    result = json.loads(text) if text else {}
    assert problems(result, RESULTS[lake.NAME]) == [] or not text
    return Outcome(code, result, told.getvalue())


def read_sets(sets):
    return read_config(None, sets, Settings)


def land_batch(settings, topic, table, batch):
    """Land a batch of spans as the job does, without Spark: rows alone, of SCHEMA."""
    import pyarrow as pa

    from ottla.pipelines.landing import columns_job
    from ottla.pipelines.landing.columnar import JsonSchema, Plan
    from ottla.pipelines.landing.counting import compare
    from ottla.pipelines.landing.dates import DateRule
    from ottla.pipelines.landing.manifest import Landed, Manifest, Totals
    from ottla.pipelines.landing.spans import land
    from ottla.pipelines.landing.writing import Task, write

    schema = pa.schema([("n", pa.int64()), ("day", pa.string()), ("note", pa.string())])
    plan = Plan(JsonSchema(schema, strict=True), False, DateRule(("day",)), "event_date")
    stage = table.stage()
    options = columns_job._options(settings, topic, batch)
    written = [
        write(Task(options, wanted, plan, str(stage.attempts), "snappy"))
        for wanted in columns_job.ranges(topic, batch, 4)
    ]
    assert not any(one.problem or one.aside for one in written)
    columns_job._take(written, stage)
    found = compare(topic.name, batch, stage.data, stage.dead)
    counts = {p: Landed(start=s.start, end=s.end, rows=found[p].rows) for p, s in batch.items()}
    before = table.last.totals if table.last else {}

    def make(files, dead_files, previous):
        return Manifest(
            binding=table.binding, batch=table.next_batch, first=table.next_batch,
            previous=previous, committed_ms=time.time_ns() // 10**6,
            schema=table.schema_version(), partitions={p: [one] for p, one in counts.items()},
            files=files, dead_files=dead_files,
            landed=land(table.last.landed if table.last else {}, batch), epochs={},
            totals={p: before.get(p, Totals()).plus(one) for p, one in counts.items()},
            date_column="event_date",
        )  # fmt: skip

    table.commit(stage, make)


def land_without_spark(sets):
    """Open the only topic's table, and land the next `lake.batch_records` offsets."""
    from ottla.pipelines.landing import asking
    from ottla.pipelines.landing.spans import all_missing, plan
    from ottla.pipelines.landing.table import Allowed, open_table

    settings = read_sets(sets)
    isolation, (name,) = settings.lake.isolation, settings.lake.topics
    with asking.reached(settings.cluster, isolation) as cluster:
        topic = asking.described(cluster, name)
        held = asking.held(cluster, topic)
    table = open_table(
        Path(settings.lake.path) / name, topic, isolation, lambda: dict.fromkeys(held, 0),
        Allowed(), table_format=settings.lake.format,
    )  # fmt: skip
    if not table.schema_version():
        fields = [field.split() for field in SCHEMA.split(", ")]
        table.write_schema(
            json.dumps({"type": "struct", "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in fields
            ]})
        )  # fmt: skip
    missing = all_missing(held, table.last.landed if table.last else {})
    land_batch(settings, topic, table, plan(missing, settings.lake.batch_records))
    assert table.problems() == []
    table.close()


def by_pyarrow(folder):
    """Return the rows below a folder, as a stranger sees them who globs it."""
    from pyarrow import dataset

    return (
        dataset.dataset(str(folder), format="parquet", partitioning="hive").to_table().to_pylist()
    )


def by_duckdb(folder):
    """Return the rows below a folder, as DuckDB has them of the files alone."""
    import duckdb

    with duckdb.connect() as reader:
        found = reader.execute(
            f"SELECT * FROM read_parquet('{folder}/**/*.parquet', union_by_name = true)"
        )
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def by_spark(spark, folder):
    return [row.asDict() for row in spark.read.parquet(str(folder)).collect()]


def places(rows):
    """Return {(partition, offset): row}; fails if two rows have one place."""
    found = {}
    for row in rows:
        place = (row["kafka_partition"], row["kafka_offset"])
        assert place not in found, f"{place} stands twice"
        found[place] = row
    return found


def differences(rows, produced, dead=()):
    """Compare rows and dead letters with what was acknowledged; return what is wrong."""
    there, letters = places(rows), places(dead)
    wrong = [f"{place} is a row and a dead letter" for place in there.keys() & letters.keys()]
    wrong += [f"{p} is missing" for p in produced.acked if p not in there and p not in letters]
    wrong += [f"{p} was never produced" for p in (there | letters) if p not in produced.acked]
    for place, row in there.items():
        key, value, headers = produced.acked.get(place, (None, None, []))
        if (None if row["kafka_key"] is None else bytes(row["kafka_key"])) != key:
            wrong.append(f"{place} has key {row['kafka_key']!r}, not {key!r}")
        if "n" in row and value is not None and json.loads(value).get("n") != row["n"]:
            wrong.append(f"{place} has n={row['n']}, not {value!r}")
        wrong += _headers_differ(place, row, headers)
    for place, row in letters.items():
        key, value, headers = produced.acked.get(place, (None, None, []))
        if bytes(row["kafka_value"]) != value:
            wrong.append(f"{place} is a dead letter with other bytes")
        wrong += _headers_differ(place, row, headers)
    return wrong


def _headers_differ(place, row, headers):
    got = [
        (h["key"], None if h["value"] is None else bytes(h["value"]))
        for h in row["kafka_headers"] or []
    ]
    return [] if got == list(headers) else [f"{place} has headers {got}, not {headers}"]


def kill_when(sets, moment, *flags, timeout_s=300):
    """Kill the job at a moment; return whether it was still running (`killing.killed_when`)."""
    arguments = [*flags, *(x for s in sets for x in ("--set", s))]
    lake = [sys.executable, "-m", "ottla", "pipeline", "lake", "--master", "local[2]", *arguments]
    return killed_when(lake, moment, timeout_s)
