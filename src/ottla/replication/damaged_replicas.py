"""Damaged replicas: they give leadership up, leave the ISR, are copied again, and return (F20).

In ZooKeeper mode a broker has one way to be rid of a leadership or of its place in an ISR: to
respond to LeaderAndIsr with KAFKA_STORAGE_ERROR, as for a failed log dir. The controller then
elects another member of the ISR and removes this one
(`KafkaController.processLeaderAndIsrResponseReceived`). The steps of one replica:

1. a read finds bytes that are no batch: the mark beside the log is written, durably
2. a log_dir_event_notification makes the controller send LeaderAndIsr; until it comes, the intact
   batches are served. The request fails with KAFKA_STORAGE_ERROR: the controller elects another
   leader from the ISR and removes this replica from it
3. another notification; LeaderAndIsr now names another leader and an ISR without this replica: the
   damaged log is set aside, an empty one takes its place and follows
4. when the new log has all that the damaged one had committed, the damaged one is deleted

Invariants:
- no request fails before the mark is durable, and no log is set aside before the mark has the
  offset up to which its records were committed
- a damaged log is deleted only when a replica on this disk has all its committed records again
- the last replica in sync is never given up: it serves the intact batches, and logs an error
- a replica is replaced by an empty one only when it is not in the ISR, another replica leads, and
  the controller has been refused before: until it is answered otherwise it does not elect this one,
  and the leader proposes no replica that does not fetch

After a restart at any point the mark says which step is next. Kafka 3.9 does none of this: its
leader serves the damaged bytes, and followers stop before them.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass
from enum import Enum

from ottla.log import damage as ranges
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.model.cluster import LeadershipUpdate
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.model.time_slices import end_tasks, wait_at_most
from ottla.replication.partition import Host, Partition


class DamageDecision(Enum):
    """What becomes of a damaged replica."""

    SERVE = "serve what is intact"
    REFUSE = "refuse to lead or follow with it"
    REBUILD = "begin an empty one and copy it from the leader"


def decide(
    broker_id: int,
    leader: int,
    isr: Collection[int],
    alive: Container[int],
    *,
    refused: bool,
) -> DamageDecision:
    """Decide from what the controller says of the partition; `leader` is -1 if there is none.

    `refused` says whether this broker has refused the replica since it last took it on.
    """
    others = any(member != broker_id and member in alive for member in isr)
    if broker_id in isr:
        return DamageDecision.REFUSE if others else DamageDecision.SERVE
    if leader in (broker_id, -1):
        return DamageDecision.SERVE
    return DamageDecision.REBUILD if refused else DamageDecision.REFUSE


logger = logging.getLogger(__name__)

TICK_S = 1.0
"""How often damaged replicas are looked at while nothing happens."""
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0
"""A notification is repeated after the first pause, then after twice as long, up to the longest:
the controller may have been elected just now, or may not be done with the refusal."""


@dataclass(slots=True, eq=False)
class Damaged:
    """A damaged replica: which step it has reached."""

    refused: bool = False
    due_s: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    logged: tuple[ranges.Range, ...] | None = None
    written: tuple[tuple[ranges.Range, ...], int] | None = None


class DamagedReplicas:
    """The damaged replicas of one broker."""

    def __init__(
        self, world: World, host: Host, logs: LogManager, announce: Callable[[], None]
    ) -> None:
        self._world = world
        self._host = host
        self._logs = logs
        self._announce = announce
        self._known: dict[TopicPartition, Damaged] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = True
        self._corrupt_reads = 0
        """of logs that were set aside"""
        self.given_up_total = 0
        self.rebuilt_total = 0
        logs.on_damage = self.found

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up what was known when this broker stopped; call it with the logs loaded."""
        self._closed = False
        for log in self._logs.logs():
            if log.damaged is not None:
                self.found(log)
        self._begin()

    def _begin(self) -> None:
        busy = self._known or self._logs.aside.folders
        if busy and not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="damage")
        self._wake.set()

    async def close(self) -> None:
        self._closed = True
        await end_tasks(self._task)

    # --- what is asked --------------------------------------------------------------------------

    def found(self, log: Log) -> None:
        """Note that a log has a range that cannot be read."""
        if self._logs.get(log.tp) is log:
            self._known.setdefault(log.tp, Damaged())
            self._begin()

    def leaves(self, tp: TopicPartition) -> bool:
        """Return whether a partition will soon be served by another replica instead of this one."""
        partition = self._host.partitions.get(tp)
        return tp in self._known and partition is not None and self._is_to_go(partition)

    def decide(self, update: LeadershipUpdate) -> DamageDecision:
        """Say what becomes of a replica that the controller names; call it before it is applied.

        SERVE for those that are not damaged, or not known to be after a restart: no mark, no
        refusal.
        """
        tp = update.tp
        known = self._known.get(tp)
        log = self._logs.get(tp)
        if known is None or log is None or log.failed is not None or not log.damage_remembered:
            return DamageDecision.SERVE
        broker_id = self._host.broker_id
        if broker_id not in update.replicas:
            return DamageDecision.SERVE
        decision = decide(
            broker_id, update.leader, update.isr, self._host.alive, refused=known.refused
        )
        mark = log.damaged or (), log.high_watermark
        if decision is DamageDecision.REBUILD and known.written != mark:
            decision = DamageDecision.REFUSE  # answered once more, when the mark is written
        if decision is DamageDecision.REFUSE:
            if not known.refused:
                known.pause_s = FIRST_PAUSE_S
                self.given_up_total += 1
            known.due_s = self._world.clock.monotonic() + known.pause_s
            logger.warning(
                "damaged replica refused partition=%s unreadable=%s leader=%d isr=%s "
                "leader_epoch=%d",
                tp,
                _text(log),
                update.leader,
                list(update.isr),
                update.leader_epoch,
            )
        known.refused = decision is DamageDecision.REFUSE
        self._wake.set()
        return decision

    def returns(self, tp: TopicPartition) -> bool:
        """Return whether a partition is offline only because this broker refused it."""
        log = self._logs.get(tp)
        return tp in self._known and log is not None and log.failed is None

    def set_aside(self, tp: TopicPartition) -> None:
        """Make room for a log that is copied from the leader; StorageError if the disk fails."""
        log = self._logs.get(tp)
        assert log is not None
        logger.warning(
            "damaged log set aside partition=%s unreadable=%s high_watermark=%d: copying it anew",
            tp,
            _text(log),
            log.high_watermark,
        )
        del self._known[tp]
        self._corrupt_reads += log.corrupt_reads
        self._logs.set_aside(tp)
        self._begin()

    def forget(self, tp: TopicPartition) -> None:
        """Forget a partition whose log is deleted."""
        self._known.pop(tp, None)

    # --- the loop -------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Go on until nothing is damaged. A loop root: what goes wrong delays one partition."""
        while self._known or self._logs.aside.folders:
            self._wake.clear()
            due_s = self._world.clock.monotonic() + TICK_S
            announce = False
            for tp, known in list(self._known.items()):
                try:
                    announce = await self._tend(tp, known) or announce
                except OttlaError as error:
                    known.due_s = 0.0
                    logger.warning("damaged replica not handled partition=%s error=%s", tp, error)
                except Exception:
                    known.due_s = 0.0
                    logger.exception("damaged replica not handled partition=%s", tp)
                if known.due_s:
                    due_s = min(due_s, known.due_s)
            try:
                if announce:
                    self._announce()
                self._delete_what_was_copied()
            except Exception:
                logger.exception("damaged replicas not handled")
            await wait_at_most(self._wake, max(0.01, due_s - self._world.clock.monotonic()))

    async def _tend(self, tp: TopicPartition, known: Damaged) -> bool:
        """Write the mark if it is due; True if the controller has to know."""
        log = self._logs.get(tp)
        if log is None or log.damaged is None or log.failed is not None:
            self._known.pop(tp, None)
            if log is None:
                self._host.offline.pop(tp, None)  # it was deleted after it had been refused
            return False
        if not log.damage_remembered or tp in self._host.offline:
            await self._write_mark(log, known)
            if not log.damage_remembered:
                known.due_s = 0.0  # more was found meanwhile, or it could not be written just now
                return False
        partition = self._host.partitions.get(tp)
        if partition is None:
            to_go = tp in self._host.offline
        else:
            to_go = self._is_to_go(partition)
            if not to_go and await self._heal(log):
                return False
            if not to_go and partition.state.is_leader:
                self._log_still_leading(log, known)
        if not to_go:
            known.due_s = 0.0
            return False
        now_s = self._world.clock.monotonic()
        if known.due_s > now_s:
            return False
        known.due_s = now_s + known.pause_s
        known.pause_s = min(2 * known.pause_s, LONGEST_PAUSE_S)
        return True

    def _is_to_go(self, partition: Partition) -> bool:
        """Return whether the controller has to know of a damaged replica that is in use."""
        host = self._host
        if partition.state.is_leader:
            isr = partition.state.isr.committed
            return any(b != host.broker_id and b in host.alive for b in isr)
        # A follower cannot know whether it is in the ISR: what it was sent may be old.
        return partition.state.leader not in (-1, host.broker_id)

    async def _write_mark(self, log: Log, known: Damaged) -> None:
        """Write the known damage to the mark beside the log, durably."""
        mark = log.damaged or (), log.high_watermark
        if log.damage_remembered and known.written == mark:
            return
        data = ranges.encode(log.tp, *mark)
        if not await self._logs.write_beside(self._world.workers, log, ranges.DAMAGE_FILE, data):
            return
        known.written = mark
        if log.damaged == mark[0]:
            log.damage_remembered = True

    async def _heal(self, log: Log) -> bool:
        """Forget damage that was deleted with the records before it; True if none is left."""
        assert log.damaged is not None
        left = ranges.above(log.damaged, log.log_start_offset)
        if left or not log.damaged:
            return False
        log.damaged = None
        log.damage_remembered = False
        self._known.pop(log.tp, None)
        path = f"{log.dir}/{ranges.DAMAGE_FILE}"
        try:
            await self._world.workers.run(self._world.files.remove, path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise log.fail(error, "removal of the mark of damage") from error
        logger.warning(
            "damaged records were deleted partition=%s log_start_offset=%d",
            log.tp,
            log.log_start_offset,
        )
        if log.damaged is not None:
            self.found(log)  # more of it was found meanwhile
        return True

    def _log_still_leading(self, log: Log, known: Damaged) -> None:
        """Log that the intact batches are still served, once for each time more damage is found."""
        if known.logged == log.damaged:
            return
        known.logged = log.damaged
        logger.error(
            "damaged log goes on leading partition=%s unreadable=%s: no other replica is in sync; "
            "all other offsets are served, no replica can be copied from it beyond that place",
            log.tp,
            _text(log),
        )

    def _delete_what_was_copied(self) -> None:
        logs = self._logs
        for tp in list(logs.aside.folders):
            log = logs.get(tp)
            if log is None or log.failed is not None or tp in logs.unclean:
                # Not shown to be complete yet. The high watermark alone would not do: that of the
                # damaged log may be an old one, after a crash.
                continue
            for folder in logs.aside.done(tp, log.high_watermark):
                self.rebuilt_total += 1
                logger.warning(
                    "damaged log deleted partition=%s folder=%s: all of it has been copied again",
                    tp,
                    folder,
                )
                logs.leaving.discard(tp, folder)

    def statistics(self) -> dict[str, int]:
        return {
            "damaged": len(self._known),
            "set_aside": sum(len(f) for f in self._logs.aside.folders.values()),
            "corrupt_reads": self._corrupt_reads + self._logs.statistics()["corrupt_reads"],
            "given_up_total": self.given_up_total,
            "rebuilt_total": self.rebuilt_total,
        }


def _text(log: Log) -> str:
    return ranges.text_of(log.damaged or ()) or "unknown"
