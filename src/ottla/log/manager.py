"""All logs of a broker, over its log dirs.

Kafka: `LogManager`. Invariants: a log dir is locked while we live; the clean marker is gone before
anything is loaded and is written again only after everything is flushed; recovery points on disk
never run ahead of an fsync; a dir that failed once stays offline until the next start (F17, F18),
the others live on. A partition has one current log and, while it moves to another dir, a future log
there. Everything is synchronous but `flush_dirty` and the `write_*` coroutines, which let a worker
wait for the disk; `loading` and `periodic` work in slices, so that no callback is long.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from ottla.log import checkpoints, log_dir_files
from ottla.log.boot_ids import BootIdFiles
from ottla.log.checkpoints import MetaProperties
from ottla.log.dir_checkpoints import DirCheckpoints
from ottla.log.flusher import Flusher
from ottla.log.leaving_folders import LeavingFolders, Removals, SetAside
from ottla.log.life_notes import LifeNotes
from ottla.log.log import MAX_SEGMENTS_AT_ONCE, Log
from ottla.log.log_dir import (
    DELETE,
    FUTURE,
    REPLACED_BY,
    STRAY,
    LogDir,
    future_folder,
    parse_folder,
    parse_future_folder,
)
from ottla.log.recovery import Known
from ottla.log.results import NotInMemoryError, is_shortage
from ottla.log.slices import Steps
from ottla.log.stray_folders import STRAY_NOTE, StrayNote
from ottla.log.tail import TailBudget
from ottla.model.config import BrokerConfig, TopicConfig
from ottla.model.errors import OttlaError, OutOfDescriptorsError, StartupError, StorageError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import Clock, Workers, World
from ottla.model.steps import drain

_SLICE_S = 0.005


class LogCleanup:
    """Cleans up the logs of one manager, all of them once per interval.

    Retention, expiry of producers, release of idle indexes. Invariants: a call takes a few
    milliseconds, however many logs and segments there are; where a segment's age must be read from
    the disk, a worker reads it. Kafka: `LogManager.cleanupLogs`.
    """

    def __init__(
        self,
        clock: Clock,
        interval_ms: int,
        logs: Callable[[], list[Log]],
        remove_deleted: Callable[[Log], None],
    ) -> None:
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._logs = logs
        self._remove_deleted = remove_deleted
        self._due_s = 0.0
        self._queue: list[Log] = []
        self._to_bring: list[tuple[Log, NotInMemoryError]] = []

    def run(self, now_ms: int) -> bool:
        """Clean up a few logs; return whether more are due already."""
        clock = self._clock
        started_s = clock.monotonic()
        if not self._queue and started_s >= self._due_s:
            self._due_s = started_s + self._interval_s
            self._queue = self._logs()
        while self._queue and clock.monotonic() - started_s < _SLICE_S:
            log = self._queue.pop()
            if log.failed is None:
                self._clean_up(log, now_ms)
        return bool(self._queue)

    def _clean_up(self, log: Log, now_ms: int) -> None:
        try:
            if log.delete_old_segments(now_ms, now=True) >= MAX_SEGMENTS_AT_ONCE:
                self._queue.append(log)  # there may be more
        except NotInMemoryError as place:
            self._to_bring.append((log, place.with_traceback(None)))
        except OttlaError as error:
            _logger.warning("retention failed partition=%s error=%s", log.tp, error)
        log.expire_producers(now_ms)
        log.local.release_idle()
        self._remove_deleted(log)

    async def load_indexes(self, workers: Workers) -> None:
        """Let a worker load the indexes that retention needs; those logs are due again."""
        while self._to_bring:
            log, place = self._to_bring.pop()
            if log.failed is not None:
                continue
            try:
                await workers.run(place.file.prefetch, place.size, place.position)
            except OSError as error:
                if log.failed is None:
                    _logger.warning("retention failed partition=%s error=%s", log.tp, error)
                continue
            self._queue.append(log)


_logger = logging.getLogger(__name__)
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
        """copies in other dirs that will replace the current logs"""
        self._flusher = Flusher(
            world, self.all_logs, lambda path, error: self._dir_failed(self._dirs[path], error)
        )
        self.flush_times = self._flusher.times
        self.make_topic_ids_durable = self._flusher.make_topic_ids_durable
        self._topic_configs: Callable[[str], TopicConfig] = _no_topic_config
        self._expiration_ms = config.integer("producer.id.expiration.ms")
        self.meta: MetaProperties | None = None
        self.on_dir_failure: Callable[[str], None] | None = None
        """called with the path of a log dir that went offline"""
        self._removals = Removals(world.files, world.clock, self._path_failed)
        self.on_damage: Callable[[Log], None] | None = None
        self.aside = SetAside(world.files)
        self.leaving = LeavingFolders(world, self._dirs, self._removals, self._dir_failed, config)
        self._log_cleanup = LogCleanup(
            world.clock,
            config.integer("log.retention.check.interval.ms"),
            self.all_logs,
            self.remove_deleted,
        )
        self._truncations = Truncations(self._make_truncated_durable)
        self._opened = 0
        self._shortages = 0
        """operations to repeat, since descriptors had run out"""
        self._boot_ids = BootIdFiles(world.files, self._dir_failed)
        self._checkpoints = DirCheckpoints(
            world.files, self._path_failed, self._logs_in, self._current
        )
        self.recovered_logs = 0
        self.found_whole = True
        """whether each dir is of the last life (R22), and stopped cleanly or killed alone"""
        self.lives = LifeNotes(world.files, self._checkpoints, self._live, self._distrust)
        self._preferred: dict[TopicPartition, LogDir] = {}
        """preferred log dirs of logs that do not exist yet"""
        self.unclean: set[TopicPartition] = set()
        """logs whose ends may lack acknowledged records, until they are shown to be complete (R18):
        found after an unclean stop, marked by an earlier one, or empty where there was one"""

    # Start -----------------------------------------------------------------------------

    def expect_replicas(self) -> None:
        """Before loading: dirs with missing records stay so until `replicas_received`."""
        self._boot_ids.replicas_received = False

    def replicas_received(self) -> None:
        """Note that a controller has sent the broker its replicas, or that there are none."""
        self._boot_ids.replicas_received = True
        self._write_boot_ids()

    @property
    def offline_dirs(self) -> list[str]:
        return [d.path for d in self._dirs.values() if d.offline is not None]

    @property
    def live_dirs(self) -> list[str]:
        return [d.path for d in self._dirs.values() if d.offline is None]

    def loading(self, topic_configs: Callable[[str], TopicConfig]) -> Steps[None]:
        """Lock the dirs, load all logs; in slices. StartupError names what is in the way.

        A start that ends before the last slice is for `abort_startup`.
        """
        self._topic_configs = topic_configs
        for log_dir in self._dirs.values():
            with self._offline_on_error(log_dir):
                log_dir_files.lock(self._files, log_dir)
        for log_dir in self._dirs.values():
            if log_dir.lock is not None:
                with self._offline_on_error(log_dir):
                    meta = log_dir_files.read_meta(
                        self._files, log_dir, self._config.broker_id, self.meta
                    )
                    self.meta = meta or self.meta
        for log_dir in self._dirs.values():
            if log_dir.lock is not None and log_dir.offline is None:
                with self._offline_on_error(log_dir):
                    yield from self._load_dir(log_dir)
        if self._shortages:
            raise StartupError("out of file descriptors: raise the limit (ulimit -n)")
        if not self.live_dirs:
            raise StartupError(f"no log dir is usable: {', '.join(self._dirs)}")

    def write_meta(self, meta: MetaProperties) -> None:
        """Mark all live dirs as this broker's and this cluster's, where they are not yet."""
        for log_dir in self._live():
            with self._offline_on_error(log_dir):
                log_dir_files.write_meta(self._files, log_dir, meta)
        self.meta = meta

    def _distrust(self, log_dir: LogDir) -> None:
        """Take all logs of a dir for ones that may lack records at their ends."""
        log_dir.clean = log_dir.same_boot = self.found_whole = False
        self._boot_ids.withdraw(log_dir)
        self.unclean.update(log.tp for log in self._current(log_dir))

    def _load_dir(self, log_dir: LogDir) -> Steps[None]:
        self.lives.take(log_dir)
        log_dir_files.take_clean_marker(self._files, log_dir)
        self._boot_ids.take(log_dir)
        if not (log_dir.clean or log_dir.same_boot):
            self.found_whole = False
        names = self._files.listdir(log_dir.path)
        yield from log_dir_files.read_offsets(self._files, log_dir, set(names))
        for name in log_dir_files.folders(self._files, log_dir, names):
            yield from self._load_folder(log_dir, name)
            yield None
        log_dir.loaded = True
        self._write_boot_ids()

    def _load_folder(self, log_dir: LogDir, name: str) -> Steps[None]:
        if name.endswith(DELETE):
            self._removals.add(log_dir.file(name), 0)
            return
        tp = parse_future_folder(name)
        logs = self._logs if tp is None else self._futures
        tp = tp or parse_folder(name)
        if name.endswith(STRAY) and self.aside.recognize(log_dir.file(name)):
            return
        if name.endswith(STRAY):
            self.leaving.strays.recognize(log_dir.file(name))
            return
        if tp is None or (name.endswith(FUTURE) and logs is self._logs):
            _logger.warning("folder ignored dir=%s folder=%s", log_dir.path, name)
            return
        if tp in logs and not self._resolve_duplicate_folder(logs[tp], log_dir, name):
            return
        log = yield from self._opening(log_dir, tp, name, clean=log_dir.clean)
        logs[tp] = log
        log_dir.logs += 1
        if not log_dir.clean:
            self.recovered_logs += 1
        # Only the process died: all that it wrote is there, unless the system cut something.
        kept = log_dir.same_boot and not log_dir.clean and not log.cut_bytes
        if ((log.may_be_incomplete and not kept) or log.marked_unclean) and logs is self._logs:
            self.unclean.add(tp)
        self.remove_deleted(log, 0)
        log.set_high_watermark(log_dir.high_watermarks.get(tp, log.log_start_offset))

    def _resolve_duplicate_folder(self, log: Log, log_dir: LogDir, name: str) -> bool:
        """Return whether this folder, not the log known under its name, is the partition's.

        StartupError, as in Kafka, unless a crash during a replacement left both.
        """
        tp, folder = log.tp, log_dir.file(name)
        if log_dir_files.replaced_by(self._files, log.dir) == log_dir.path:
            del self._logs[tp]
            self.retire(log)
            return True
        if log_dir_files.replaced_by(self._files, folder) == self._dir_of(log).path:
            self.leaving.delete(log_dir, tp, folder, 0)
            return False
        raise StartupError(f"{tp} is in two log dirs: {log.dir} and {folder}; move one away")

    def _opening(
        self, log_dir: LogDir, tp: TopicPartition, name: str, *, clean: bool, fresh: bool = False
    ) -> Steps[Log]:
        known = Known(
            fresh=fresh,
            clean=clean,
            may_be_unwritten=log_dir.may_be_unwritten,
            recovery_point=log_dir.recovery_points.get(tp, 0),
            log_start_offset=log_dir.log_starts.get(tp, 0),
            cleaned_offset=log_dir.cleaned.get(tp, -1),
            high_watermark=log_dir.checkpointed_high_watermark(tp),
            producer_expiration_ms=self._expiration_ms,
            on_damage=partial(setattr, log_dir, "damaged_after_clean_stop", True),
        )
        config = self._topic_configs(tp.topic)
        log = yield from Log.opening(
            tp, log_dir.file(name), config, self._world, known, self.budget
        )
        config = self._topic_configs(tp.topic)
        if config is not log.config:  # changed while it was loaded
            log.update_config(config)
        self._opened += 1
        log.flush_state.place.number = self._opened
        log.on_failure = self._log_failed
        log.on_damage = self._log_damaged
        log.on_recovery_point_lowered = self._recovery_point_lowered
        log.on_truncated = self._truncations.note
        if log.flush_state.recovery_point_pending:
            self._truncations.note(log)
        return log

    # Failure ---------------------------------------------------------------------------

    def _log_failed(self, log: Log, error: OSError) -> None:
        self._dir_failed(self._dir_of(log), error)

    def _log_damaged(self, log: Log) -> None:
        if self.on_damage is not None:
            self.on_damage(log)

    def _dir_failed(self, log_dir: LogDir, error: OSError) -> None:
        """Take a dir and all logs in it offline; tell who asked to know.

        Not where descriptors ran out: a caller that did not get one tries again, and until then
        there is no clean stop (F45).
        """
        if is_shortage(error):
            self._shortages += 1
            return
        if log_dir.offline is not None:
            return
        log_dir.offline = str(error)
        _logger.error("log dir offline dir=%s error=%s", log_dir.path, error)
        self._boot_ids.withdraw(log_dir)  # a write that failed is not there, whatever runs on
        for log in self._logs_in(log_dir):
            log.mark_offline(f"log dir {log_dir.path} failed: {error}")
            if self._futures.get(log.tp) is log:
                del self._futures[log.tp]
        if self.on_dir_failure is not None:
            self.on_dir_failure(log_dir.path)

    def why_offline(self, path: str) -> str:
        """Return the error that took a log dir offline; empty where none did."""
        return self._dirs[path].offline or ""

    @contextlib.contextmanager
    def _offline_on_error(self, log_dir: LogDir) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._dir_failed(log_dir, error)

    def _path_failed(self, path: str, error: OSError) -> None:
        for log_dir in self._dirs.values():
            if path.startswith(log_dir.path + "/"):
                self._dir_failed(log_dir, error)

    def _dir_of(self, log: Log) -> LogDir:
        return self._dirs[log.parent_dir]

    def _live(self) -> list[LogDir]:
        return [d for d in self._dirs.values() if d.offline is None and d.loaded]

    # Logs ------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def logs(self) -> list[Log]:
        return list(self._logs.values())

    def future(self, tp: TopicPartition) -> Log | None:
        """Return the log that is to replace a partition's current one, None if it stays."""
        return self._futures.get(tp)

    def all_logs(self) -> list[Log]:
        """Return all current and future logs."""
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

    def mark_incomplete(self, tp: TopicPartition) -> None:
        """Treat a partition's log, which is about to be created, as one that lost its records."""
        self.unclean.add(tp)
        for log_dir in self._live():
            self._boot_ids.withdraw(log_dir)

    def _write_boot_ids(self) -> None:
        self._boot_ids.write(self._live(), self._unclean_dirs())

    def _unclean_dirs(self) -> set[str]:
        return {self._logs[tp].parent_dir for tp in self.unclean if tp in self._logs}

    def prefer(self, tp: TopicPartition, path: str) -> None:
        """Create a log that does not exist yet in this live dir, not in the emptiest one."""
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
            if named:  # also for the next attempt
                log_dir.forgotten.setdefault(tp, log_dir.deletions)
            log_dir.log_starts.pop(tp, None)
            log_dir.cleaned.pop(tp, None)
            log = drain(self._opening(log_dir, tp, name, clean=fresh, fresh=fresh))
            if named:
                log.flush_state.recovery_point_pending = True
                self._truncations.note(log)
        except OSError as error:
            self._dir_failed(log_dir, error)
            if is_shortage(error):
                raise OutOfDescriptorsError(f"creation of {tp}: {error.strerror}") from error
            raise StorageError(f"{tp} cannot be created in {log_dir.path}: {error}") from error
        log_dir.logs += 1
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Forget a log, a future one too, at once; its folder is renamed now and removed later."""
        self.unclean.discard(tp)
        for logs in (self._futures, self._logs):  # in this order: no crash leaves a future alone
            log = logs.pop(tp, None)
            if log is not None:
                self.retire(log)
        for folder in self.aside.forget(tp):
            self.leaving.discard(tp, folder)

    async def keep_as_stray(self, workers: Workers, tp: TopicPartition) -> None:
        """Put a log that is not its partition's aside, so that another can take its place (R21).

        Durable when this returns, if its log dir did not fail. Nothing may be appended meanwhile.
        """
        log = self._logs[tp]
        note = StrayNote(tp, log.topic_id, self._world.clock.wall_ms())
        try:
            await self.flush(workers, log)
            await self.write_beside(workers, log, STRAY_NOTE, note.encode())
        except StorageError:
            return  # its log dir has failed: what is there stays under its name
        if self._logs.get(tp) is not log or log.failed is not None:
            return
        self.unclean.discard(tp)
        self.delete_future(tp)
        del self._logs[tp]
        self.retire(log, keep=True)
        self.leaving.keep(self._dir_of(log), note, log.dir)
        await self.leaving.make_durable(workers)

    def set_aside(self, tp: TopicPartition) -> None:
        """Keep a damaged log under another name, so that a new one can take its place (F20)."""
        log = self._logs.pop(tp)
        # A move that was under way cannot go on from what is damaged: the copy goes there at once.
        self._preferred[tp] = self._dir_of(self._futures.get(tp, log))
        self.delete_future(tp)
        self.retire(log, keep=True)
        try:
            self.aside.put(log, self.leaving.unique())
        except OSError as error:
            self._dir_failed(self._dir_of(log), error)
            raise StorageError(f"{tp} cannot be set aside: {error}") from error

    def retire(self, log: Log, *, keep: bool = False) -> None:
        """Close a log that is not used any more; delete its folder later, unless it is kept."""
        log_dir = self._dir_of(log)
        log_dir.logs -= 1
        offline = log_dir.offline is not None
        log.flush_state.place.leave()
        log.abandon()
        log_dir.forget(log.tp)
        if not offline and not keep:
            self.leaving.delete(log_dir, log.tp, log.dir, log.config.file_delete_delay_ms / 1000)

    def delete_stray_folder(self, tp: TopicPartition) -> None:
        """Remove the folder of a partition that has no log here, as StopReplica may ask."""
        known = tp in self._logs
        self.delete(tp)
        if known:
            return
        for log_dir in self._live():
            if self._files.is_dir(log_dir.file(str(tp))):
                self.leaving.delete(log_dir, tp, log_dir.file(str(tp)), 0)
                if log_dir.offline is not None:
                    raise StorageError(f"{tp}: its folder cannot be deleted")

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
        folder = future_folder(tp, self.leaving.unique())
        self._futures[tp] = log = self._create_in(self._dirs[path], tp, folder)
        return log

    def delete_future(self, tp: TopicPartition) -> None:
        """Delete the future log: the current log stays."""
        log = self._futures.pop(tp, None)
        if log is not None:
            self.retire(log)
            if tp in self._logs:
                self._forget_announcement(self._logs[tp])

    async def announce_replacement(self, workers: Workers, tp: TopicPartition) -> None:
        """Note in the current log's folder, durably, in which dir its future log lies.

        To be done before `promote_future`: a crash during that leaves two current folders.
        """
        log, target = self._logs[tp], self._dir_of(self._futures[tp]).path
        await self.write_beside(workers, log, REPLACED_BY, target.encode())

    async def write_beside(self, workers: Workers, log: Log, name: str, data: bytes) -> bool:
        """Write a small file into a log's folder, durably; False if the log failed."""
        return bool(await self._flusher.run(workers, log, log.prepare_write(name, data)))

    def promote_future(self, tp: TopicPartition) -> Log:
        """Replace the current log by the future log; the caller then retires the current one.

        Both end at the same offset, and no flush of the future log is under way. StorageError if
        its dir fails.
        """
        current, future = self._logs[tp], self._futures[tp]
        assert current.log_end_offset == future.log_end_offset, (current, future)
        assert not future.flush_state.flushing, future
        if current.topic_id != ZERO_UUID:
            future.assign_topic_id(current.topic_id)
        log_dir = self._dir_of(future)
        old, new = future.dir, log_dir.file(str(tp))
        if tp in self.unclean:
            self._boot_ids.withdraw(log_dir)
        try:
            self._files.rename(old, new)
            # Else a power loss could keep the other folder's end and not this one's beginning.
            self._files.fsync_dir(log_dir.path)
        except OSError as error:
            self._forget_announcement(current)
            self._dir_failed(log_dir, error)
            if is_shortage(error):
                self._files.rename(new, old)
                raise OutOfDescriptorsError(f"move of {tp}: {error.strerror}") from error
            raise StorageError(f"{tp} cannot be moved to {log_dir.path}: {error}") from error
        self._removals.relocate(old, new)
        future.relocate(new)
        future.copy_state_from(current)
        del self._futures[tp]
        self._logs[tp] = future
        return future

    def _forget_announcement(self, log: Log) -> None:
        with self._offline_on_error(self._dir_of(log)):
            log_dir_files.forget_replacement(self._files, log.dir)

    # Checkpoints -----------------------------------------------------------------------

    async def write_high_watermarks(self, workers: Workers) -> None:
        """Have a worker write the high watermarks of all logs."""
        self._write_boot_ids()
        await self._checkpoints.write(workers, self._live(), checkpoints.HIGH_WATERMARKS)

    async def write_recovery_points(self, workers: Workers) -> None:
        """Have a worker write recovery points and log starts of all live dirs."""
        await self._checkpoints.write(
            workers, self._live(), checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS
        )

    def _recovery_point_lowered(self, log: Log) -> None:
        """Write the dir's points before anything is appended where flushed records were cut.

        Rarely: `make_truncations_durable` has mostly had it done by a worker.
        """
        self._checkpoints.write_now(self._dir_of(log), checkpoints.RECOVERY_POINTS)

    @property
    def has_pending_truncations(self) -> bool:
        return self._truncations.has_pending

    async def make_truncations_durable(self, workers: Workers) -> None:
        """Let a worker make all truncations so far durable, before anything is appended."""
        if self._truncations.has_pending:
            await self._truncations.make_durable(workers)

    async def _make_truncated_durable(self, workers: Workers, logs: list[Log]) -> None:
        await self._flusher.make_truncations_durable(workers, logs)
        pending = [log for log in logs if log.flush_state.recovery_point_pending]
        dirs = [self._dirs[path] for path in dict.fromkeys(log.parent_dir for log in pending)]
        await self._checkpoints.write(workers, dirs, checkpoints.RECOVERY_POINTS)

    async def write_cleaned_offsets(self, workers: Workers, log: Log | None = None) -> None:
        """Write how far the cleaner was in each log of this log's dir, or of all (Kafka's file)."""
        dirs = self._live() if log is None else [self._dir_of(log)]
        await self._checkpoints.write(workers, dirs, checkpoints.CLEANER_OFFSETS)

    # Flushing --------------------------------------------------------------------------

    async def flush_dirty(self, workers: Workers, *, everything: bool = False) -> int:
        """Flush what is due in a worker; return how many logs that was.

        Due are rolled segments, what flush.ms asks for and small files (epochs, topic ids). Each
        call looks at the next few hundred logs; with `everything` at all, and flushes them whole.
        """
        return await self._flusher.flush_dirty(workers, everything=everything)

    async def flush(self, workers: Workers, log: Log) -> None:
        """Flush one log whole, in a worker."""
        if (job := log.prepare_flush()) is not None:
            await self._flusher.run(workers, log, job)

    # Time ------------------------------------------------------------------------------

    def periodic(self, now_ms: int) -> bool:
        """Run a few milliseconds of log cleanup; return whether more is due already."""
        if not self.lives.zookeeper_went_back:  # what it forgot may be the last copy
            self.leaving.remove_expired(now_ms)
        return self._log_cleanup.run(now_ms)

    async def load_indexes(self, workers: Workers) -> None:
        """Let a worker load the indexes that `periodic` needs."""
        await self._log_cleanup.load_indexes(workers)

    async def remove_due(self, workers: Workers) -> int:
        """Have a worker remove the deleted files that are due; return how many there were."""
        return await self._removals.run_due(workers)

    def remove_deleted(self, log: Log, delay_s: float | None = None) -> None:
        """Remove the files that the log renamed to .deleted after file.delete.delay.ms."""
        delay_s = log.config.file_delete_delay_ms / 1000 if delay_s is None else delay_s
        while log.local.deleted_files:
            self._removals.add(log.local.deleted_files.pop(), delay_s)

    # Stop ------------------------------------------------------------------------------

    async def shutdown(self, workers: Workers) -> None:
        """Flush and close everything; each dir without an error gets the clean shutdown marker.

        A worker waits for the disk, and the loop is free in between.
        """
        shortages = self._shortages
        await self._flusher.drain()
        for log_dir in self._live():
            with self._offline_on_error(log_dir):
                marks = log_dir_files.write_unclean_marks
                await workers.run(marks, self._files, self._current(log_dir), set(self.unclean))
            await self._flusher.stop(workers, log_dir.path)
        await self.write_recovery_points(workers)
        await self.write_high_watermarks(workers)
        await self.write_cleaned_offsets(workers)
        await self._checkpoints.drain()
        self._write_clean_shutdown_markers(clean=shortages == self._shortages)

    def _write_clean_shutdown_markers(self, *, clean: bool) -> None:
        unread = {log.parent_dir for log in self.all_logs() if log.failed is not None}
        for log in self.all_logs():
            log.abandon()
        for log_dir in self._live() if clean else ():
            self.lives.write_now(log_dir)
            whole = log_dir.offline is None and (log_dir.clean or log_dir.path not in unread)
            if self._boot_ids.known(log_dir) and whole:
                self._boot_ids.withdraw(log_dir)
                self._put_clean_marker(log_dir)
        self.abandon()

    def _put_clean_marker(self, log_dir: LogDir) -> None:
        with self._offline_on_error(log_dir):
            log_dir_files.put_clean_marker(self._files, log_dir)

    def abort_startup(self) -> None:
        """End a start before all was loaded: clean dirs stay clean, the others need recovery.

        Nothing was appended yet, and no checkpoint is written: only what was loaded is known.
        """
        for log_dir in self._dirs.values():
            if log_dir.lock is None or log_dir.offline is not None:
                continue
            if log_dir.clean and not log_dir.damaged_after_clean_stop:
                self._put_clean_marker(log_dir)
            elif log_dir.same_boot:
                self._boot_ids.write((log_dir,), self._unclean_dirs())
        self.abandon()

    def _current(self, log_dir: LogDir) -> list[Log]:
        return [log for log in self._logs.values() if self._dir_of(log) is log_dir]

    def abandon(self) -> None:
        """Close everything without writing anything, as a crash would."""
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
            "to_remove": len(self._removals),
            "tail_bytes": self.budget.used,
            "recovered_logs": self.recovered_logs,
            "corrupt_reads": sum(log.corrupt_reads for log in self._logs.values()),
        }


def _no_topic_config(topic: str) -> TopicConfig:
    raise AssertionError(f"{topic} was asked for before the start")


MakeDurable = Callable[[Workers, list[Log]], Awaitable[None]]


class Truncations:
    """Truncations that must be durable before anything is appended where records were cut.

    A truncation needs two fsyncs: of the cut file, or a power loss could bring cut records back
    behind newer ones; and of the log dir's checkpoint with the lower recovery point, or a crash
    would count new records there as flushed. An election cuts thousands of logs at once.
    Invariants: a worker waits for the disk, once for all logs that were cut by then;
    `make_durable` returns when all truncations before the call are durable. An append without it
    (`Log.roll`, `Log._lower_recovery_point`) waits for the disk itself.
    Kafka: the end of `LogManager.truncateTo`.
    """

    def __init__(self, make_durable: MakeDurable) -> None:
        self._make_durable = make_durable
        self._cut: dict[Log, None] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, log: Log) -> None:
        """Add a log that was cut, or created where one was deleted."""
        self._cut[log] = None

    @property
    def has_pending(self) -> bool:
        return bool(self._cut) or self._task is not None

    async def make_durable(self, workers: Workers) -> None:
        """Let a worker make all truncations durable; an error takes the log dir offline."""
        while self.has_pending:
            if self._task is None:
                logs = [log for log in self._cut if log.failed is None]
                self._cut.clear()
                loop = asyncio.get_running_loop()
                self._task = loop.create_task(self._run(workers, logs), name="truncations")
            await asyncio.shield(self._task)

    async def _run(self, workers: Workers, logs: list[Log]) -> None:
        try:
            await self._make_durable(workers, logs)
        finally:
            self._task = None
