"""The gap bound of a log: a segment that begins above it begins where the one before it ends.

A gap before a segment may be the cleaner's work (also where the policy is no longer compact), or
the end of the older segment was lost with the machine's power. The bound tells them apart: the
cleaner raises it, durably, before it removes anything, and cleans only what is flushed; new
segments begin at the log end, whatever offsets are missing after it. So after a crash a gap above
the bound is a loss, and a gap up to it is none (F5, adr/0022). Invariants: the file is durable
before a segment is created above what it says; it says at least what the cleaner has reached. A JVM
broker keeps to none of this, so it must not leave the file: when it loads a partition's folder it
removes all files whose names end with `.deleted`. Without the file a log may have gaps anywhere.
"""

import contextlib

from google_crc32c import value as crc32c

from ottla.log.flush_job import FlushJob
from ottla.log.segment import Segment
from ottla.model.errors import CorruptRecordError
from ottla.model.steps import drain

NAME = ".ottla-gaps.deleted"
"""In a partition's folder: `encode`'s text."""


def encode(upto: int) -> bytes:
    """Return the file's text: the bound, and a checksum, since a bound too low costs records."""
    line = f"gaps_upto={upto}\n".encode()
    return line + b"crc32c=%08x\n" % crc32c(line)


def decode(data: bytes) -> int | None:
    """Return the bound that `encode` was given, None if these bytes are no such text."""
    first, _, _ = data.partition(b"\n")
    key, _, value = first.partition(b"=")
    with contextlib.suppress(ValueError):
        if key == b"gaps_upto" and encode(int(value)) == data:
            return int(value)
    return None


class GapBound:
    """The bound of one log and what its file says.

    `on_disk`: what the file says, None without one.
    """

    __slots__ = ("_job", "gap_before", "on_disk", "upto")

    def __init__(self, upto: int, on_disk: int | None = None) -> None:
        self.upto = upto
        self.on_disk = on_disk
        self.gap_before: int | None = None
        """a log end before which offsets may be missing, since the log was truncated to it"""
        self._job = 0
        """number of the job that wrote the file last"""

    @property
    def unwritten(self) -> bool:
        """Whether the file is to be written before the next segment is created."""
        return self.on_disk != self.upto

    def raise_to(self, offset: int) -> None:
        """Allow gaps up to `offset`, below which all is flushed; write the file before."""
        self.upto = max(self.upto, offset)

    def on_truncated(self, log_end_offset: int, active: Segment) -> None:
        """Lower the bound after a truncation; OSError if the active segment cannot be read.

        Where offsets are missing before the log end, a segment that begins now begins behind a gap.
        """
        self.upto = min(self.upto, log_end_offset)
        self.gap_before = log_end_offset
        end: int | None = None
        with contextlib.suppress(CorruptRecordError):
            end = active.base_offset if not active.size else drain(active.finding_end())
        if end == log_end_offset:
            self.gap_before = None

    def add_to(self, job: FlushJob, folder: str) -> None:
        """Add the file to a job that has its number by now or gets it next."""
        job.to_write.append((f"{folder}/{NAME}", encode(self.upto)))
        if folder not in job.folders:  # the file's name is to be durable, too
            job.folders.append(folder)

    def written_by(self, job: FlushJob) -> None:
        """Note what a job has written, unless a later one has."""
        for path, data in job.to_write:
            if path.endswith(NAME) and job.number > self._job:
                self.on_disk, self._job = decode(data), job.number
