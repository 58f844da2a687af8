"""What of one log is not durable yet, and the flush jobs that make it so.

Kafka: the recovery point and the last flush time of `LocalLog`. Each part of a log knows what of it
awaits its fsync (segments, epochs, snapshots, topic id, gap bound, names in the folder); a job
takes these over. Invariants: the recovery point moves only after a job has succeeded, and not
beyond a truncation that happened meanwhile; what a job took over is unsynced again if it could not
open a file.
"""

from ottla.log import checkpoints
from ottla.log.epochs import EpochCache
from ottla.log.flush_job import FlushJob, FolderGuard
from ottla.log.local_log import LocalLog
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.results import is_shortage
from ottla.model.ids import ZERO_UUID
from ottla.model.ports import Files, World


class TopicIdFile:
    """The topic id of one log, ZERO_UUID if it has none.

    `partition.metadata`: whose the log's records are, and whether no power loss can take that away.
    An id that was read back after an unclean stop counts as not durable: the process that died may
    have left it in the page cache alone. Kafka: `PartitionMetadataFile`, which is synced before the
    first append.
    """

    __slots__ = ("durable", "topic_id", "unsynced")

    def __init__(self, topic_id: bytes, *, clean: bool) -> None:
        """`clean`: it was read after a clean stop."""
        self.topic_id = topic_id
        self.durable = topic_id != ZERO_UUID and clean
        self.unsynced = topic_id != ZERO_UUID and not clean
        """whether no flush job has it yet"""

    def write(self, files: Files, folder: str, topic_id: bytes) -> None:
        """Write an id, not durably: 2,000 new partitions must not wait for 2,000 fsyncs.

        One sync for a whole LeaderAndIsr makes them durable, before anything is appended.
        """
        path = f"{folder}/{checkpoints.PARTITION_METADATA}"
        file = files.open(path + ".tmp", create=True)
        file.pwrite((checkpoints.encode_partition_metadata(topic_id),), 0)
        file.close()
        files.rename(path + ".tmp", path)
        self.topic_id, self.durable, self.unsynced = topic_id, False, True

    def add_to(self, job: FlushJob, folder: str) -> None:
        """Have a job make it durable."""
        job.to_write.append((f"{folder}/{checkpoints.PARTITION_METADATA}", self.encoded()))
        self.taken_by(job, folder)

    def encoded(self) -> bytes:
        return checkpoints.encode_partition_metadata(self.topic_id)

    def taken_by(self, job: FlushJob, folder: str) -> None:
        """Note that a job writes it; it makes the folder's own name durable, too."""
        job.folders = [folder, folder.rpartition("/")[0]]
        job.names_topic = True
        self.unsynced = False

    def restore_unsynced(self) -> None:
        """Take back that a job has it."""
        self.unsynced = self.topic_id != ZERO_UUID and not self.durable


class FlushState:
    """The recovery point, and what was appended, truncated or renamed since."""

    def __init__(
        self,
        world: World,
        local: LocalLog,
        epochs: EpochCache,
        snapshots: ProducerSnapshots,
        id_file: TopicIdFile,
        recovery_point: int,
    ) -> None:
        self._files, self._clock = world.files, world.clock
        self._local = local
        self._epochs = epochs
        self._snapshots = snapshots
        self._id_file = id_file
        self.recovery_point = recovery_point
        """below it everything is durable"""
        self.recovery_point_pending = False
        """whether the checkpoint on disk still has a recovery point above a truncation"""
        self.unflushed = 0
        """records appended since the last flush, for flush.messages"""
        self.unflushed_since_s: float | None = None
        """when the oldest of them was appended, for flush.ms"""
        self.place = FolderGuard(world.files.mutex())
        self.flushing = 0
        """flush jobs that a worker may be running: until they are done, paths must not change"""
        self._jobs = 0

    def appended(self, count: int) -> int:
        """Count appended records; return how many are not flushed."""
        if self.unflushed_since_s is None:
            self.unflushed_since_s = self._clock.monotonic()
        self.unflushed += count
        return self.unflushed

    def truncated(self, offset: int) -> None:
        """Lower the recovery point where the log was cut below it."""
        if self.recovery_point > offset:
            self.recovery_point = offset
            self.recovery_point_pending = True

    @property
    def unflushed_for_s(self) -> float | None:
        """How long the oldest unflushed record has waited, None if there is none."""
        if self.unflushed_since_s is None:
            return None
        return self._clock.monotonic() - self.unflushed_since_s

    def has_unflushed_segments(self) -> bool:
        """Return whether a segment that is not the active one still awaits its fsync."""
        return self.recovery_point < self._local.active.base_offset

    def has_unsynced_files(self) -> bool:
        """Return whether small files (epochs, topic id, indexes, snapshots) await their fsync."""
        local = self._local
        return (
            self._epochs.changed
            or self._id_file.unsynced
            or local.names_unsynced
            or local.own_name_unsynced
            or bool(self._snapshots.pending)
            or self._gap_bound_is_due
            or any(s.unsynced for s in local.segments)
        )

    @property
    def _gap_bound_is_due(self) -> bool:
        """Whether the gap bound is to be written: not yet for a log without records."""
        local = self._local
        return local.gaps.unwritten and (local.active.size > 0 or len(local.segments) > 1)

    # Jobs ------------------------------------------------------------------------------

    def prepare(
        self, upto: int | None = None, closing: list[tuple[str, bytes]] | None = None
    ) -> FlushJob | None:
        """Return what makes all below `upto` (None: the log end) durable, None if nothing is to do.

        `closing`: (path, contents) of more files to write, beside the indexes, at a clean stop.
        """
        local = self._local
        end = local.log_end_offset
        upto = end if upto is None else min(upto, end)
        job = self._job(upto)
        job.covers_truncation = upto == end
        if closing is not None:
            for segment in local.segments:
                if segment.index_changed or segment is local.active:
                    job.to_write += segment.index_files()
            job.to_write += closing
        pending = local.segments[local.segment_index(self.recovery_point) :]
        if (
            upto > self.recovery_point or local.truncation_unsynced
        ):  # all opened before any is taken
            job.to_sync = [s.file for s in pending if s.base_offset < upto and s.size]
        for segment in pending:
            job.to_sync += segment.unsynced
            job.to_close += segment.unsynced
            segment.unsynced = []
            if segment.index_changed and segment is not local.active:
                job.to_write += segment.index_files()
        self._add_small_files(job)
        if not (job.to_sync or job.to_write or job.folders):
            self.recovery_point = max(self.recovery_point, upto)
            return None
        if upto == end:
            self.unflushed = 0
            self.unflushed_since_s = None
        return self._begun(job)

    def _add_small_files(self, job: FlushJob) -> None:
        local = self._local
        if local.names_unsynced:
            job.folders.append(local.dir)
        if local.own_name_unsynced:
            job.folders.append(local.parent_dir)
        local.names_unsynced = local.own_name_unsynced = False
        self._snapshots.add_to(job)
        if self._epochs.changed:
            path = f"{local.dir}/{checkpoints.LEADER_EPOCHS}"
            job.to_write.append((path, checkpoints.encode_epochs(self._epochs.entries)))
            self._epochs.changed = False
        if self._id_file.unsynced:
            self._id_file.add_to(job, local.dir)
        if self._gap_bound_is_due:
            local.gaps.add_to(job, local.dir)

    def prepare_truncation(self) -> FlushJob | None:
        """Return a job that makes the log's end durable after it was cut, None if it is."""
        local = self._local
        if not local.truncation_unsynced:
            return None
        job = self._job(0)
        job.covers_truncation = True
        job.to_sync.append(local.active.file)
        job.folders.append(local.dir)
        if local.gaps.unwritten:
            local.gaps.add_to(job, local.dir)
        return self._begun(job)

    def prepare_write(self, name: str, data: bytes) -> FlushJob:
        """Return a job that only writes one more file into this log's folder, durably."""
        job = self._job(0)
        job.to_write.append((f"{self._local.dir}/{name}", data))
        job.folders.append(self._local.dir)
        return self._begun(job)

    def _job(self, upto: int) -> FlushJob:
        return FlushJob(self._files, self.place, upto, self._local.truncations, self._jobs + 1)

    def _begun(self, job: FlushJob) -> FlushJob:
        self._jobs = job.number
        self.flushing += 1
        return job

    def complete(self, job: FlushJob, error: OSError | None, *, may_retry: bool) -> None:
        """Move the recovery point after the job ran; raise `error` if it did not succeed.

        `may_retry`: after a shortage of descriptors everything that it had is flushed again.
        """
        local = self._local
        self.flushing -= 1
        if not self.flushing:
            self.place.settle()
        if error is not None and may_retry and is_shortage(error):
            self._restore(job)
            raise error
        for file in job.to_close:
            file.close()
        if error is not None:
            raise error
        if self.place.gone:
            return
        self._id_file.durable |= job.names_topic
        local.gaps.written_by(job)
        self._snapshots.written_by(job)
        # After a truncation meanwhile the same offsets are other, unflushed records.
        if job.truncations == local.truncations:
            if job.covers_truncation:
                local.truncation_unsynced = False
            self.recovery_point = max(self.recovery_point, job.upto_offset)

    def _restore(self, job: FlushJob) -> None:
        """Count a job's files as unsynced again: it could not open one.

        No fsync failed, so nothing is lost, and a later one is to be trusted.
        """
        local = self._local
        self._epochs.changed = True
        self._id_file.restore_unsynced()
        local.names_unsynced = local.own_name_unsynced = True
        self._snapshots.restore(job)
        paths = dict(job.to_write)
        for segment in local.segments:
            segment.index_changed = segment.index_changed or segment.path(".index") in paths
            segment.restore_unsynced(job.to_close)
        if self.unflushed_since_s is None and self.recovery_point < local.log_end_offset:
            self.unflushed_since_s = self._clock.monotonic()
