"""Running the lake job for tests, and reading its tables as strangers do.

`Produced` is the truth: what the producer was told by its acknowledgements. Readers are the tables'
libraries, and DuckDB and Spark over the files that these name.
"""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from ottla.cli.grammar import read
from ottla.pipelines import job
from ottla.pipelines.config import read_config
from ottla.pipelines.lake import command as lake
from ottla.pipelines.lake.settings import Settings
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


def _table(folder):
    """Open a table as its users do: (Delta, Iceberg), one of them None."""
    folder = Path(folder)
    if (folder / "_delta_log").is_dir():
        from deltalake import DeltaTable

        return DeltaTable(str(folder)), None
    from pyiceberg.catalog import load_catalog

    lake, name = folder.parent.parent, folder.parent.name
    catalog = load_catalog("ottla", type="sql", uri=f"sqlite:///{lake}/catalog.db")
    return None, catalog.load_table(("lake", name + ("" if folder.name == "data" else "__dead")))


def files_of(folder):
    """Return the paths of the files that the newest version names, by the table's library."""
    delta, iceberg = _table(folder)
    if delta is not None:
        return [uri.removeprefix("file://") for uri in delta.file_uris()]
    return [t.file.file_path.removeprefix("file://") for t in iceberg.scan().plan_files()]


def by_library(folder):
    """Return the rows of a table, read by delta-rs or pyiceberg."""
    delta, iceberg = _table(folder)
    found = delta.to_pyarrow_table() if delta is not None else iceberg.scan().to_arrow()
    return found.to_pylist()


def by_duckdb(folder):
    """Return the rows of the files that the newest version names, as DuckDB has them."""
    import duckdb

    files = files_of(folder)
    if not files:
        return []
    with duckdb.connect() as reader:
        found = reader.execute(
            f"SELECT * FROM read_parquet({files}, union_by_name = true, hive_partitioning = true)"
        )
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def by_spark(spark, folder):
    """Return the same as Spark has them."""
    files = files_of(folder)
    if not files:
        return []
    reader = spark.read.option("mergeSchema", "true").option("basePath", str(folder))
    return [row.asDict() for row in reader.parquet(*files).collect()]


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
