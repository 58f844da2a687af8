"""Moves between log dirs: replicas in use that are to lie in another data folder.

A move copies the current log into a future log in the other dir, batch by batch as a follower
would; when both end at the same offset the future log takes the other's place in one step.
Invariants:
- the current log serves all along; whatever goes wrong in the other dir leaves it as it was
- R1, R2: after a truncation of the current log, and in each new leader epoch, the future log is cut
  where its epochs leave those of the current one, before anything more is copied
- the replacement comes only once the future log is as durable as the one it replaces
- one partition at a time, in order of their names, so that each is done as early as can be
- slices of a few milliseconds, and as long for all others between two of them
- what only the disk has is read by a worker, flushes are waited for by one

Kafka: `ReplicaManager.alterReplicaLogDirs`, `ReplicaAlterLogDirsManager`,
`ReplicaAlterLogDirsThread` and `LocalLeaderEndPoint` (KIP-113). One task does the work of Kafka's
`num.replica.alter.log.dirs.threads`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.log.log import Log
from ottla.log.log_dir import future_name_fits
from ottla.log.manager import LogManager
from ottla.log.results import NotInMemoryError
from ottla.model.errors import ErrorCode, OttlaError, StorageError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import World
from ottla.model.time_slices import end_tasks, wait_at_most
from ottla.replication.partition import Host, Partition
from ottla.replication.throttle import ReplicationQuota
from ottla.replication.truncation import EpochEnd, Restart, restart_point, truncation_point

logger = logging.getLogger(__name__)

LEAST_BYTES = 1 << 14
MOST_BYTES = 1 << 20
SLICE_S = 0.004
"""A slice that took longer is followed by smaller ones: small batches cost more per byte."""
RETRY_S = 0.01
"""How soon to look again at a flush that is under way."""
CHECKPOINT_S = 1.0
MAX_THROTTLE_DELAY_S = 1.0
"""A throttled move is looked at again after so long at most: the throttle may be gone."""


@dataclass(slots=True, eq=False)
class Move:
    """A partition on its way: what its future log was matched with last."""

    partition: Partition
    source: Log | None = None
    leader_epoch: int = -1
    truncations: int = -1
    not_before_s: float = 0.0
    announced: bool = False
    brought: bool = False
    """whether a worker has just read for us what comes next"""


class LogDirMoves:
    """Moves of one broker between its log dirs."""

    def __init__(
        self,
        world: World,
        host: Host,
        logs: LogManager,
        quota: ReplicationQuota,
        backoff_s: float,
    ) -> None:
        self._world = world
        self._host = host
        self._logs = logs
        self._quota = quota
        self._backoff_s = backoff_s
        self._moves: dict[TopicPartition, Move] = {}
        self._current: Move | None = None
        self._bytes = LEAST_BYTES
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._unwritten = False
        """whether replacements came after the checkpoints were written last"""
        self.copied_bytes_total = 0
        self.moved_total = 0
        self.failed_total = 0

    # --- what is asked ----------------------------------------------------------------------------

    def place(self, tp: TopicPartition, path: str) -> None:
        """Have a replica lie in this dir, now or once it is here; OttlaError says why not."""
        logs, host = self._logs, self._host
        if not future_name_fits(tp):
            # So long would be the name of the folder it moves through.
            raise OttlaError("the topic name is too long", ErrorCode.INVALID_TOPIC_EXCEPTION)
        if path in logs.offline_dirs:
            raise StorageError(f"log dir {path} is offline")
        if path not in logs.live_dirs:
            raise OttlaError(f"{path} is no log dir", ErrorCode.LOG_DIR_NOT_FOUND)
        if tp in host.offline:
            raise StorageError(f"{tp} is offline")
        partition = host.partitions.get(tp)
        if partition is None or partition.log is None:
            self._place_later(tp, path)
            return
        future = logs.future(tp)
        if future is not None and future.parent_dir != path:
            self.give_up(partition)
            future = None
        source = partition.log.parent_dir
        if future is None and source != path:
            future = logs.create_future(tp, path)
            logger.info("log dir move begins partition=%s from_dir=%s to_dir=%s", tp, source, path)
            self._add(partition, future)

    def _place_later(self, tp: TopicPartition, path: str) -> None:
        """Remember where a replica is to be created; always raises, for it is not here yet."""
        logs = self._logs
        if all(log is None or log.parent_dir != path for log in (logs.get(tp), logs.future(tp))):
            logs.prefer(tp, path)
        if self._host.exists(*tp):
            raise OttlaError(f"{tp} is not here", ErrorCode.REPLICA_NOT_AVAILABLE)
        raise OttlaError(f"{tp} is not known", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def resume(self, partition: Partition) -> None:
        """Go on with a move that was under way when this broker, or the partition's role, ended."""
        tp, log = partition.tp, partition.log
        future = self._logs.future(tp)
        if log is None or future is None:
            return
        ids = {future.topic_id, partition.state.topic_id} - {ZERO_UUID}
        if len(ids) > 1 or future.parent_dir == log.parent_dir:
            # Of a topic that is deleted, or of a time before its dir was swapped for an empty one.
            logger.warning("future log dropped partition=%s dir=%s", tp, future.dir)
            self.give_up(partition)
        elif tp not in self._moves or self._moves[tp].partition is not partition:
            logger.info(
                "log dir move continues partition=%s to_dir=%s offset=%d log_end_offset=%d",
                tp,
                future.parent_dir,
                future.log_end_offset,
                log.log_end_offset,
            )
            self._add(partition, future)

    def give_up(self, partition: Partition) -> None:
        """Let a replica stay where it is; its future log goes."""
        self.remove((partition.tp,))
        partition.future = None
        self._logs.delete_future(partition.tp)

    def remove(self, tps: Iterable[TopicPartition]) -> None:
        """Stop to copy; the future logs stay, for `resume`."""
        for tp in tps:
            self._moves.pop(tp, None)

    def _add(self, partition: Partition, future: Log) -> None:
        partition.future = future
        self._moves[partition.tp] = Move(partition)
        self._wake.set()
        if (self._task is None or self._task.done()) and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="log-dir-moves")

    async def close(self) -> None:
        self._closed = True
        task, self._task = self._task, None
        await end_tasks(task)

    # --- the loop ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Copy until nothing is left to move. A loop root: what goes wrong delays one partition."""
        written_s = self._world.clock.monotonic()
        # A move may also begin while the last checkpoints are written: it has no other task.
        while self._moves or self._unwritten:
            self._wake.clear()
            now_s = self._world.clock.monotonic()
            if self._unwritten and (not self._moves or now_s - written_s >= CHECKPOINT_S):
                await self._write_checkpoints()
                written_s = now_s
                continue
            move = self._choose(now_s)
            if move is None:
                due_s = min(m.not_before_s for m in self._moves.values())
                await wait_at_most(self._wake, due_s - now_s)
                continue
            held_s = min(self._quota.until_ms(now_s * 1000) / 1000, MAX_THROTTLE_DELAY_S)
            if held_s > 0:
                await wait_at_most(self._wake, held_s)
                continue
            try:
                await self._advance(move)
            except StorageError as error:
                # Its dir is offline; the replica manager has taken out all that lay there.
                logger.warning(
                    "log dir move failed partition=%s error=%s", move.partition.tp, error
                )
                self.failed_total += 1
                if self._is_current(move):
                    del self._moves[move.partition.tp]
            except OttlaError as error:
                logger.warning(
                    "log dir move delayed partition=%s error=%s", move.partition.tp, error
                )
                self._delay(move)
            except Exception:
                logger.exception("log dir move delayed partition=%s", move.partition.tp)
                self._delay(move)

    def _choose(self, now_s: float) -> Move | None:
        """Return the move under way, or the next one by name, unless it has to wait."""
        chosen = self._current
        if chosen is None or not self._is_current(chosen) or chosen.not_before_s > now_s:
            ready = [m for m in self._moves.values() if m.not_before_s <= now_s]
            chosen = self._current = min(ready, key=lambda m: m.partition.tp, default=None)
        return chosen

    def _is_current(self, move: Move) -> bool:
        return self._moves.get(move.partition.tp) is move

    def _delay(self, move: Move) -> None:
        move.not_before_s = self._world.clock.monotonic() + self._backoff_s

    async def _advance(self, move: Move) -> None:
        """Copy a slice, or finish; then let others run for as long as that took."""
        clock = self._world.clock
        began_s = clock.monotonic()
        partition = move.partition
        log, future = partition.log, partition.future
        if log is None or future is None:
            del self._moves[partition.tp]
            return
        if partition.state.leader == self._host.broker_id and not partition.state.is_leader:
            # About to lead: others are asked what its log lacks, and it must stay the same log.
            self._delay(move)
            return
        if partition.state.topic_id not in (ZERO_UUID, future.topic_id):
            # Here, since what fails here is tried again.
            future.assign_topic_id(partition.state.topic_id)
        self._match(move, log, future)
        if self._logs.has_pending_truncations:
            await self._logs.make_truncations_durable(self._world.workers)
            return
        try:
            self._copy(log, future, now=not move.brought)
        except NotInMemoryError as place:
            with contextlib.suppress(OSError):  # the next read fails
                await self._world.workers.run(place.file.prefetch, place.size, place.position)
            move.brought = True
            return
        move.brought = False
        if future.log_end_offset == log.log_end_offset:
            await self._finish(move, log, future)
            return
        worked_s = clock.monotonic() - began_s
        if worked_s > SLICE_S:
            self._bytes = max(LEAST_BYTES, self._bytes // 2)
        elif worked_s < SLICE_S / 2:
            self._bytes = min(MOST_BYTES, self._bytes * 2)
        await asyncio.sleep(worked_s)

    # --- copying ----------------------------------------------------------------------------------

    def _match(self, move: Move, log: Log, future: Log) -> None:
        """Cut the future log where it has not what the current one has, if that can be."""
        known = (move.source, move.leader_epoch, move.truncations)
        if known != (log, move.partition.state.leader_epoch, log.local.truncations):
            self._match_epochs(log, future)
            move.source = log
            move.leader_epoch = move.partition.state.leader_epoch
            move.truncations = log.local.truncations
        end, start = log.log_end_offset, log.log_start_offset
        if not start <= future.log_end_offset <= end:
            what, offset = restart_point(future.log_end_offset, start, end)
            if what is Restart.TRUNCATE:
                future.truncate_to(offset)
            else:
                future.truncate_fully_and_start_at(offset)

    @staticmethod
    def _match_epochs(log: Log, future: Log) -> None:
        if future.epochs.latest < 0:
            future.truncate_to(future.high_watermark)
            return
        while True:
            ours = EpochEnd(*log.end_offset_for_epoch(future.epochs.latest))
            theirs = EpochEnd(*future.end_offset_for_epoch(ours.epoch))
            point = truncation_point(ours, theirs, future.log_end_offset, future.high_watermark)
            future.truncate_to(point.offset)
            if point.complete:
                return

    def _copy(self, log: Log, future: Log, *, now: bool) -> None:
        """Append what fits into a slice, then take over what followers take over.

        NotInMemoryError with `now`, where the disk would have to be waited for.
        """
        read = log.read(future.log_end_offset, self._bytes, log.log_end_offset, now=now)
        if read.size:
            parts = read.parts
            records = parts[0] if len(parts) == 1 else b"".join(parts)
            future.append_as_follower(memoryview(records))
            self.copied_bytes_total += read.size
            self._quota.record(read.size, self._world.clock.monotonic() * 1000)
        future.set_high_watermark(log.high_watermark)
        future.maybe_increment_log_start_offset(log.log_start_offset)

    # --- finishing --------------------------------------------------------------------------------

    async def _finish(self, move: Move, log: Log, future: Log) -> None:
        """Replace the current log if all that needs is durable; else see to that first."""
        if future.flush_state.flushing:
            await asyncio.sleep(RETRY_S)
        elif future.recovery_point < log.recovery_point:
            await self._logs.flush(self._world.workers, future)
        elif not move.announced:
            await self._logs.announce_replacement(self._world.workers, move.partition.tp)
            move.announced = True
        else:
            self._replace(move, log)

    def _replace(self, move: Move, log: Log) -> None:
        partition = move.partition
        new = self._logs.promote_future(partition.tp)
        partition.replace_log(new)
        self._logs.retire(log)
        del self._moves[partition.tp]
        self._unwritten = True
        self.moved_total += 1
        logger.info(
            "log dir move done partition=%s from_dir=%s to_dir=%s",
            partition.tp,
            log.parent_dir,
            new.parent_dir,
        )

    async def _write_checkpoints(self) -> None:
        """Have the dirs' checkpoints tell what lies where now."""
        self._unwritten = False
        workers = self._world.workers
        await self._logs.write_high_watermarks(workers)
        await self._logs.write_recovery_points(workers)
        await self._logs.write_cleaned_offsets(workers)

    def statistics(self) -> dict[str, object]:
        return {
            "moving": len(self._moves),
            "copied_bytes_total": self.copied_bytes_total,
            "moved_total": self.moved_total,
            "failed_total": self.failed_total,
            "throttle": self._quota.statistics(self._world.clock.monotonic() * 1000),
        }
