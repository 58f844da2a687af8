"""The tree and the sessions of one server in ZooKeeper's files: opened, logged, snapshotted.

Invariants: `durable` counts transactions that no crash can take back, in the order of `append`; one
fsync is under way at a time, in a worker, and takes all that came meanwhile with the next one;
whatever ends the flush task ends the server. What is opened is the newest whole snapshot and the
log after it without a gap: a batch torn by a crash is cut off, for none of it was acknowledged;
anything else that is damaged is refused, unless the operator accepts the loss. What was read of the
newest log is written again before it is trusted. A real ZooKeeper 3.8 or 3.9 opens the folder, and
this opens its. ZooKeeper: `ZKDatabase`, `FileTxnSnapLog`, `SyncRequestProcessor`.
"""

import asyncio
import logging
from collections.abc import Callable

from ottla.model.errors import StartupError, WireError
from ottla.model.ports import Lock, World
from ottla.model.time_slices import yield_to_loop
from ottla.zookeeper import snapshot_file, txn_log
from ottla.zookeeper.errors import NoNodeError
from ottla.zookeeper.memory_tree import Tree
from ottla.zookeeper.snapshot_file import Snapshot
from ottla.zookeeper.transactions import Transaction, replay
from ottla.zookeeper.txn_log import DamagedFileError, LogWriter, MissingTransactionsError

log = logging.getLogger(__name__)

SNAPSHOT_TRANSACTIONS = 100_000
KEPT_SNAPSHOTS = 3
READ_BYTES = 1 << 20
ACCEPT_LOSS = "--accept-data-loss"
SET_ASIDE = "damaged"
_SIGN = 1 << 63


class Database:
    """See the module. `data_dir` is ZooKeeper's dataDir; its files are in `version-2`."""

    def __init__(
        self,
        world: World,
        data_dir: str,
        *,
        snapshot_transactions: int = SNAPSHOT_TRANSACTIONS,
        accept_loss: bool = False,
    ) -> None:
        """`accept_loss`: start from what precedes a damage, and set the damaged files aside."""
        self.tree = Tree(kept=True)
        self.sessions: dict[int, int] = {}
        """Timeouts in milliseconds, by session id."""
        self.appended = self.durable = 0
        """How many transactions were appended, and how many of them are durable."""
        self.on_durable: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda _: None
        self.failure: Exception | None = None
        """What ended it: nothing becomes durable after that."""
        self._world = world
        self._files = world.files
        self._data_dir = data_dir
        self.folder = f"{data_dir}/version-2"
        self._snapshot_transactions = snapshot_transactions
        self._accept_loss = accept_loss
        self._logged = 0
        """The last zxid in the log, or on its way into it."""
        self._since_snapshot = 0
        self._writer = LogWriter(world.files, self.folder)
        self._flushing: asyncio.Task[None] | None = None
        self._snapshotting: asyncio.Task[None] | None = None
        self._lock: Lock | None = None
        self._closing = False

    # --- opening ----------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the folder and read it; StartupError in one line for what cannot be used."""
        try:
            self._files.make_dirs(self.folder)
            self._lock = self._files.lock(f"{self._data_dir}/.lock")
            for scratch in (self._scratch, f"{self.folder}/{txn_log.SCRATCH}"):
                if self._files.exists(scratch):
                    self._files.remove(scratch)
            self._read()
            self._logged = self.tree.zxid
        except BlockingIOError:
            raise StartupError(f"{self._data_dir} is in use by another server") from None
        except DamagedFileError as error:
            self.release()
            raise StartupError(str(error)) from None
        except OSError as error:
            self.release()
            raise StartupError(f"{error.filename or self._data_dir}: {error.strerror}") from None

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def _scratch(self) -> str:
        return f"{self.folder}/ottla.tmp"  # ZooKeeper takes snapshot.N.tmp for a snapshot

    def _read(self) -> None:
        for name in self._files.listdir(self.folder):
            if name.startswith("snapshot.") and txn_log.zxid_of(name, "snapshot") is None:
                raise DamagedFileError(
                    f"{self.folder}/{name} is compressed, which is not read here: let its "
                    "ZooKeeper write one with zookeeper.snapshot.compression.method=CHECKED"
                )
        fuzzy = self._read_snapshot()
        logs = txn_log.numbered(self._files, self.folder, "log")
        begin = max((zxid for zxid, _ in logs if zxid <= self.tree.zxid + 1), default=0)
        needed = [path for zxid, path in logs if zxid >= begin]
        for index, path in enumerate(needed):
            try:
                self._replay(path, fuzzy, newest=path == needed[-1])
            except MissingTransactionsError as error:
                if not self._accept_loss:
                    raise DamagedFileError(
                        f"{error}; restore {self.folder} from a copy, or start once with "
                        f"{ACCEPT_LOSS}: it loses every change after zxid {self.tree.zxid:#x}"
                    ) from None
                self._set_aside(needed[index:], str(error))
                return

    def _set_aside(self, logs: list[str], reason: str) -> None:
        """Go on without what is missing, and everything later; its files stay, renamed.

        A snapshot of what there is comes first, so that a crash at any point loses no more.
        """
        zxid = self.tree.zxid
        snapshots = txn_log.numbered(self._files, self.folder, snapshot_file.PREFIX)
        if zxid not in (number for number, _ in snapshots):
            self._files.write_durable(self._scratch, b"".join(self._snapshot().slices()))
            self._name_snapshot(zxid)
            self._files.fsync_dir(self.folder)
        # A later snapshot was passed over: it is not whole, and would count as one that is kept.
        for path in [*(path for number, path in snapshots if number > zxid), *logs]:
            aside = f"{self.folder}/{SET_ASIDE}.{path.rpartition('/')[2]}"
            while self._files.exists(aside):
                aside += ".1"  # an earlier one stays
            self._files.rename(path, aside)
            log.critical(
                "changes lost, file set aside zxid=%#x path=%s reason=%s",
                zxid,
                aside,
                reason,
            )
        self._files.fsync_dir(self.folder)

    def _read_snapshot(self) -> int:
        """Take the newest whole snapshot; return until which zxid changes may be in it."""
        snapshots = txn_log.numbered(self._files, self.folder, snapshot_file.PREFIX)
        for zxid, path in reversed(snapshots):
            try:
                data = self._contents(path)
                self.tree, self.sessions, fuzzy = snapshot_file.read(data, zxid, path)
            except DamagedFileError as error:
                log.warning("snapshot passed over reason=%s", error)
            else:
                log.info("snapshot read zxid=%#x znodes=%d", zxid, len(self.tree.nodes))
                return fuzzy
        if snapshots:
            raise DamagedFileError(f"{self.folder}: none of its snapshots is whole")
        for _, path in txn_log.numbered(self._files, self.folder, "log"):
            found = txn_log.read(self._contents(path), path)
            if found.entries or found.damage is not None:
                raise DamagedFileError(f"{path} has transactions, and there is no snapshot")
            self._files.remove(path)
        self._files.write_durable(self._scratch, b"".join(self._snapshot().slices()))
        self._name_snapshot(0)
        self._files.fsync_dir(self.folder)
        return 0

    def _snapshot(self) -> Snapshot:
        return Snapshot(self.tree, self.sessions)

    def _name_snapshot(self, zxid: int) -> None:
        self._files.rename(self._scratch, f"{self.folder}/{snapshot_file.name_of(zxid)}")

    def _contents(self, path: str) -> bytes:
        """Return a file's bytes without the zeros that were taken in advance."""
        file = self._files.open(path)
        try:
            size, parts, position = file.size(), [], 0
            zeros = 0
            while position < size and (part := file.pread(READ_BYTES, position)):
                position += len(part)
                if part.count(0) == len(part):
                    zeros += len(part)
                    continue
                parts += [bytes(zeros), part]
                zeros = 0
            return b"".join(parts)
        finally:
            file.close()

    def _replay(self, path: str, fuzzy: int, *, newest: bool) -> None:
        data = self._contents(path)
        found = txn_log.read(data, path)
        for entry in found.entries:
            t = entry.transaction
            last = self.tree.zxid
            if t.zxid <= last:
                continue
            if t.zxid != last + 1 and t.zxid >> 32 == last >> 32:
                raise MissingTransactionsError(
                    f"{path}: the transactions from {last + 1:#x} to {t.zxid - 1:#x} are missing"
                )
            try:
                replay(self.tree, self.sessions, t)
            except (NoNodeError, WireError) as error:
                raise DamagedFileError(f"{path}: transaction {t.zxid:#x}: {error}") from None
            self._since_snapshot += 1
            if t.digest is not None and t.zxid > fuzzy and t.digest != self._digest():
                log.warning("digest differs zxid=%#x path=%s", t.zxid, path)
                fuzzy = 1 << 63  # once is enough
        if found.damage is not None:
            raise MissingTransactionsError(found.damage)
        if newest:
            self._make_durable(path, data[: found.end], found)

    def _make_durable(self, path: str, data: bytes, found: txn_log.LogFile) -> None:
        """Cut off what is torn, and write the rest again: the disk may not have it.

        A killed process may not have come to its fsync. After an fsync that failed the system may
        count as clean what it did not write: it is read from memory, a later fsync succeeds, and it
        is gone when memory is. Only what is written again is sure to be part of the next fsync.
        """
        if found.torn:
            log.info("unfinished batch cut off path=%s position=%d", path, found.end)
        if not found.entries:
            self._files.remove(path)
        else:
            file = self._files.open(path)
            try:
                file.pwrite([data], 0)
                file.truncate(found.end)  # also if an earlier start did so and its fsync failed
                file.fsync()
            finally:
                file.close()
        self._files.fsync_dir(self.folder)

    # --- changes ----------------------------------------------------------------------------

    def _digest(self) -> int:
        """Return the tree's digest as Java's long."""
        return self.tree.digest - ((self.tree.digest & _SIGN) << 1)

    def append(self, session: int, cxid: int, time_ms: int, kind: int, body: bytes) -> None:
        """Log the transaction that the tree has just done."""
        if self.tree.zxid != self._logged + 1:
            # The rest of a log with a gap could never be read again.
            self.fail(RuntimeError(f"the change {self._logged + 1:#x} did not come into the log"))
        if self.failure is not None:
            return
        self._logged = self.tree.zxid
        t = Transaction(session, cxid, self.tree.zxid, time_ms, kind, body, self._digest())
        self._writer.append(t)
        self.appended += 1
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush(), name="fsync")

    async def _flush(self) -> None:
        """Make all that was appended durable, batch by batch."""
        try:
            while self.durable < self.appended:
                if self._writer.needs_file:
                    await self._world.workers.run(self._writer.begin_file)
                count = self.appended
                self._writer.write()
                await self._world.workers.run(self._writer.sync)
                self._since_snapshot += count - self.durable
                self.durable = count
                self.on_durable()
                if self._since_snapshot >= self._snapshot_transactions and not self._closing:
                    self._begin_snapshot()
        except Exception as error:  # noqa: BLE001 - without this task no client gets a reply
            self.fail(error)
        else:
            self._flushing = None

    @property
    def is_complete(self) -> bool:
        """Whether everything that the tree did is in the log, or on its way into it."""
        return self._logged == self.tree.zxid

    def fail(self, error: Exception) -> None:
        """End it: nothing more becomes durable, and `on_failure` is called, once."""
        if self.failure is None:
            self.failure = error
            unexpected = not isinstance(error, OSError)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self.folder  # a write does not name its file
            log.critical("transaction log not written error=%s", error, exc_info=unexpected)
            self.on_failure(error)

    def _begin_snapshot(self) -> None:
        if self._snapshotting is not None:
            return  # the last one is still being written
        self._since_snapshot = 0
        self._writer.roll()
        loop = asyncio.get_running_loop()
        self._snapshotting = loop.create_task(self._write_snapshot(), name="snapshot")

    async def _write_snapshot(self) -> None:
        snapshot = self._snapshot()
        try:
            file = self._files.open(self._scratch, create=True)
            file.truncate(0)
            position = 0
            for part in snapshot.slices():
                position += file.pwrite([part], position)
                await yield_to_loop()
            await self._world.workers.run(file.fsync)
            file.close()
            self._name_snapshot(snapshot.zxid)
            await self._world.workers.run(self._files.fsync_dir, self.folder)
            log.info("snapshot written zxid=%#x bytes=%d", snapshot.zxid, position)
            self._purge()
        except Exception as error:
            unexpected = not isinstance(error, OSError)
            log.error("snapshot not written error=%s", error, exc_info=unexpected)  # noqa: TRY400
        finally:
            self.tree.before_change = None
            self._snapshotting = None

    def _purge(self) -> None:
        """Remove snapshots but the newest, and logs that only older ones need."""
        snapshots = txn_log.numbered(self._files, self.folder, snapshot_file.PREFIX)
        kept = snapshots[-KEPT_SNAPSHOTS:]
        logs = txn_log.numbered(self._files, self.folder, "log")
        needed = max((zxid for zxid, _ in logs if zxid <= kept[0][0] + 1), default=0)
        old = [path for zxid, path in logs if zxid < needed]
        for path in [path for _, path in snapshots[:-KEPT_SNAPSHOTS]] + old:
            self._files.remove(path)

    async def close(self) -> None:
        """Wait until everything is durable, and let the folder go."""
        self._closing = True
        if self._snapshotting is not None:
            await self._snapshotting
        if self._flushing is not None:
            await self._flushing
        self._writer.roll()
        self.release()
