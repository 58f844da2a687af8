"""A simulated disk whose machine dies at a chosen file operation, for tests with power losses."""

from ottla.sim.files import DiedError, SimDisk, SimFiles

WORK = frozenset(("write", "fsync", "open"))


class Disk(SimDisk):
    """A disk whose machine dies before a given operation that changes something."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.last: int | None = None
        self.files: SimFiles | None = None
        # Hits nothing: a disk without faults does not ask for them.
        self.fail("/", (), 0)

    def fault(self, operation, path):
        if operation in WORK:
            self.operations += 1
            if self.operations == self.last:
                assert self.files is not None
                self.files.kill()
                raise DiedError(f"{operation} {path}")
        return super().fault(operation, path)
