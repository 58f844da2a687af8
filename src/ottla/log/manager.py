"""All logs of a broker, over its log dirs.

Who may call: `replication.replica_manager` and `broker`. Answers to Kafka's `LogManager`.
Invariants: a log dir is locked while we live; the clean marker is gone before anything is loaded
and comes back only after everything is flushed; recovery points on disk never run ahead of an
fsync; a dir that failed once stays offline until the next start (F17, F18), the others live on. A
partition has one current log and, while it moves to another dir, a future log there.
Everything is synchronous but `flush_dirty` and the `write_*` coroutines, which let a worker wait
for the disk; `loading` and `periodic` work in slices, so that no callback is long.
"""

import logging
from collections.abc import Callable, Iterator, Mapping

from ottla.log import checkpoints
from ottla.log.checkpoints import CheckpointError, MetaProperties
from ottla.log.flusher import Flusher
from ottla.log.local_log import LocalLog
from ottla.log.log import Log
from ottla.log.log_dir import (
    DELETE,
    FUTURE,
    REPLACED_BY,
    STRAY,
    LogDir,
    delete_folder,
    future_folder,
    parse_folder,
    parse_future_folder,
)
from ottla.log.tail import TailBudget
from ottla.model.config import BrokerConfig, TopicConfig
from ottla.model.errors import OttlaError, StartupError, StorageError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import Workers, World

_logger = logging.getLogger(__name__)

_STAGED = ".next"
_SLICE_S = 0.005
_MOST_PREFERRED = 100_000


class LogManager:
    """The logs of one broker."""

    def __init__(
        self, world: World, config: BrokerConfig, budget: TailBudget | None = None
    ) -> None:
        self._world = world
        self._files = world.files
        self._config = config
        self.budget = budget or TailBudget()
        self._dirs = {path: LogDir(path) for path in config.log_dirs}
        self._logs: dict[TopicPartition, Log] = {}
        self._futures: dict[TopicPartition, Log] = {}
        """copies in other dirs that are to replace the current logs"""
        self._flusher = Flusher(
            world.files,
            self.all_logs,
            lambda path, error: self._dir_failed(self._dirs[path], error),
        )
        self._topic_configs: Callable[[str], TopicConfig] = _no_topic_config
        self._expiration_ms = config.integer("producer.id.expiration.ms")
        self.meta: MetaProperties | None = None
        self.on_dir_failure: Callable[[str], None] | None = None
        """told the path of a log dir that went offline"""
        self._doomed: list[tuple[float, str]] = []
        """(when, path) of renamed files and folders to remove, in order"""
        self._retention_due_s = 0.0
        self._retention_queue: list[Log] = []
        self._lowerings = 0
        self.recovered_logs = 0
        self._preferred: dict[TopicPartition, LogDir] = {}
        """where logs that are not here yet are to be created"""
        self.unclean: set[TopicPartition] = set()
        """logs found after an unclean stop: acknowledged records may be gone from their ends"""

    # Start -----------------------------------------------------------------------------

    @property
    def offline_dirs(self) -> list[str]:
        return [d.path for d in self._dirs.values() if d.offline is not None]

    @property
    def live_dirs(self) -> list[str]:
        return [d.path for d in self._dirs.values() if d.offline is None]

    def startup(self, topic_configs: Callable[[str], TopicConfig]) -> None:
        """Lock the dirs, load all logs; StartupError names what is in the way."""
        for _ in self.loading(topic_configs):
            pass

    def loading(self, topic_configs: Callable[[str], TopicConfig]) -> Iterator[tuple[int, int]]:
        """As `startup`, one log per step; yields (logs loaded, logs found in this dir)."""
        self._topic_configs = topic_configs
        for log_dir in self._dirs.values():
            self._open_dir(log_dir)
        self._check_meta()
        for log_dir in self._dirs.values():
            if log_dir.offline is None:
                try:
                    yield from self._load_dir(log_dir)
                except OSError as error:
                    self._dir_failed(log_dir, error)
        if not self.live_dirs:
            raise StartupError(f"no log dir is usable: {', '.join(self._dirs)}")

    def _open_dir(self, log_dir: LogDir) -> None:
        try:
            self._files.make_dirs(log_dir.path)
            log_dir.lock = self._files.lock(log_dir.file(checkpoints.LOCK))
        except BlockingIOError as error:
            raise StartupError(
                f"log dir {log_dir.path} is in use by another broker; stop it or use another "
                "log.dirs"
            ) from error
        except OSError as error:
            self._dir_failed(log_dir, error)

    def _check_meta(self) -> None:
        """Read each dir's meta.properties; all must be of one broker and one cluster."""
        for log_dir in self._dirs.values():
            path = log_dir.file(checkpoints.META_PROPERTIES)
            if log_dir.offline is not None or not self._files.exists(path):
                continue
            try:
                meta = checkpoints.decode_meta_properties(self._files.read_bytes(path))
            except CheckpointError as error:
                raise StartupError(f"{path}: {error}") from error
            except OSError as error:
                self._dir_failed(log_dir, error)
                continue
            if meta.broker_id != self._config.broker_id:
                raise StartupError(
                    f"{path} belongs to broker {meta.broker_id}, but broker.id="
                    f"{self._config.broker_id}; use that id or another log.dirs"
                )
            if self.meta is not None and self.meta != meta:
                raise StartupError(
                    f"{path} belongs to cluster {meta.cluster_id}, another log dir to "
                    f"{self.meta.cluster_id}"
                )
            self.meta = meta

    def write_meta(self, meta: MetaProperties) -> None:
        """Mark all live dirs as this broker's and this cluster's, where they are not yet."""
        data = checkpoints.encode_meta_properties(meta)
        for log_dir in self._live():
            path = log_dir.file(checkpoints.META_PROPERTIES)
            try:
                if not self._files.exists(path):
                    self._files.write_atomic(path, data)
            except OSError as error:
                self._dir_failed(log_dir, error)
        self.meta = meta

    def _load_dir(self, log_dir: LogDir) -> Iterator[tuple[int, int]]:
        files = self._files
        marker = log_dir.file(checkpoints.CLEAN_SHUTDOWN)
        log_dir.clean = files.exists(marker)
        if log_dir.clean:
            # Before anything is loaded: a crash from here on is an unclean stop.
            files.remove(marker)
            files.fsync_dir(log_dir.path)
        names = files.listdir(log_dir.path)
        log_dir.recovery_points = self._read(log_dir, checkpoints.RECOVERY_POINTS, names)
        log_dir.log_starts = self._read(log_dir, checkpoints.LOG_STARTS, names)
        log_dir.high_watermarks = self._read(log_dir, checkpoints.HIGH_WATERMARKS, names)
        log_dir.cleaned = self._read(log_dir, checkpoints.CLEANER_OFFSETS, names)
        folders = [n for n in names if "-" in n and files.is_dir(log_dir.file(n))]
        for done, name in enumerate(folders, 1):
            self._load_folder(log_dir, name)
            yield done, len(folders)

    def _load_folder(self, log_dir: LogDir, name: str) -> None:
        if name.endswith(DELETE):
            self._doom(log_dir.file(name), 0)
            return
        tp = parse_future_folder(name)
        logs = self._logs if tp is None else self._futures
        tp = tp or parse_folder(name)
        if tp is None or name.endswith(STRAY) or (name.endswith(FUTURE) and logs is self._logs):
            _logger.warning("folder ignored dir=%s name=%s", log_dir.path, name)
            return
        if tp in logs and not self._settle_twins(logs[tp], log_dir, name):
            return
        log = self._open_log(log_dir, tp, name, clean=log_dir.clean)
        logs[tp] = log
        log_dir.logs += 1
        if not log_dir.clean:
            self.recovered_logs += 1
            if logs is self._logs:
                self.unclean.add(tp)
        log.set_high_watermark(log_dir.high_watermarks.get(tp, log.log_start_offset))

    def _settle_twins(self, log: Log, log_dir: LogDir, name: str) -> bool:
        """Tell whether this folder, not the log known under its name, is the partition's.

        StartupError, as in Kafka, unless a crash amid a replacement left both.
        """
        tp, folder = log.tp, log_dir.file(name)
        if self._replaced_by(log.dir) == log_dir.path:
            del self._logs[tp]
            self.retire(log)
            return True
        if self._replaced_by(folder) == self._dir_of(log).path:
            self._rename_away(log_dir, tp, folder, 0)
            return False
        raise StartupError(f"{tp} is in two log dirs: {log.dir} and {folder}; move one away")

    def _replaced_by(self, folder: str) -> str | None:
        try:
            data = self._files.read_bytes(f"{folder}/{REPLACED_BY}")
        except FileNotFoundError:
            return None
        return data.decode(errors="replace")

    def _read(self, log_dir: LogDir, name: str, names: list[str]) -> dict[TopicPartition, int]:
        """Read an offset checkpoint; what is missing or garbage has no entries (F21)."""
        if name not in names:
            return {}
        try:
            return checkpoints.decode_offsets(self._files.read_bytes(log_dir.file(name)))
        except CheckpointError as error:
            _logger.warning("checkpoint ignored file=%s reason=%s", log_dir.file(name), error)
            return {}

    def _open_log(
        self, log_dir: LogDir, tp: TopicPartition, name: str, *, clean: bool, fresh: bool = False
    ) -> Log:
        log = Log.open(
            tp,
            log_dir.file(name),
            self._topic_configs(tp.topic),
            self._world,
            recovery_point=log_dir.recovery_points.get(tp, 0),
            log_start_offset=log_dir.log_starts.get(tp, 0),
            clean=clean,
            fresh=fresh,
            budget=self.budget,
            producer_expiration_ms=self._expiration_ms,
            cleaned_offset=log_dir.cleaned.get(tp, -1),
        )
        log.on_failure = self._log_failed
        log.on_recovery_point_lowered = self._recovery_point_lowered
        return log

    # Failure ---------------------------------------------------------------------------

    def _log_failed(self, log: LocalLog, error: OSError) -> None:
        self._dir_failed(self._dir_of(log), error)

    def _dir_failed(self, log_dir: LogDir, error: OSError) -> None:
        """Take a dir and all logs in it offline; tell who asked to know."""
        if log_dir.offline is not None:
            return
        log_dir.offline = str(error)
        _logger.error("log dir offline dir=%s error=%s", log_dir.path, error)
        for log in self._logs_in(log_dir):
            log.mark_offline(f"log dir {log_dir.path} failed: {error}")
            if self._futures.get(log.tp) is log:
                del self._futures[log.tp]
        if self.on_dir_failure is not None:
            self.on_dir_failure(log_dir.path)

    def _dir_of(self, log: LocalLog) -> LogDir:
        return self._dirs[log.parent_dir]

    def _live(self) -> list[LogDir]:
        return [d for d in self._dirs.values() if d.offline is None]

    # Logs ------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def logs(self) -> list[Log]:
        return list(self._logs.values())

    def future(self, tp: TopicPartition) -> Log | None:
        """Return the log that is to replace a partition's current one, None if it stays."""
        return self._futures.get(tp)

    def all_logs(self) -> list[Log]:
        """Return current and future logs."""
        return [*self._logs.values(), *self._futures.values()]

    def _logs_in(self, log_dir: LogDir) -> list[Log]:
        return [log for log in self.all_logs() if self._dir_of(log) is log_dir]

    def get_or_create(
        self, tp: TopicPartition, topic_id: bytes = ZERO_UUID, is_new: bool = False
    ) -> Log:
        """Return the partition's log, created in the emptiest dir if there is none.

        StorageError if it is offline, or may be in a dir that is: only a partition the
        controller calls new is created then. INCONSISTENT_TOPIC_ID if it is another topic's.
        """
        log = self._logs.get(tp)
        if log is None:
            log = self._create(tp, is_new)
        elif log.failed is not None:
            raise log.failed
        if topic_id != ZERO_UUID:
            log.assign_topic_id(topic_id)
        return log

    def prefer(self, tp: TopicPartition, path: str) -> None:
        """Have a log that is not here yet created in this live dir, not in the emptiest."""
        if tp not in self._preferred and len(self._preferred) >= _MOST_PREFERRED:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[tp] = self._dirs[path]

    def _create(self, tp: TopicPartition, is_new: bool) -> Log:
        if not is_new and self.offline_dirs:
            raise StorageError(
                f"{tp} may lie in an offline log dir: {', '.join(self.offline_dirs)}"
            )
        live = self._live()
        if not live:
            raise StorageError(f"no log dir is usable for {tp}")
        log_dir = self._preferred.pop(tp, None)
        if log_dir is None or log_dir.offline is not None:
            log_dir = min(live, key=lambda d: d.logs)
        log = self._logs[tp] = self._create_in(log_dir, tp, str(tp))
        return log

    def _create_in(self, log_dir: LogDir, tp: TopicPartition, name: str) -> Log:
        folder = log_dir.file(name)
        try:
            fresh = not self._files.exists(folder)
            self._files.make_dirs(folder)
            named = log_dir.recovery_points.pop(tp, None) is not None or tp in log_dir.forgotten
            log_dir.log_starts.pop(tp, None)
            log_dir.cleaned.pop(tp, None)
            log = self._open_log(log_dir, tp, name, clean=fresh, fresh=fresh)
            log.owes_recovery_point = named
        except OSError as error:
            self._dir_failed(log_dir, error)
            raise StorageError(f"{tp} cannot be created in {log_dir.path}: {error}") from error
        log_dir.logs += 1
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Forget a log, a future one too, at once; its folder is renamed now and removed later."""
        for logs in (self._logs, self._futures):
            log = logs.pop(tp, None)
            if log is not None:
                self.retire(log)

    def retire(self, log: Log) -> None:
        """Close a log that is used no more and have its folder removed later."""
        log_dir = self._dir_of(log)
        log_dir.logs -= 1
        offline = log_dir.offline is not None
        log.abandon()
        log_dir.forget(log.tp)
        if not offline:
            self._rename_away(log_dir, log.tp, log.dir, log.config.file_delete_delay_ms / 1000)

    def _rename_away(
        self, log_dir: LogDir, tp: TopicPartition, folder: str, delay_s: float
    ) -> None:
        target = log_dir.file(delete_folder(tp, self._unique()))
        try:
            self._files.rename(folder, target)
        except OSError as error:
            self._dir_failed(log_dir, error)
            return
        self._doom(target, delay_s)
        _logger.info("log deleted tp=%s folder=%s", tp, target)

    def _unique(self) -> str:
        return f"{self._world.random.getrandbits(128):032x}"

    def delete_stray_folder(self, tp: TopicPartition) -> None:
        """Remove the folder of a partition that has no log here, as StopReplica may ask."""
        known = tp in self._logs
        self.delete(tp)
        if known:
            return
        for log_dir in self._live():
            if self._files.is_dir(log_dir.file(str(tp))):
                self._files.remove_tree(log_dir.file(str(tp)))

    # Future logs -----------------------------------------------------------------------

    def create_future(self, tp: TopicPartition, path: str) -> Log:
        """Begin an empty log in another live dir, to replace the current one when it is as long.

        StorageError while any dir is offline: a future log of this partition may lie there.
        """
        if self.offline_dirs:
            raise StorageError(
                f"a future log of {tp} may lie in an offline log dir: "
                f"{', '.join(self.offline_dirs)}"
            )
        log = self._create_in(self._dirs[path], tp, future_folder(tp, self._unique()))
        self._futures[tp] = log
        return log

    def delete_future(self, tp: TopicPartition) -> None:
        """Give a replacement up: the current log stays."""
        log = self._futures.pop(tp, None)
        if log is not None:
            self.retire(log)
            if tp in self._logs:
                self._forget_announcement(self._logs[tp])

    async def announce_replacement(self, workers: Workers, tp: TopicPartition) -> None:
        """Note in the current log's folder, durably, in which dir its future log lies.

        To be done before `promote_future`: a crash amid that leaves two current folders.
        """
        log, target = self._logs[tp], self._dir_of(self._futures[tp]).path
        try:
            await workers.run(self._files.write_atomic, f"{log.dir}/{REPLACED_BY}", target.encode())
        except OSError as error:
            if log.failed is None:
                self._dir_failed(self._dir_of(log), error)

    def promote_future(self, tp: TopicPartition) -> Log:
        """Put the future log in the place of the current one, which the caller then retires.

        Both end at the same offset, and no flush of the future log is under way. StorageError if
        its dir fails.
        """
        current, future = self._logs[tp], self._futures[tp]
        assert current.log_end_offset == future.log_end_offset, (current, future)
        assert not future.flushing, future
        if current.topic_id != ZERO_UUID:
            future.assign_topic_id(current.topic_id)
        log_dir = self._dir_of(future)
        old, new = future.dir, log_dir.file(str(tp))
        try:
            self._files.rename(old, new)
            # Else a power loss could keep the other folder's end and not this one's beginning.
            self._files.fsync_dir(log_dir.path)
        except OSError as error:
            self._forget_announcement(current)
            self._dir_failed(log_dir, error)
            raise StorageError(f"{tp} cannot be moved to {log_dir.path}: {error}") from error
        self._doomed = [
            (due_s, new + path[len(old) :] if path.startswith(f"{old}/") else path)
            for due_s, path in self._doomed
        ]
        future.relocate(new)
        future.take_over(current)
        del self._futures[tp]
        self._logs[tp] = future
        return future

    def _forget_announcement(self, log: Log) -> None:
        try:
            self._files.remove(f"{log.dir}/{REPLACED_BY}")
        except FileNotFoundError:
            pass
        except OSError as error:
            self._dir_failed(self._dir_of(log), error)

    def _doom(self, path: str, delay_s: float) -> None:
        self._doomed.append((self._world.clock.monotonic() + delay_s, path))

    # Checkpoints -----------------------------------------------------------------------

    def checkpoint_high_watermarks(self, marks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of all logs, given for those that are known better."""
        for path, data in self.high_watermark_files(marks):
            self._write(path, data)

    def high_watermark_files(
        self, marks: Mapping[TopicPartition, int] | None = None
    ) -> list[tuple[str, bytes]]:
        """Return (path, bytes) of each live dir's high watermark checkpoint."""
        by_dir: dict[str, dict[TopicPartition, int]] = {d.path: {} for d in self._live()}
        for log in self.all_logs():
            offsets = by_dir.get(self._dir_of(log).path)
            if offsets is not None:
                known = log.high_watermark
                offsets[log.tp] = known if marks is None else marks.get(log.tp, known)
        return [
            (f"{path}/{checkpoints.HIGH_WATERMARKS}", checkpoints.encode_offsets(offsets))
            for path, offsets in by_dir.items()
        ]

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks as the checkpoints had them at the start."""
        found: dict[TopicPartition, int] = {}
        for log_dir in self._live():
            found.update(log_dir.high_watermarks)
        return found

    def checkpoint_recovery_points(self) -> None:
        """Write recovery points and log starts of all live dirs, here and now."""
        for path, data in self.recovery_files():
            self._write(path, data)

    def recovery_files(self) -> list[tuple[str, bytes]]:
        """Return (path, bytes) of the recovery point and log start checkpoints."""
        found = []
        for log_dir in self._live():
            logs = self._logs_in(log_dir)
            points = {log.tp: log.recovery_point for log in logs}
            starts = {
                log.tp: log.log_start_offset
                for log in logs
                if log.log_start_offset > log.segments[0].base_offset
            }
            for name, offsets in (
                (checkpoints.RECOVERY_POINTS, points),
                (checkpoints.LOG_STARTS, starts),
            ):
                found.append((log_dir.file(name), checkpoints.encode_offsets(offsets)))
        return found

    def _write(self, path: str, data: bytes) -> None:
        log_dir = self._dirs[path.rpartition("/")[0]]
        if log_dir.offline is not None:
            return
        try:
            self._files.write_atomic(path, data)
        except OSError as error:
            self._dir_failed(log_dir, error)

    def _recovery_point_lowered(self, log: Log) -> None:
        """Write the dir's points before anything is appended where flushed records were cut."""
        log_dir = self._dir_of(log)
        logs = self._logs_in(log_dir)
        points = {other.tp: other.recovery_point for other in logs}
        self._lowerings += 1
        self._write(log_dir.file(checkpoints.RECOVERY_POINTS), checkpoints.encode_offsets(points))
        for other in logs:
            other.owes_recovery_point = False
        log_dir.forgotten.clear()

    async def write_high_watermarks(
        self, workers: Workers, marks: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """As `checkpoint_high_watermarks`, with a worker waiting for the disk."""
        await self._write_with(workers, self.high_watermark_files(marks))

    async def write_recovery_points(self, workers: Workers) -> None:
        """As `checkpoint_recovery_points`, with a worker waiting for the disk."""
        lowerings = self._lowerings
        staged = [(path, path + _STAGED, data) for path, data in self.recovery_files()]
        await self._write_with(workers, [(aside, data) for _, aside, data in staged])
        if lowerings != self._lowerings:
            return  # these points are too high by now; the right ones are on disk
        for path, aside, _ in staged:
            log_dir = self._dirs[path.rpartition("/")[0]]
            if log_dir.offline is None:
                try:
                    self._files.rename(aside, path)
                except OSError as error:
                    self._dir_failed(log_dir, error)

    async def write_cleaned_offsets(self, workers: Workers, log: Log | None = None) -> None:
        """Write how far the cleaner was in each log of this log's dir, or of all (Kafka's file)."""
        dirs = self._live() if log is None else [self._dir_of(log)]
        await self._write_with(workers, self.cleaned_files(dirs))

    def cleaned_files(self, dirs: list[LogDir]) -> list[tuple[str, bytes]]:
        """Return (path, bytes) of the cleaner offset checkpoints of those dirs that need one."""
        found = []
        for log_dir in dirs:
            offsets = {
                log.tp: log.cleaned_offset
                for log in self._logs.values()
                if log.cleaned_offset >= 0 and self._dir_of(log) is log_dir
            }
            if offsets or log_dir.cleaned:
                path = log_dir.file(checkpoints.CLEANER_OFFSETS)
                found.append((path, checkpoints.encode_offsets(offsets)))
        return found

    async def _write_with(self, workers: Workers, files: list[tuple[str, bytes]]) -> None:
        for path, data in files:
            log_dir = self._dirs[path.rpartition("/")[0]]
            if log_dir.offline is not None:
                continue
            try:
                await workers.run(self._files.write_atomic, path, data)
            except OSError as error:
                self._dir_failed(log_dir, error)

    # Flushing --------------------------------------------------------------------------

    async def flush_dirty(self, workers: Workers, *, everything: bool = False) -> int:
        """Flush what is due in a worker; return how many logs that was.

        Due are rolled segments, what flush.ms asks for and small files (epochs, topic ids). Each
        call looks at the next few hundred logs; with `everything` at all, and flushes them whole.
        """
        return await self._flusher.flush_dirty(workers, everything=everything)

    # Time ------------------------------------------------------------------------------

    def periodic(self, now_ms: int) -> bool:
        """Do a few milliseconds of what is due: retention, expiry, removal of deleted files.

        Returns whether more is due already.
        """
        clock = self._world.clock
        started_s = clock.monotonic()
        if not self._retention_queue and started_s >= self._retention_due_s:
            interval_ms = self._config.integer("log.retention.check.interval.ms")
            self._retention_due_s = started_s + interval_ms / 1000
            self._retention_queue = self.all_logs()
        while self._retention_queue and clock.monotonic() - started_s < _SLICE_S:
            log = self._retention_queue.pop()
            if log.failed is None:
                self._tend(log, now_ms)
        while self._doomed and clock.monotonic() - started_s < _SLICE_S:
            due_s, path = self._doomed[0]
            if due_s > started_s:
                break
            del self._doomed[0]
            self._remove(path)
        return bool(self._retention_queue or (self._doomed and self._doomed[0][0] <= started_s))

    def _tend(self, log: Log, now_ms: int) -> None:
        try:
            log.delete_old_segments(now_ms)
        except OttlaError as error:
            _logger.warning("retention failed tp=%s error=%s", log.tp, error)
        log.expire_producers(now_ms)
        log.release_idle()
        self.doom_deleted(log)

    def doom_deleted(self, log: Log) -> None:
        """Have the files that the log renamed to .deleted removed after file.delete.delay.ms."""
        delay_s = log.config.file_delete_delay_ms / 1000
        for path in log.deleted_files:
            self._doom(path, delay_s)
        log.deleted_files.clear()

    def _remove(self, path: str) -> None:
        try:
            if path.endswith(DELETE):
                self._files.remove_tree(path)
            else:
                self._files.remove(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            for log_dir in self._dirs.values():
                if path.startswith(log_dir.path + "/"):
                    self._dir_failed(log_dir, error)

    # Stop ------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Flush and close everything; each dir that managed it gets the clean marker."""
        for log_dir in self._live():
            self._flusher.stop(log_dir.path)
        self._say_goodbye()

    async def shutdown_with(self, workers: Workers) -> None:
        """As `shutdown`, with a worker waiting for the disk and the loop free in between."""
        for log_dir in self._live():
            await self._flusher.stop_with(workers, log_dir.path)
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        self.checkpoint_recovery_points()
        self.checkpoint_high_watermarks({})
        for path, data in self.cleaned_files(self._live()):  # a truncation may have lowered some
            self._write(path, data)
        for log in self.all_logs():
            log.abandon()
        for log_dir in self._live():
            self._write(log_dir.file(checkpoints.CLEAN_SHUTDOWN), checkpoints.CLEAN_SHUTDOWN_TEXT)
        self.abandon()

    def abandon(self) -> None:
        """Let go of everything without a word to the disk, as a crash would."""
        for log in self.all_logs():
            log.abandon()
        for log_dir in self._dirs.values():
            if log_dir.lock is not None:
                log_dir.lock.release()
                log_dir.lock = None

    def statistics(self) -> dict[str, int]:
        return {
            "logs": len(self._logs),
            "future_logs": len(self._futures),
            "offline_dirs": len(self.offline_dirs),
            "doomed": len(self._doomed),
            "tail_bytes": self.budget.used,
            "recovered_logs": self.recovered_logs,
            "corrupt_reads": sum(log.corrupt_reads for log in self._logs.values()),
        }


def _no_topic_config(topic: str) -> TopicConfig:
    raise AssertionError(f"startup() was not called before {topic}")
