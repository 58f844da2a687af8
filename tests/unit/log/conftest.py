"""What the tests of the room `log` share: a world with real files and a clock set by hand."""

import random
from pathlib import Path

import pytest

from ottla.log.files import OsFiles
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.recovery import Known
from ottla.model.config import BrokerConfig, TopicConfig, default_topic_config
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.wire.records import COMMIT, Record, build_batch, build_control_batch, iter_batches
from support.logs import open_log


class ManualClock:
    """Time stands still until a test moves it."""

    slice_s = 0.008

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.wall = 1_700_000_000_000
        self.tick_s = 0.0
        """what every look at the clock takes"""

    def monotonic(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def wall_ms(self) -> int:
        return self.wall

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall += int(seconds * 1000)


class Inline:
    """Workers that work at once."""

    async def run(self, function, *args):
        return function(*args)


class FailingFiles:
    """Files whose writes, fsyncs or reads fail once a test sets it."""

    def __init__(self, files: OsFiles) -> None:
        self._files = files
        self.broken: dict[str, OSError] = {}
        self.calls: list[str] = []

    def __getattr__(self, name):
        return getattr(self._files, name)

    def check(self, what: str) -> None:
        if what in self.broken:
            raise self.broken[what]

    def open(self, path: str, *, create: bool = False) -> "FailingFile":
        self.check("open")
        return FailingFile(self, self._files.open(path, create=create))

    def sync_tree(self, path: str) -> None:
        self.check("fsync")
        self.calls.append("sync_tree")
        self._files.sync_tree(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.check("write")
        self.calls.append("write_atomic")
        self._files.write_atomic(path, data)

    def write_durable(self, path: str, data: bytes) -> None:
        self.check("write")
        self.calls.append("write_durable")
        self._files.write_durable(path, data)


class FailingFile:
    def __init__(self, files: FailingFiles, file) -> None:
        self._files = files
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def pwrite(self, parts, offset):
        self._files.check("write")
        return self._file.pwrite(parts, offset)

    def pread(self, size, offset):
        self._files.check("read")
        return self._file.pread(size, offset)

    def fsync(self):
        self._files.check("fsync")
        self._file.fsync()


class Kit:
    """A folder, a world, and short words for what the tests do."""

    tp = TopicPartition("t", 0)

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.folder = folder / "t-0"
        self.folder.mkdir()
        self.clock = ManualClock()
        self.files = FailingFiles(OsFiles())
        self.world = World(self.clock, random.Random(7), self.files, None, Inline())  # type: ignore[arg-type]

    def config(self, **overrides: object) -> TopicConfig:
        return default_topic_config(**{k: str(v) for k, v in overrides.items()})

    def open(
        self,
        *,
        clean=False,
        recovery_point=0,
        log_start_offset=0,
        high_watermark=None,
        cleaned_offset=-1,
        **overrides,
    ) -> Log:
        return open_log(
            self.tp,
            str(self.folder),
            self.config(**overrides),
            self.world,
            Known(
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                high_watermark=high_watermark,
                cleaned_offset=cleaned_offset,
            ),
        )

    def reopen(self, log: Log, *, clean: bool = False, **keywords) -> Log:
        """Stop `log` (cleanly or as kill -9 does) and load what it left."""
        if clean:
            log.close()
            keywords.setdefault("recovery_point", log.recovery_point)
        else:
            log.abandon()
        return self.open(clean=clean, **keywords)

    def manager(self, *dirs: str, **properties: str) -> LogManager:
        config = BrokerConfig(
            {
                "zookeeper.connect": "unused:2181",
                "broker.id": "1",
                "log.dirs": ",".join(str(self.root / d) for d in dirs or ("data",)),
                **properties,
            }
        )
        return LogManager(self.world, config)

    # Batches ---------------------------------------------------------------------------

    def batch(self, count: int = 1, *, at: int = 1000, size: int = 10, key=b"k", **header):
        """Return a batch in a buffer of its own, as a frame's is; timestamps at, at + 1, ..."""
        records = [Record(timestamp=at + i, key=key, value=b"v" * size) for i in range(count)]
        return memoryview(bytearray(build_batch(records, **header)))

    def marker(self, producer_id=1, epoch=0, kind=COMMIT, coordinator_epoch=0, **header):
        return memoryview(
            bytearray(
                build_control_batch(
                    kind,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    coordinator_epoch=coordinator_epoch,
                    timestamp=5000,
                    **header,
                )
            )
        )

    def fill(self, log: Log, batches: int, count: int = 1, epoch: int = 0, **keywords) -> None:
        for number in range(batches):
            log.append_as_leader(
                self.batch(count, at=1000 + 10 * number, **keywords), epoch, self.clock.wall
            )

    def send(self, log: Log, *, sequence: int, count=1, producer_id=1, epoch=0, txn=False, now=0):
        """Append one batch of an idempotent or transactional producer."""
        batch = self.batch(
            count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=txn,
        )
        return log.append_as_leader(batch, 0, now)

    def everything(self, log: Log) -> bytes:
        """Return all bytes of the log, read as a consumer does."""
        out = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = log.read(offset, 1 << 20, log.log_end_offset)
            data = b"".join(found.parts)
            assert data, f"nothing at {offset} of {log}"
            out.append(data)
            offset = self.end_of(data)
        return b"".join(out)

    @staticmethod
    def end_of(data: bytes) -> int:
        """Return the offset after the last batch in `data`."""
        return [header.next_offset for _, header in iter_batches(data)][-1]


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)
