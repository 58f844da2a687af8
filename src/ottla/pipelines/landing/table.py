"""One topic's folder in the lake: bound to its cluster and topic, and committed by one rename.

    TABLE/table.json              what the table belongs to
    TABLE/data/batch=N/…          what readers read: Parquet files, in folders by date
    TABLE/data/batch=N/_manifest.json
    TABLE/dead/batch=N/…          dead letters, Parquet
    TABLE/schemas/N.json          the columns, by version
    TABLE/delta/…                 both as Delta tables, if the table is one (`delta_log`)
    TABLE/_staging/…              what is not committed

Invariants: whatever lies in `data` is committed, whole and once: a batch is written in `_staging`
and moved with its manifest by a single rename, which fails where a batch of this number lies
already. Dead letters are moved before: a batch that was not committed after that has its dead
letters removed by the next run. A folder that is bound to something else is refused and nothing in
it changes. One run at a time holds the lock.
"""

import contextlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from ottla.model.durable_files import replace_file
from ottla.model.durable_files import sync as _sync
from ottla.model.durable_files import sync_tree as _sync_tree
from ottla.model.errors import OttlaError
from ottla.model.posix import fcntl
from ottla.pipelines.landing.asking import Topic
from ottla.pipelines.landing.delta_actions import Field
from ottla.pipelines.landing.delta_log import DELTA, Delta, can_link, counted
from ottla.pipelines.landing.exchanging import exchange
from ottla.pipelines.landing.manifest import (
    DATA,
    DEAD,
    FORMATS,
    NAME,
    STAGING,
    Binding,
    File,
    Manifest,
    batch_folder,
    decode_binding,
    decode_manifest,
    digest,
    encode,
)

TABLE, SCHEMAS = "table.json", "schemas"
_BATCH = re.compile(r"batch=(0|[1-9][0-9]*)")
NOTHING = digest(b"")


@dataclass(frozen=True, slots=True)
class Stage:
    """Folders of a batch that is being written; `dead` is there only if it has dead letters."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / DATA

    @property
    def dead(self) -> Path:
        return self.folder / DEAD

    @property
    def attempts(self) -> Path:
        """Where tasks write, each attempt in a folder of its own."""
        return self.folder / "attempts"

    def clear(self) -> None:
        """Begin anew."""
        for folder in (self.data, self.dead, self.attempts):
            shutil.rmtree(folder, ignore_errors=True)


class Table:
    """A table that this run holds the lock of."""

    def __init__(self, folder: Path, binding: Binding, lock: int, *, sync: bool) -> None:
        self.folder = folder
        self.binding = binding
        self._lock = lock
        self._sync = sync
        self.batches: list[Manifest] = []
        self._last_digest = NOTHING
        self.delta: Delta | None = None
        if binding.has_delta:
            self.delta = Delta(folder, binding, self._value_columns, sync=sync)

    @property
    def last(self) -> Manifest | None:
        """The newest batch."""
        return self.batches[-1] if self.batches else None

    @property
    def next_batch(self) -> int:
        return self.batches[-1].batch + 1 if self.batches else 0

    def files(self) -> list[File]:
        """Return the files of all rows, by their paths inside of `data`."""
        return [file for manifest in self.batches for file in manifest.files_in_place()]

    def close(self) -> None:
        """Let another run in."""
        os.close(self._lock)

    # -- reading what is there --------------------------------------------------------------------

    def load(self) -> None:
        """Read all manifests; OttlaError if the row of batches has a hole or a stranger."""
        numbers = committed_batches(self.folder)
        self.batches, self._last_digest = [], NOTHING
        for number in numbers:
            path = self.folder / DATA / batch_folder(number) / NAME
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                raise OttlaError(
                    f"{path.parent} has no {NAME}: no batch of this job; move it away"
                ) from None
            manifest = decode_manifest(data, str(path))
            if manifest.binding.lake_id != self.binding.lake_id:
                raise OttlaError(f"{path.parent} is a batch of another lake; move it away")
            if (
                manifest.batch != number
                or manifest.first != self.next_batch
                or manifest.previous != self._last_digest
            ):
                raise OttlaError(
                    f"{path.parent} does not follow batch {self.next_batch - 1}: a batch before it "
                    "is gone or was replaced; restore it from a copy"
                )
            self.batches.append(manifest)
            self._last_digest = digest(data)

    def recover(self, *, restore: bool = False) -> list[str]:
        """Remove what a run that died has left uncommitted; return what was removed.

        Of a Delta table the newest version is written if it is not there; OttlaError if something
        else is wrong with the log, unless `restore` lets it be written anew.
        """
        removed = []
        for folder in sorted((self.folder / STAGING).glob("*")):
            if folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                folder.unlink()
            removed.append(f"{STAGING}/{folder.name}")
        for number in batch_numbers(self.folder / DEAD):
            if number >= self.next_batch:
                shutil.rmtree(self.folder / DEAD / batch_folder(number))
                removed.append(f"{DEAD}/batch={number}")
        if self.delta is not None:
            self.delta.recover(self.batches, restore=restore)
        return removed

    def problems(self) -> list[str]:
        """Compare the files that are there with the manifests; return what is wrong."""
        wrong: list[str] = []
        for kind in (DATA, DEAD):
            expected = {
                file.path: file.bytes
                for m in self.batches
                for file in (m.files_in_place() if kind == DATA else m.dead_in_place())
            }
            there = dict(_files(self.folder / kind))
            there = {path: size for path, size in there.items() if not hidden(path)}
            wrong += [
                f"{self.folder / kind / path} is gone: its rows are missing"
                for path in sorted(expected.keys() - there.keys())
            ]
            wrong += [
                f"{self.folder / kind / path} belongs to no batch: rows are doubled"
                for path in sorted(there.keys() - expected.keys())
            ]
            wrong += [
                f"{self.folder / kind / path} has {there[path]} bytes, not {expected[path]}"
                for path in sorted(expected.keys() & there.keys())
                if expected[path] != there[path]
            ]
        for manifest in self.batches[-1:]:
            wrong += manifest.problems()
        if self.delta is not None:
            wrong += self.delta.problems(self.batches) or self.delta.behind(self.batches)
        return wrong

    # -- writing -----------------------------------------------------------------------------------

    def stage(self) -> Stage:
        """Return folders for a batch, which no one reads."""
        folder = self.folder / STAGING / f"{self.next_batch}-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        return Stage(folder)

    def commit(self, stage: Stage, make: Callable[[list[File], list[File], str], Manifest]) -> None:
        """Publish a staged batch; `make` gets its files, dead letters' files, and `previous`."""
        stage.data.mkdir(exist_ok=True)
        shutil.rmtree(stage.attempts, ignore_errors=True)
        has_dead = stage.dead.is_dir()
        files = tidied(stage.data)
        dead_files = tidied(stage.dead) if has_dead else []
        if self.delta is not None:
            files, dead_files = counted(stage.data, files), counted(stage.dead, dead_files)
        manifest = make(files, dead_files, self._last_digest)
        assert not manifest.problems(), manifest.problems()
        data = encode(manifest)
        (stage.data / NAME).write_bytes(data)
        if self._sync:
            _sync_tree(stage.folder)
        name = batch_folder(manifest.batch)
        if has_dead:
            self._publish(stage.dead, self.folder / DEAD / name)
        self._publish(stage.data, self.folder / DATA / name)
        self.batches.append(manifest)
        self._last_digest = digest(data)
        if self.delta is not None:
            self.delta.follow(self.batches)
        shutil.rmtree(stage.folder, ignore_errors=True)

    def replace(
        self, stage: Stage, some: list[Manifest], make: Callable[[list[File], str], Manifest]
    ) -> None:
        """Put a staged `data` in the place of the table's, with the newest batches made one.

        `make` gets the new batch's files, and `previous`.
        """
        kept = self.batches[: -len(some)]
        folder = stage.data / batch_folder(self.next_batch)
        files = tidied(folder)
        if self.delta is not None:
            files = counted(folder, files)
        manifest = make(files, some[0].previous)
        assert not manifest.problems(), manifest.problems()
        data = encode(manifest)
        (folder / NAME).write_bytes(data)
        if self._sync:
            _sync_tree(stage.folder)
        exchange(stage.data, self.folder / DATA)
        if self._sync:
            _sync(self.folder)
        self.batches = [*kept, manifest]
        self._last_digest = digest(data)
        if self.delta is not None:
            self.delta.follow(self.batches)
        shutil.rmtree(stage.folder, ignore_errors=True)

    def _publish(self, source: Path, target: Path) -> None:
        target.parent.mkdir(exist_ok=True)
        try:
            source.rename(target)
        except OSError as error:
            raise OttlaError(
                f"{target}: {error.strerror}; another run committed it, nothing was changed"
            ) from None
        if self._sync:
            _sync(target.parent)

    def write_schema(self, text: str) -> int:
        """Keep a new version of the columns; return its number."""
        version = self.schema_version() + 1
        folder = self.folder / SCHEMAS
        folder.mkdir(exist_ok=True)
        replace_file(folder / f"{version}.json", text.encode())
        return version

    def schema_version(self) -> int:
        """Return the newest version of the columns; 0 if there is none."""
        names = [p.stem for p in (self.folder / SCHEMAS).glob("*.json")]
        return max((int(n) for n in names if n.isdigit()), default=0)

    def schema(self) -> str | None:
        """Return the newest version's text."""
        version = self.schema_version()
        path = self.folder / SCHEMAS / f"{version}.json"
        return path.read_text(encoding="utf-8") if version else None

    def _value_columns(self, manifest: Manifest) -> list[Field]:
        return value_columns(self.folder, manifest)


# -- opening ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be done to a table that does not fit: each by a flag of the command line.

    `adopt`: take a copied or moved folder. `restore`: write a lost table.json anew from the
    batches' manifests.
    """

    adopt: bool = False
    restore: bool = False


def open_table(
    folder: Path,
    topic: Topic,
    isolation: str,
    starts: Callable[[], dict[int, int]],
    allowed: Allowed,
    *,
    sync: bool = True,
    table_format: str = "parquet",
) -> Table:
    """Open a topic's table, or make it; OttlaError if the folder belongs to something else.

    `starts` is asked only for a new table.
    """
    folder = Path(os.path.realpath(folder))
    binding = read_binding(folder, allowed)
    if binding is not None:
        _refuse_foreign(folder, binding, topic, isolation, allowed)
        _refuse_format(folder, binding, table_format)
    lock = _locked(folder)
    try:
        if binding is None:
            binding = Binding(
                format=FORMATS[table_format],
                lake_id=str(uuid.uuid4()),
                path=str(folder),
                cluster_id=topic.cluster_id,
                topic=topic.name,
                topic_id=topic.topic_id,
                isolation=isolation,
                created_ms=time.time_ns() // 1_000_000,
                starts=starts(),
            )
        bound = msgspec.structs.replace(binding, path=str(folder))
        if bound != binding or not (folder / TABLE).exists():
            replace_file(folder / TABLE, encode(bound))
        for name in (DATA, DEAD, STAGING):
            (folder / name).mkdir(exist_ok=True)
        if bound.has_delta and not can_link(folder / STAGING):
            raise OttlaError(
                f"{folder}: its file system has no hard links, which a Delta table needs here; "
                'name a lake elsewhere, or set lake.format = "parquet" for a new one'
            )
        table = Table(folder, bound, lock, sync=sync)
        table.load()
        table.recover(restore=allowed.restore)
    except BaseException:
        os.close(lock)
        raise
    return table


def open_landed(folder: Path, *, sync: bool = True, table_format: str | None = None) -> Table:
    """Open a table that is there, for what asks no cluster; OttlaError if there is none.

    With `table_format` also if it has another.
    """
    folder = Path(os.path.realpath(folder))
    binding = read_binding(folder, Allowed())
    if binding is None:
        raise OttlaError(f"{folder} has no {TABLE}: it is no table of this job")
    if binding.path != str(folder):
        _refuse_copy(folder, binding)
    if table_format is not None:
        _refuse_format(folder, binding, table_format)
    lock = _locked(folder)
    try:
        table = Table(folder, binding, lock, sync=sync)
        table.load()
        table.recover()
    except BaseException:
        os.close(lock)
        raise
    return table


def read_binding(folder: Path, allowed: Allowed) -> Binding | None:
    """Return what a folder is bound to; None if there is nothing in it yet."""
    path = folder / TABLE
    with contextlib.suppress(FileNotFoundError):
        return decode_binding(path.read_bytes(), str(path))
    numbers = committed_batches(folder)
    if numbers and allowed.restore:
        manifest = folder / DATA / f"batch={numbers[-1]}" / NAME
        return decode_manifest(manifest.read_bytes(), str(manifest)).binding
    if numbers:
        raise OttlaError(
            f"{folder} has batches but no {TABLE}: --restore writes it anew from their manifests"
        )
    strangers = {"lock", DATA, DEAD, STAGING, SCHEMAS, DELTA}
    names = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    if any(name not in strangers and not name.startswith(".table.json.") for name in names):
        raise OttlaError(f"{folder} is not empty and no table of this job; name another folder")
    if any(True for _ in _files(folder / DATA)):
        raise OttlaError(f"{folder / DATA} has files but no {TABLE}; name another folder")
    return None


def _refuse_foreign(
    folder: Path, binding: Binding, topic: Topic, isolation: str, allowed: Allowed
) -> None:
    if binding.topic != topic.name:
        raise OttlaError(f"{folder} is the table of topic {binding.topic}, not of {topic.name}")
    if binding.cluster_id != topic.cluster_id:
        raise OttlaError(
            f"{folder} belongs to cluster {binding.cluster_id}, the brokers are of "
            f"{topic.cluster_id}; name another lake for this cluster"
        )
    if topic.topic_id and binding.topic_id and binding.topic_id != topic.topic_id:
        raise OttlaError(
            f"{folder} belongs to topic {topic.name} with id {binding.topic_id}, which was deleted "
            f"and made anew as {topic.topic_id}; name another lake for the new topic"
        )
    if binding.isolation != isolation:
        raise OttlaError(
            f"{folder} was begun with isolation {binding.isolation}, not {isolation}; "
            "set it so, or name another lake"
        )
    if binding.path != str(folder) and not allowed.adopt:
        _refuse_copy(folder, binding)


def _refuse_format(folder: Path, binding: Binding, wanted: str) -> None:
    there = next(name for name, number in FORMATS.items() if number == binding.format)
    if there != wanted:
        raise OttlaError(
            f"{folder} was begun with format {there}, not {wanted}, and a table keeps its format; "
            f'set lake.format = "{there}", or name another lake'
        )


def _refuse_copy(folder: Path, binding: Binding) -> NoReturn:
    raise OttlaError(
        f"{folder} is a copy of {binding.path}, or was moved; "
        "--adopt lets it go on as a lake of its own"
    )


def _locked(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise OttlaError(f"another run lands into {folder} now; wait for its end") from None
    return lock


# -- files -----------------------------------------------------------------------------------------


def committed_batches(folder: Path) -> list[int]:
    """Return the numbers of a table's committed batches, in order."""
    return batch_numbers(folder / DATA)


def snapshot(folder: Path) -> list[Path]:
    """Return the Parquet files of all committed batches; OttlaError if it is no table."""
    if not (folder / TABLE).exists():
        raise OttlaError(f"{folder} has no {TABLE}: it is no table of this job")
    found = []
    for number in committed_batches(folder):
        base = folder / DATA / batch_folder(number)
        manifest = decode_manifest((base / NAME).read_bytes(), str(base / NAME))
        found += [base / file.path for file in manifest.files]
    return found


def value_columns(folder: Path, manifest: Manifest) -> list[Field]:
    """Return the columns of a batch's values, as Spark writes schemas; OttlaError without them."""
    if not manifest.schema:
        return []
    path = folder / SCHEMAS / f"{manifest.schema}.json"
    try:
        found: list[Field] = json.loads(path.read_text(encoding="utf-8"))["fields"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OttlaError(f"{path}: {error}; restore it from a copy") from None
    return found


def delta_problems(folder: Path, binding: Binding, batches: list[Manifest]) -> list[str]:
    """Compare the Delta log with the manifests, while another run may land; return what is wrong.

    The newest version may not be there yet.
    """
    if not binding.has_delta:
        return []
    return Delta(folder, binding, lambda m: value_columns(folder, m)).problems(batches)


def batch_numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    matches = (_BATCH.fullmatch(p.name) for p in folder.iterdir())
    return sorted(int(m[1]) for m in matches if m)


def tidied(folder: Path) -> list[File]:
    """Remove what Spark leaves beside Parquet files; return these, by path."""
    found = []
    for path, size in _files(folder):
        if hidden(path):
            (folder / path).unlink()
        else:
            found.append(File(path, size))
    return sorted(found, key=lambda f: f.path)


def hidden(path: str) -> bool:
    """Return whether readers skip a path: something in it begins with a dot or an underscore."""
    return any(part[0] in "._" and "=" not in part for part in path.split("/"))


def _files(folder: Path, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the paths below a folder, and their sizes in bytes."""
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path), f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.stat().st_size
