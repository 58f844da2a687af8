"""Loads a segment's indexes in a worker, so that no read on the event loop waits for the disk.

Who may call: `segment`. The indexes of a large segment are megabytes, and where they are missing
or wrong all its batches are looked at. Invariants: the worker touches a segment object and a
descriptor of its own; the event loop takes over what it found, unless the segment changed since.
"""

from typing import Generic, Protocol, TypeVar

from ottla.log.index import OffsetIndex
from ottla.model.ports import File


class Probe(Protocol):
    """A segment that only the worker reads, through a descriptor of its own."""

    @property
    def size(self) -> int: ...

    @property
    def offsets(self) -> OffsetIndex: ...

    def attach(self, file: File) -> None: ...

    def rebuild_indexes(self) -> None: ...

    def load_all(self) -> None: ...

    def close(self) -> None: ...


ProbeT = TypeVar("ProbeT", bound=Probe)


class IndexLoader(Generic[ProbeT]):
    """Loads the indexes of one segment, and prefetches the records to be read through them."""

    def __init__(self, probe: ProbeT, file: File, *, rebuild: bool) -> None:
        self.size = probe.size
        self.loaded: ProbeT | None = None
        """the probe, once the worker has loaded it"""
        self.rebuild = rebuild
        self._probe = probe
        self._file = file
        self._turn = file.worker_lock()

    def prefetch(self, size: int, offset: int) -> None:
        """Load the indexes, then read `size` bytes from the batch that holds `offset` on.

        A worker calls it; OSError and what else goes wrong is found again by the next read.
        """
        with self._turn:
            if self.loaded is None:
                self._load()
        assert self.loaded is not None
        position = self._probe.offsets.lookup(offset)
        self._file.prefetch(min(size, self.size - position), position)

    def _load(self) -> None:
        reader = self._file.reader()
        if reader is None:
            raise FileNotFoundError(f"{self._file.path} was closed meanwhile")
        try:
            self._probe.attach(reader)
            if self.rebuild:
                _ = self._probe.offsets  # what it is built again with the help of
                self._probe.rebuild_indexes()
            self._probe.load_all()
        finally:
            self._probe.close()
        self.loaded = self._probe
