"""A table of Apache Iceberg, by pyiceberg: a snapshot has the files, and the state in its summary.

Invariants: the state is that of the newest snapshot among the current one and its ancestors that
has one, so that it goes back with a rollback; snapshots of others (compaction, deletes) have none.
Where the snapshots before them have expired, a property of the table has it, written in the same
commit; a table that was rolled back to before that is refused. The catalog compares the snapshot
that a commit was made upon with the table's: of two runs one is refused. Iceberg's specification:
"Snapshots", "Optimistic Concurrency".
"""

import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ottla.model.errors import OttlaError
from ottla.pipelines.lake.schemas import plain_schema
from ottla.pipelines.lake.state import State, state_of
from ottla.pipelines.lake.tables import COMMIT, ConflictError, merges
from ottla.pipelines.lake.writing import File, FileWriter, Target

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        NoSuchTableError,
        TableAlreadyExistsError,
    )
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import (
        ArrowScan,
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
        schema_to_pyarrow,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.typedef import Record
except ImportError as error:
    raise OttlaError(
        f"format iceberg needs pyiceberg ({error.name} is missing): pip install 'ottla[spark]'"
    ) from None

STATE, SEQUENCE = "ottla.state", "ottla.sequence"
RETRIES = "commit.retry.num-retries"
TRIES = 5
MOST_SNAPSHOTS = 100
"""More make each commit slower, since all are in the metadata file."""
MERGED_EACH = 50
"""Commits after which manifests are merged, if there are many."""
PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}


def open_catalog(path: str, settings: Mapping[str, str]) -> tuple[Catalog, str]:
    """Return the catalog and the namespace for tables: by default a file in the lake's folder."""
    given = dict(settings)
    namespace = given.pop("namespace", "lake")
    if not given:
        if not path.startswith("file://"):
            raise OttlaError(
                f"an Iceberg lake in {path} needs a catalog: [catalog] type and uri, as pyiceberg "
                "takes them (a REST catalog, or SQL)"
            )
        folder = path.removeprefix("file://")
        fs.LocalFileSystem().create_dir(folder, recursive=True)
        given = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):  # which Delta and Arrow look for themselves
        given.setdefault("s3.endpoint", endpoint)
    catalog = load_catalog("ottla", **{"warehouse": path, **given})
    catalog.create_namespace_if_not_exists(namespace)
    return catalog, namespace


def open_iceberg(catalog: Catalog, name: tuple[str, str]) -> "Iceberg | None":
    """Open a table; None if there is none."""
    try:
        return Iceberg(catalog, name, catalog.load_table(name))
    except NoSuchTableError:
        return None


def create_iceberg(
    catalog: Catalog,
    name: tuple[str, str],
    location: str,
    schema: pa.Schema,
    date_column: str | None,
    properties: Mapping[str, str],
) -> "Iceberg":
    """Make a table; of two runs that do so at once the later opens what the first made."""
    small = (pa.int8(), pa.int16())  # Iceberg has none
    schema = pa.schema([f.with_type(pa.int32()) if f.type in small else f for f in schema])
    try:
        table = catalog.create_table(
            name, schema, location=location, properties={**PROPERTIES, **properties}
        )
        with table.transaction() as transaction:
            # Files without ids of fields, such as those of --migrate, are read by names.
            mapping = table.schema().name_mapping.model_dump_json()
            transaction.set_properties({"schema.name-mapping.default": mapping})
            if date_column is not None:
                with transaction.update_spec() as spec:
                    spec.add_identity(date_column)
    except TableAlreadyExistsError:
        pass
    return Iceberg(catalog, name, catalog.load_table(name))


class Iceberg:
    """One table. `state` is of the snapshot that was current when it was opened or refreshed."""

    def __init__(self, catalog: Catalog, name: tuple[str, str], table: IcebergTable) -> None:
        self._catalog = catalog
        self._name = name
        self._table = table
        self.where = f"{'.'.join(name)} in {table.location()}"
        self.uri = f"{table.location()}/data"
        self.state = self._state()

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self._table.properties)

    @property
    def schema(self) -> pa.Schema:
        return plain_schema(schema_to_pyarrow(self._table.schema()))

    @property
    def version(self) -> int:
        snapshot = self._table.current_snapshot()
        return 0 if snapshot is None else snapshot.snapshot_id

    def _by(self) -> str | None:
        fields = self._table.spec().fields
        return self._table.schema().find_column_name(fields[0].source_id) if fields else None

    def target(self, compression: str) -> Target:
        return Target(self.uri, self.schema, self._by(), True, compression)

    def retyped(self, kinds: Mapping[str, pa.DataType], compression: str) -> Target:
        target, last, fields = self.target(compression), self._table.metadata.last_column_id, []
        for field in target.schema:
            if field.name in kinds:  # `replace` makes another column of it
                last += 1
                number = {"PARQUET:field_id": str(last)}
                field = pa.field(field.name, kinds[field.name], metadata=number)  # noqa: PLW2901
            fields.append(field)
        return replace(target, schema=pa.schema(fields))

    def refresh(self) -> None:
        self._table = self._catalog.load_table(self._name)
        self.state = self._state()

    def _ancestors(self) -> Iterator[Any]:
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)

    def _state(self) -> State:
        for snapshot in self._ancestors():
            if snapshot.summary is not None and (text := snapshot.summary.get(STATE)) is not None:
                return state_of(json.loads(text))
        text = self._table.properties.get(STATE)
        current = self._table.current_snapshot()
        if text is None or current is None:
            return State()
        if int(self._table.properties[SEQUENCE]) > (current.sequence_number or 0):
            raise OttlaError(
                f"{self.where}: rolled back to snapshot {current.snapshot_id}, and the snapshots "
                "that say which offsets it holds have expired; name another lake"
            )
        return state_of(json.loads(text))

    # -- commits -----------------------------------------------------------------------------------

    def widen(self, schema: pa.Schema) -> None:
        with self._table.update_schema() as change:
            change.union_by_name(schema)
        self.refresh()

    def append(self, files: Sequence[File], state: State) -> None:
        def change(transaction: Any, found: Mapping[str, str]) -> None:
            update = transaction.update_snapshot(snapshot_properties=found)
            merge = state.batch % MERGED_EACH == 0
            with update.merge_append() if merge else update.fast_append() as producer:
                for file in files:
                    producer.append_data_file(self._data_file(file))

        self._commit(change, state)
        extra = self._table.metadata.snapshots[:-MOST_SNAPSHOTS]
        if len(extra) >= MOST_SNAPSHOTS // 2:
            ids = [snapshot.snapshot_id for snapshot in extra]
            self._table.maintenance.expire_snapshots().by_ids(ids).commit()
            self.refresh()

    def replace(self, schema: pa.Schema, files: Sequence[File], state: State) -> None:
        kinds = {field.name: field.type for field in schema}
        other = [f.name for f in self.schema if f.type != kinds.get(f.name, f.type)]
        by_name = {field.name: field for field in schema}

        def change(transaction: Any, found: Mapping[str, str]) -> None:
            if other:  # Iceberg knows no int that becomes a double: it is another column
                with transaction.update_schema(allow_incompatible_changes=True) as update:
                    for name in other:
                        update.delete_column(name)
                with transaction.update_schema() as update:
                    update.union_by_name(pa.schema([by_name[name] for name in other]))
            with transaction.update_snapshot(snapshot_properties=found).overwrite() as producer:
                for task in self._table.scan().plan_files():
                    producer.delete_data_file(task.file)
                for file in files:
                    producer.append_data_file(self._data_file(file, transaction))

        self._commit(change, state)

    def _commit(self, change: Any, state: State) -> None:
        """Commit a change with a state, again if it met another's commit that left ours alone."""
        before, mark = self.state.batch, uuid.uuid4().hex
        text = json.dumps(state.flat(), separators=(",", ":"))
        for attempt in range(TRIES):
            # pyiceberg would apply a change again upon what another run has committed.
            self._table.metadata.properties[RETRIES] = "0"
            sequence = getattr(self._table.metadata, "last_sequence_number", 0) + 1
            try:
                with self._table.transaction() as transaction:
                    change(transaction, {STATE: text, COMMIT: mark})
                    transaction.set_properties({STATE: text, SEQUENCE: str(sequence)})
            except Exception as error:
                self.refresh()
                ours = (s for s in self._ancestors() if s.summary and s.summary.get(COMMIT) == mark)
                if next(ours, None) is not None:
                    return  # it went through, the acknowledgement was lost
                if self.state.batch != before:
                    raise ConflictError(self.where) from None
                if not isinstance(error, CommitFailedException) or attempt == TRIES - 1:
                    raise
                time.sleep(0.1 * (attempt + 1))
            else:
                self.refresh()
                return

    def _data_file(self, file: File, transaction: Any = None) -> DataFile:
        schema = (transaction.table_metadata if transaction else self._table).schema()
        told = data_file_statistics_from_parquet_metadata(
            file.footer,
            compute_statistics_plan(schema, self._table.properties),
            parquet_path_to_id_mapping(schema),
        )
        spec = self._table.spec()
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.address,
            file_format=FileFormat.PARQUET,
            partition=Record(file.day) if spec.fields else Record(),
            file_size_in_bytes=file.bytes,
            sort_order_id=None,
            spec_id=spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **told.to_serialized_dict(),
        )

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[str] | None = None, least: Mapping[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        found: dict[str, Any] = {}
        if least:
            found["row_filter"] = " or ".join(
                f"(kafka_partition == {partition} and kafka_offset >= {offset})"
                for partition, offset in least.items()
            )
        if columns is not None:
            found["selected_fields"] = tuple(columns)
        reader = self._table.scan(**found).to_arrow_batch_reader()
        schema = plain_schema(reader.schema)
        yield from (batch.cast(schema) for batch in reader)

    def rows(self) -> int:
        return int(self._table.scan().count())

    def files(self) -> list[str]:
        return [task.file.file_path for task in self._table.scan().plan_files()]

    # -- maintenance -------------------------------------------------------------------------------

    def compact(self) -> Mapping[str, Any]:
        by_day: dict[str, list[Any]] = defaultdict(list)
        tasks = list(self._table.scan().plan_files())
        for task in tasks:
            if not task.delete_files:  # others' deletes of rows are theirs to apply
                by_day[repr(task.file.partition)].append(task)
        old: list[DataFile] = []
        new: list[File] = []
        scan = ArrowScan(
            self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue()
        )  # fmt: skip
        for found in by_day.values():
            found.sort(key=lambda task: task.file.file_size_in_bytes)
            chosen = found[: merges([task.file.file_size_in_bytes for task in found])]
            writer = FileWriter(self.target("snappy"), new)
            for batch in scan.to_record_batches(chosen):
                writer.add(pa.Table.from_batches([batch]).cast(self.schema))
            writer.flush()
            old += [task.file for task in chosen]
        if old:
            with (
                self._table.transaction() as transaction,
                transaction.update_snapshot().overwrite() as producer,
            ):
                for file in old:
                    producer.delete_data_file(file)
                for made in new:
                    producer.append_data_file(self._data_file(made))
            self.refresh()
        return {"files": [len(tasks), len(tasks) - len(old) + len(new)]}

    def clean(self, older_than_hours: float) -> int:
        before = datetime.now() - timedelta(hours=older_than_hours)  # noqa: DTZ005 - as it wants it
        self._table.maintenance.expire_snapshots().older_than(before).commit()
        self.refresh()
        named = set(self._table.inspect.all_files().column("file_path").to_pylist())
        system, root = fs.FileSystem.from_uri(self.uri)
        gone = 0
        for info in system.get_file_info(fs.FileSelector(root, recursive=True)):
            uri = self.uri + info.path.removeprefix(root)
            if info.is_file and uri not in named and info.mtime.timestamp() < before.timestamp():
                system.delete_file(info.path)
                gone += 1
        return gone
