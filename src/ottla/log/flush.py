"""Flush jobs: what a worker makes durable before a recovery point may move.

Who may call: `log.Log` makes and completes them, `manager` has them run by a worker. Invariants:
a job touches nothing but its own files; `run` raises OSError at the first failure, and the log it
belongs to is then failed (R12): an fsync that failed is never tried again and believed. Many jobs
at once (a stop) are cheaper as `write` of each and one `sync_tree` of their log dir.
"""

from dataclasses import dataclass, field

from ottla.model.ports import File, Files


@dataclass(slots=True)
class FlushJob:
    """Files to fsync, small files to write whole, then the folders; all up to one offset."""

    files: Files
    upto_offset: int
    truncations: int
    to_sync: list[File] = field(default_factory=list)
    to_write: list[tuple[str, bytes]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    to_close: list[File] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    """offsets of the producer snapshots among the small files"""
    number: int = 0
    """counts the jobs of one log; a higher one may have run meanwhile"""

    def run(self) -> None:
        """Make it all durable; a worker may call it."""
        for file in self.to_sync:
            if not getattr(file, "closed", False):  # deleted since: it need not last
                file.fsync()
        for path, data in self.to_write:
            self.files.write_atomic(path, data)
        for folder in self.folders:
            self.files.fsync_dir(folder)

    def write(self) -> None:
        """Only write the small files; `sync_tree` must make all durable. A worker may call it."""
        for path, data in self.to_write:
            self.files.write(path + ".tmp", data)
            self.files.rename(path + ".tmp", path)
