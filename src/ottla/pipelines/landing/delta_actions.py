"""What a version of a Delta table says: its actions, made of a batch's manifest.

Invariants: pure; the same manifest and the same table before it give the same actions, so that a
version can be written again and compared. Version N is batch N's; a compaction's version removes
the files of the batches that became one and adds the new ones, with dataChange false. Names and
fields are those of the Delta transaction log protocol.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ottla.model.errors import OttlaError
from ottla.pipelines.landing.manifest import BATCH_FOLDER, File, Manifest

Action = dict[str, Any]
Field = dict[str, Any]

FEATURE = "ottlaLake"
"""A writer feature that no one else knows: by the protocol other programs must not write then."""
PROTOCOL = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["appendOnly", FEATURE],
}
CONFIGURATION = {"delta.appendOnly": "true"}
ENGINE = "ottla lake"
BATCH, VALUE, NO_DATE = "batch", "kafka_value", "__HIVE_DEFAULT_PARTITION__"
PLAIN = {
    "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date",
    "timestamp",
}  # fmt: skip
"""Types that need no table feature; also decimals, and arrays, maps and structs of all these."""
_DECIMAL = re.compile(r"decimal\(\d+,-?\d+\)")
_DATE = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}")


@dataclass(slots=True)
class State:
    """A table as its readers have it after some versions.

    `files`: the adds by path. `removed`: by path when (milliseconds) a version removed it.
    """

    id: str
    schema: str = ""
    partition_columns: list[str] = field(default_factory=list)
    files: dict[str, Action] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if "metaData" in action:
                reported = action["metaData"]
                self.id, self.schema = reported["id"], reported["schemaString"]
                self.partition_columns = reported["partitionColumns"]
            elif "add" in action:
                path = action["add"]["path"]
                self.files[path] = action["add"]
                self.removed.pop(path, None)
            elif "remove" in action:
                path = action["remove"]["path"]
                self.files.pop(path, None)
                self.removed[path] = action["remove"].get("deletionTimestamp", 0)


# -- columns ---------------------------------------------------------------------------------------


def column(name: str, kind: Any) -> Field:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


_HEADER = {"type": "struct", "fields": [column("key", "string"), column("value", "binary")]}
ORIGIN = [
    column("kafka_key", "binary"),
    column("kafka_headers", {"type": "array", "elementType": _HEADER, "containsNull": True}),
    column("kafka_timestamp", "timestamp"),
    column("kafka_timestamp_type", "integer"),
    column("kafka_topic", "string"),
    column("kafka_partition", "integer"),
    column("kafka_offset", "long"),
]
"""The columns that say where a row comes from, in the order of META_COLUMNS."""
DEAD_COLUMNS = [
    column("reason", "string"),
    column("detail", "string"),
    column(VALUE, "binary"),
    *ORIGIN,
]


def row_columns(values: Sequence[Field], *, keep: bool) -> list[Field]:
    """Return the columns of rows' files; `keep`: with the original bytes."""
    return [*values, *([column(VALUE, "binary")] if keep else []), *ORIGIN]


def refuse_types(fields: Iterable[Field], where: str) -> None:
    """OttlaError if Delta has no type for a column without a table feature."""
    for one in fields:
        _refuse_type(one["type"], f"{where}: column {one['name']}")


def _refuse_type(kind: Any, where: str) -> None:
    if isinstance(kind, str):
        if kind not in PLAIN and not _DECIMAL.fullmatch(kind):
            raise OttlaError(
                f"{where} is {kind}, which readers of Delta may not know; give it another type, "
                'or set lake.format = "parquet" for a new lake'
            )
    elif kind["type"] == "struct":
        for one in kind["fields"]:
            _refuse_type(one["type"], f"{where}.{one['name']}")
    elif kind["type"] == "array":
        _refuse_type(kind["elementType"], where)
    elif kind["type"] == "map":
        _refuse_type(kind["keyType"], where)
        _refuse_type(kind["valueType"], where)
    else:
        _refuse_type(str(kind["type"]), where)


# -- versions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Content:
    """What a batch brings to one table, of rows or of dead letters.

    `columns`: those of the files, without those that folders stand for. `files`: by their places.
    """

    columns: Sequence[Field]
    files: Sequence[File]
    date_column: str | None = None

    @property
    def partition_columns(self) -> list[str]:
        return [BATCH, *([self.date_column] if self.date_column else [])]


def version_of(manifest: Manifest, content: Content, state: State) -> list[Action]:
    """Return the actions of a batch's version; `state`: the table before it."""
    at = manifest.committed_ms
    wanted = {quoted(file.path): file for file in content.files}
    gone = [
        path
        for path in state.files
        if path not in wanted and manifest.first <= batch_of(path) < manifest.batch
    ]
    new = [(path, file) for path, file in wanted.items() if path not in state.files]
    changes = not gone
    found = _opening(manifest, "WRITE" if manifest.first == manifest.batch else "OPTIMIZE")
    if manifest.batch == 0:
        found.append({"protocol": PROTOCOL})
    folders = state.partition_columns if state.schema else content.partition_columns
    schema = _schema_text([*content.columns, *_folder_columns(folders)])
    if manifest.batch == 0 or schema != state.schema:
        found.append(_meta_data(manifest, state.id, schema, folders))
    found += [{"remove": _removed(state.files[path], at)} for path in gone]
    for path, file in new:
        add = {
            "path": path,
            "partitionValues": _partition_values(file.path, folders),
            "size": file.bytes,
            "modificationTime": at,
            "dataChange": changes,
            "stats": json.dumps({"numRecords": file.rows}, separators=(",", ":")),
        }
        found.append({"add": add})
    return found


def empty_version(manifest: Manifest, number: int, content: Content, state: State) -> list[Action]:
    """Return a version for a batch that compaction has put into `manifest`: its own is gone.

    A log that is written anew needs it: version N is batch N's, and none may be missing.
    """
    found = _opening(manifest, "WRITE", number)
    if number == 0:
        folders = content.partition_columns
        schema = _schema_text([*content.columns, *_folder_columns(folders)])
        found += [{"protocol": PROTOCOL}, _meta_data(manifest, state.id, schema, folders)]
    return found


def _opening(manifest: Manifest, operation: str, number: int | None = None) -> list[Action]:
    """Return what every version begins with; readers take `txn` for whose batch it is."""
    number = manifest.batch if number is None else number
    at = manifest.committed_ms
    information = {
        "timestamp": at,
        "operation": operation,
        "operationParameters": {"batch": str(number)},
        "isBlindAppend": operation == "WRITE",
        "engineInfo": ENGINE,
    }
    txn = {"appId": manifest.binding.lake_id, "version": number, "lastUpdated": at}
    return [{"commitInfo": information}, {"txn": txn}]


def _meta_data(manifest: Manifest, table_id: str, schema: str, folders: list[str]) -> Action:
    return {
        "metaData": {
            "id": table_id,
            "name": manifest.binding.topic,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": folders,
            "configuration": CONFIGURATION,
            "createdTime": manifest.binding.created_ms,
        }
    }


def _removed(add: Mapping[str, Any], at: int) -> Action:
    return {
        "path": add["path"],
        "deletionTimestamp": at,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": add["partitionValues"],
        "size": add["size"],
    }


def _folder_columns(names: Sequence[str]) -> list[Field]:
    return [column(name, "integer" if name == BATCH else "date") for name in names]


def _partition_values(path: str, names: Sequence[str]) -> dict[str, str | None]:
    """Return what a file's folders stand for, as texts.

    A date that has not the form 2026-01-31 is null: readers end at a year of five digits, and not
    only for its rows.
    """
    reported = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    found: dict[str, str | None] = {BATCH: reported[BATCH]}
    for name in names:
        if name != BATCH:
            date = reported.get(name, NO_DATE)
            found[name] = date if _DATE.fullmatch(date) else None
    return found


def batch_of(path: str) -> int:
    """Return the batch whose folder a path is in; -1 if it is in none."""
    number = path.partition("/")[0].removeprefix(BATCH_FOLDER)
    return int(number) if number.isascii() and number.isdigit() else -1


def quoted(path: str) -> str:
    """Return a path as an action has it."""
    return quote(path, safe="/=+")


def has_column(schema: str, name: str) -> bool:
    """Return whether a table's schema, as metaData has it, has a column."""
    return bool(schema) and any(one["name"] == name for one in json.loads(schema)["fields"])


def _schema_text(fields: Sequence[Field]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)}, separators=(",", ":"))


def encoded(actions: Iterable[Action]) -> bytes:
    """Return a version's file: one action on each line."""
    return b"".join(json.dumps(a, separators=(",", ":")).encode() + b"\n" for a in actions)


def decoded(data: bytes, where: str) -> list[Action]:
    """Parse a version's file; OttlaError if it is none."""
    try:
        found = [json.loads(line) for line in data.splitlines() if line.strip()]
        State("").apply(found)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OttlaError(f"{where} is no version of a Delta table") from None
    return found


def compared(expected: list[Action], there: list[Action], state: State, where: str) -> list[str]:
    """Return what a version says that its batch's manifest does not, and the other way round."""
    wanted = [a["add"]["path"] for a in expected if "add" in a]
    added = [a["add"]["path"] for a in there if "add" in a]
    wrong = [f"{where} adds {p}, which is no file of its batch" for p in added if p not in wanted]
    wrong += [f"{where} does not add {p}: its rows are missing" for p in wanted if p not in added]
    wrong += doubled(there, state, where)
    if not wrong and _facts(expected) != _facts(there):
        wrong.append(f"{where} is not what the manifest of its batch says")
    return wrong


def doubled(there: list[Action], state: State, where: str) -> list[str]:
    """Return which files a version adds that have been added already."""
    seen = set(state.files) - {a["remove"]["path"] for a in there if "remove" in a}
    wrong = []
    for action in there:
        if "add" in action:
            path = action["add"]["path"]
            if path in seen:
                wrong.append(f"{where} adds {path} once more")
            seen.add(path)
    return wrong


def _facts(actions: list[Action]) -> list[Action]:
    """Return what readers act upon."""
    return [action for action in actions if "commitInfo" not in action]
