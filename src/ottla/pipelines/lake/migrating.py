"""Once: a table of Ottla 0.1 (folders with manifests) becomes one of Delta or Iceberg.

    TOPIC/table.json                          what the table belongs to
    TOPIC/data/batch=N/_manifest.json         the newest says what has landed up to it
    TOPIC/data/batch=N/DATE=…/*.parquet       rows, and TOPIC/dead/batch=N/*.parquet dead letters
    TOPIC/schemas/N.json                      the columns

Invariants: files stay where they are and are committed by reference, dead letters first, all rows
and their offsets in one commit; a run that was killed is run again. Nothing is deleted: TOPIC/delta
and TOPIC/_staging are of no use any more.
"""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from ottla.model.errors import OttlaError
from ottla.pipelines.lake.opening import Tables
from ottla.pipelines.lake.schemas import DEAD, META, VALUE, of_spark
from ottla.pipelines.lake.settings import Settings
from ottla.pipelines.lake.state import Account
from ottla.pipelines.lake.tables import CLUSTER, TOPIC, TOPIC_ID
from ottla.pipelines.lake.writing import NO_DATE, File

EPOCH = date(1970, 1, 1)


def migrate(settings: Settings, tables: Tables, name: str) -> int:
    """Take over a topic's table; return how many batches it had, 0 if it was taken over before."""
    if "://" in settings.lake.path:
        raise OttlaError(f"--migrate: {settings.lake.path} is no folder, which old lakes were")
    folder = Path(settings.lake.path).absolute() / name
    try:
        binding = json.loads((folder / "table.json").read_bytes())
    except FileNotFoundError:
        raise OttlaError(f"{folder} has no table.json: it is no table to take over") from None
    manifests = [
        json.loads(path.read_bytes())
        for path in sorted((folder / "data").glob("batch=*/_manifest.json"), key=_number)
    ]
    if not manifests:
        raise OttlaError(f"{folder} has no batch: name it as a new lake, there is nothing in it")
    last = manifests[-1]
    accounts = dict(_accounts(name, binding, last))
    column = last.get("date_column")
    bound = {
        CLUSTER: binding["cluster_id"], TOPIC: binding["topic"], TOPIC_ID: binding["topic_id"]
    }  # fmt: skip
    rows, dead = tables.create(name, _columns(folder, last), DEAD, column, bound)
    if rows.state.accounts:
        return 0
    if not dead.state.accounts:
        letters = list(_files(folder / "dead", None, _dead_files(manifests)))
        dead.append(letters, dead.state.after(accounts))
    found = [f"batch={m['batch']}/{file['path']}" for m in manifests for file in m["files"]]
    rows.append(list(_files(folder / "data", column, found)), rows.state.after(accounts))
    return len(manifests)


def _number(path: Path) -> int:
    return int(path.parent.name.removeprefix("batch="))


def _accounts(name: str, binding: Any, last: Any) -> Iterator[tuple[int, Account]]:
    for text, spans in last["landed"].items():
        start = binding["starts"].get(text, 0)
        if len(spans) > 1 or spans[0][0] != start:
            raise OttlaError(
                f"{name}-{text}: its offsets from {start} on have not all landed (a backfill?); "
                "land what is missing by the version that made the lake first"
            )
        counts = last["totals"].get(text, {})
        yield (
            int(text),
            Account(
                start=start,
                next=spans[0][1],
                epoch=last["epochs"].get(text, -1),
                **{key: counts.get(key, 0) for key in ("dead", "gaps", "lost")},
            ),
        )


def _columns(folder: Path, last: Any) -> pa.Schema:
    fields: list[pa.Field] = []
    if last["schema"]:
        told = json.loads((folder / "schemas" / f"{last['schema']}.json").read_bytes())
        fields += list(of_spark(told))
    if last.get("keep") or not fields:
        fields.append(pa.field(VALUE, pa.binary()))
    fields += list(META)
    if column := last.get("date_column"):
        fields.append(pa.field(column, pa.date32()))
    return pa.schema(fields)


def _dead_files(manifests: Iterable[Any]) -> list[str]:
    """Return the dead letters' files; compaction left them in the folders of older batches."""
    found = []
    for manifest in manifests:
        for file in manifest["dead_files"]:
            path = file["path"]
            found.append(path if path.startswith("batch=") else f"batch={manifest['batch']}/{path}")
    return found


def _files(folder: Path, column: str | None, paths: Iterable[str]) -> Iterator[File]:
    for path in paths:
        footer = parquet.read_metadata(folder / path)
        day = None
        if column is not None:
            text = re.search(rf"{re.escape(column)}=([^/]+)/", path)
            if text is not None and text[1] != NO_DATE:
                day = (date.fromisoformat(text[1]) - EPOCH).days
        size = (folder / path).stat().st_size
        yield File(path, size, footer.num_rows, day, f"file://{folder / path}", footer)
