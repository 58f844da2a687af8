"""The Delta tables of a lake's table: one version for each batch, written after its manifest.

    TABLE/delta/data/_delta_log/N.json   the actions of batch N's version (N in 20 digits)
    TABLE/delta/data/batch=N/…           the files of TABLE/data again, as hard links
    TABLE/delta/dead/…                   the same for dead letters

Invariants: the manifest stays the commit. A version file appears whole, by a link that never
replaces one; what it says follows from the manifests, so that the next run writes what a run that
died has left out: the newest version alone. Files that a version removed stay for readers of the
versions before, as long as the retention says; nothing else deletes here. One writer: the table's
lock.
"""

import contextlib
import os
import re
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

from ottla.model.durable_files import sync as to_disk
from ottla.model.errors import OttlaError
from ottla.pipelines.landing.delta_actions import (
    DEAD_COLUMNS,
    VALUE,
    Action,
    Content,
    Field,
    State,
    compared,
    decoded,
    doubled,
    empty_version,
    encoded,
    has_column,
    quoted,
    row_columns,
    version_of,
)
from ottla.pipelines.landing.manifest import DATA, DEAD, STAGING, Binding, File, Manifest

DELTA, LOG = "delta", "_delta_log"
MOST_TOLD = 20
_VERSION = re.compile(r"\d{20}\.json")
WAY_OUT = "restore it from a copy, or let --restore write the log anew from the manifests"


class DeltaLog:
    """One Delta table: of the rows, or of the dead letters."""

    def __init__(self, table: Path, kind: str, binding: Binding, *, sync: bool) -> None:
        self.folder = table / DELTA / kind
        self._log = self.folder / LOG
        self._table = table
        self._source = table / kind
        self._rows = kind == DATA
        self._binding = binding
        self._sync = sync
        self.state = State(binding.lake_id)
        self.next = 0

    def files_of(self, manifest: Manifest) -> list[File]:
        return manifest.files_in_place() if self._rows else manifest.dead_in_place()

    def content(self, manifest: Manifest, values: Sequence[Field]) -> Content:
        """Return what a batch brings to this table; `values`: the columns of its values."""
        if self._rows:
            keep = manifest.keep or has_column(self.state.schema, VALUE)
            columns = row_columns(values, keep=keep)
            return Content(columns, self.files_of(manifest), manifest.date_column)
        return Content(DEAD_COLUMNS, self.files_of(manifest))

    # -- reading -----------------------------------------------------------------------------------

    def path(self, number: int) -> Path:
        return self._log / f"{number:020d}.json"

    def versions(self) -> list[int]:
        return sorted(int(name[:20]) for name in self._names() if _VERSION.fullmatch(name))

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(path.name for path in self._log.iterdir())
        return []

    def replay(
        self, batches: Sequence[Manifest], values: Callable[[Manifest], Sequence[Field]]
    ) -> list[str]:
        """Read all versions into `state`; return what differs from the manifests.

        Each version is compared with what its batch's manifest makes of it; what compaction has
        put into another batch has none, and is compared by what is listed in the end.
        """
        numbers = self.versions()
        last = batches[-1].batch if batches else -1
        wrong = [
            f"{self._log / name} is not a version that this job wrote"
            for name in self._names()
            if not _VERSION.fullmatch(name) and not name.startswith(".")
        ]
        wrong += [
            f"{self.path(n)} is the version of a batch that is not there"
            for n in numbers
            if n > last
        ]
        gone = sorted(set(range(last)) - set(numbers))
        wrong += [f"{self.path(n)} is gone: its rows are missing" for n in gone]
        self.state, self.next = State(self._binding.lake_id), 0
        if wrong:
            return wrong[:MOST_TOLD]
        by_number = {manifest.batch: manifest for manifest in batches}
        for number in numbers:
            manifest = by_number.get(number)
            reported = None if manifest is None else self.content(manifest, values(manifest))
            try:
                wrong += self._read(number, manifest, reported)
            except OttlaError as error:
                return [*wrong, str(error)][:MOST_TOLD]
            self.next = number + 1
        if self.next == last + 1 and not wrong:
            wrong = self._differences(batches)
        return wrong[:MOST_TOLD]

    def _read(self, number: int, manifest: Manifest | None, content: Content | None) -> list[str]:
        path, state = self.path(number), self.state
        actions = decoded(path.read_bytes(), str(path))
        if number == 0:  # a log that was written anew has another id
            state.id = next((a["metaData"]["id"] for a in actions if "metaData" in a), state.id)
        if manifest is None or content is None:
            wrong = doubled(actions, state, str(path))
        else:
            wrong = compared(version_of(manifest, content, state), actions, state, str(path))
        state.apply(actions)
        return wrong

    def _differences(self, batches: Sequence[Manifest]) -> list[str]:
        """Compare what is listed after all versions with the manifests."""
        expected = {quoted(f.path): f for m in batches for f in self.files_of(m)}
        there = self.state.files
        wrong = [
            f"{self._log} lists {p}, which no manifest has" for p in there if p not in expected
        ]
        wrong += [f"{self._log} does not list {p}" for p in expected if p not in there]
        wrong += [
            f"{self._log} lists {path} with {there[path]['size']} bytes, not {file.bytes}"
            for path, file in expected.items()
            if path in there and there[path]["size"] != file.bytes
        ]
        return wrong

    def file_problems(self) -> list[str]:
        """Return which of the listed files are not there, or are others."""
        wrong = []
        for path, add in self.state.files.items():
            try:
                size = (self.folder / unquote(path)).stat().st_size
            except FileNotFoundError:
                wrong.append(f"{self.folder / path} is gone: Delta's readers miss its rows")
                continue
            if size != add["size"]:
                wrong.append(f"{self.folder / path} has {size} bytes, not {add['size']}")
        return wrong[:MOST_TOLD]

    def same_bytes(self) -> list[str]:
        """Return which of the listed files are not those of the table, byte for byte."""
        wrong = []
        for path in self.state.files:
            ours, theirs = self._source / unquote(path), self.folder / unquote(path)
            if not ours.samefile(theirs) and ours.read_bytes() != theirs.read_bytes():
                wrong.append(f"{theirs} has another content than {ours}")
        return wrong

    # -- writing -----------------------------------------------------------------------------------

    def write(self, manifest: Manifest, content: Content) -> None:
        """Write a batch's version, with its files in place before it."""
        actions = version_of(manifest, content, self.state)
        self._link(content.files)
        self._publish(manifest.batch, actions, self._log, manifest.committed_ms)
        self.state.apply(actions)
        self.next = manifest.batch + 1

    def _link(self, files: Sequence[File]) -> None:
        made = set()
        for file in files:
            target = self.folder / file.path
            made |= {target.parent, *target.parent.parents} - set(self.folder.parents)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # by a run that died before the version
                os.link(self._source / file.path, target)
        if self._sync:
            for folder in made:
                to_disk(folder)

    def _publish(self, number: int, actions: list[Action], log: Path, at_ms: int) -> None:
        """Write a version file whole or not at all; OttlaError if there is one already."""
        log.mkdir(parents=True, exist_ok=True)
        scratch = self._table / STAGING / f".delta.{uuid.uuid4().hex}"
        target = log / f"{number:020d}.json"
        scratch.write_bytes(encoded(actions))
        if self._sync:
            to_disk(scratch)
        # Readers take a version's time from its file.
        os.utime(scratch, ns=(at_ms * 1_000_000, at_ms * 1_000_000))
        try:
            os.link(scratch, target)
        except FileExistsError:
            raise OttlaError(
                f"{target} is there already: another program has written into the table, and "
                "Delta's readers lack a batch that is committed; move it away and run again"
            ) from None
        finally:
            scratch.unlink()
        if self._sync:
            to_disk(log)

    def restore(
        self, batches: Sequence[Manifest], values: Callable[[Manifest], Sequence[Field]]
    ) -> None:
        """Write the whole log anew, as a table of another id: readers of the old must notice."""
        self.state = state = State(str(uuid.uuid4()))
        scratch = self._table / STAGING / f"delta-{uuid.uuid4().hex}"
        scratch.mkdir(parents=True)
        for manifest in batches:
            content = self.content(manifest, values(manifest))
            for number in range(manifest.first, manifest.batch):
                actions = empty_version(manifest, number, content, state)
                self._publish(number, actions, scratch, manifest.committed_ms)
                state.apply(actions)
            actions = version_of(manifest, content, state)
            self._link(content.files)
            self._publish(manifest.batch, actions, scratch, manifest.committed_ms)
            state.apply(actions)
        if self._log.exists():
            self._log.rename(self._table / STAGING / f"delta-{uuid.uuid4().hex}")
        self.folder.mkdir(parents=True, exist_ok=True)
        if batches:
            scratch.rename(self._log)

    def relink(self, batches: Sequence[Manifest]) -> None:
        """Put all files in place anew."""
        files = [f for m in batches for f in self.files_of(m)]
        for file in files:
            (self.folder / file.path).unlink(missing_ok=True)
        self._link(files)

    def clean(self, before_ms: int) -> int:
        """Delete files that versions removed before a time; return how many there were."""
        found = 0
        for path, at in self.state.removed.items():
            target = self.folder / unquote(path)
            if at < before_ms and target.is_file():
                target.unlink()
                found += 1
                for folder in target.parents:
                    if folder == self.folder or any(folder.iterdir()):
                        break
                    folder.rmdir()
        return found


class Delta:
    """Both Delta tables of a table; `values` gives the columns of a batch's values."""

    def __init__(
        self,
        table: Path,
        binding: Binding,
        values: Callable[[Manifest], Sequence[Field]],
        *,
        sync: bool = True,
    ) -> None:
        self._values = values
        self.logs = [DeltaLog(table, kind, binding, sync=sync) for kind in (DATA, DEAD)]

    def recover(self, batches: Sequence[Manifest], *, restore: bool) -> None:
        """Write the newest batch's version if it is not there; OttlaError if more is wrong.

        `restore`: then both logs are written anew.
        """
        for log in self.logs:
            wrong = log.replay(batches, self._values)
            if wrong and restore:
                log.restore(batches, self._values)
                wrong = log.replay(batches, self._values)
            if restore and log.file_problems():
                log.relink(batches)
            wrong += log.file_problems()
            if wrong:
                raise OttlaError(f"{wrong[0]}; {WAY_OUT}")
        self.follow(batches)

    def follow(self, batches: Sequence[Manifest]) -> None:
        """Write the versions of batches that have been committed and have none."""
        for log in self.logs:
            for manifest in batches:
                if manifest.batch >= log.next:
                    log.write(manifest, log.content(manifest, self._values(manifest)))

    def problems(self, batches: Sequence[Manifest]) -> list[str]:
        """Compare versions and files with the manifests; return what is wrong.

        Of a table that another run writes into the newest version may not be there yet.
        """
        wrong: list[str] = []
        for log in self.logs:
            wrong += log.replay(batches, self._values)
            wrong += log.file_problems()
        return wrong

    def behind(self, batches: Sequence[Manifest]) -> list[str]:
        """Return which versions are not there yet; after `problems`, with the lock held."""
        last = batches[-1].batch if batches else -1
        return [f"{log.path(last)} is not there" for log in self.logs if log.next <= last]

    def other_bytes(self) -> list[str]:
        """Return which files have another content than the table's; after `problems`."""
        return [line for log in self.logs for line in log.same_bytes()]

    def clean(self, retention_s: float) -> int:
        """Delete files that versions removed so long ago; return how many there were."""
        before_ms = time.time_ns() // 1_000_000 - round(retention_s * 1000)
        return sum(log.clean(before_ms) for log in self.logs)


def can_link(folder: Path) -> bool:
    """Return whether a folder's file system has hard links."""
    one, other = (folder / f".link.{uuid.uuid4().hex}" for _ in range(2))
    one.touch()
    try:
        os.link(one, other)
    except OSError:
        return False
    finally:
        one.unlink()
        other.unlink(missing_ok=True)
    return True


def counted(folder: Path, files: Sequence[File]) -> list[File]:
    """Return files with the number of their rows."""
    from pyarrow import parquet

    return [File(f.path, f.bytes, parquet.read_metadata(folder / f.path).num_rows) for f in files]
