"""Control requests: LeaderAndIsr and StopReplica, applied partition by partition.

Invariants:
- one control request at a time, in the order they came; each partition's change is one step, and
  between partitions others may run, so that 2,000 of them never stall a produce
- a lower controller epoch is refused whole (R10), also when a newer one comes half way; the newer
  controller sends everything again; within a request only a *higher* leader epoch is
  applied, but a follower that was stopped follows again in the same one (`_same_epoch`). R8 is the
  handler's: it knows the broker epoch
- a topic id that differs from the one on disk is never overwritten (R15, KIP-516)

Kafka: `ReplicaManager.becomeLeaderOrFollower` and `stopReplicas`.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from ottla.log.log import Log
from ottla.model.cluster import RECOVERING, LeadershipUpdate
from ottla.model.errors import ErrorCode, OttlaError, OutOfDescriptorsError, StorageError
from ottla.model.ids import NO_EPOCH, ZERO_UUID, TopicPartition, uuid_to_text
from ottla.model.protocol import EPOCH_DURING_DELETE
from ottla.model.state_changes import leader_text, list_text, log_lines
from ottla.model.state_changes import logger as state_change_logger
from ottla.model.time_slices import TimeSlice
from ottla.replication.damaged_replicas import DamageDecision
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.wire.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)

logger = logging.getLogger(__name__)


class StateChangeLog:
    """The lines of state-change.log for one request, until they are logged.

    They are built only if the logger is enabled, and logged one time slice's worth at once. Kafka:
    the log statements of `Partition.makeLeader`, `makeFollower` and of
    `ReplicaManager.becomeLeaderOrFollower`.
    """

    def __init__(self, broker: int) -> None:
        self._head = f"[Broker id={broker}] "
        self._lines: list[str] | None = (
            [] if state_change_logger.isEnabledFor(logging.INFO) else None
        )

    def handling(self, what: str, correlation_id: int, controller: int, partitions: int) -> None:
        """Note the begin of a request's handling."""
        if self._lines is not None:
            self._lines.append(
                f"{self._head}Handling {what} request correlationId {correlation_id} from "
                f"controller {controller} for {partitions} partitions"
            )

    def finished(
        self, took_s: float, correlation_id: int, controller: int, partitions: int
    ) -> None:
        """Note the end of a LeaderAndIsr."""
        if self._lines is not None:
            self._lines.append(
                f"{self._head}Finished LeaderAndIsr request in {took_s * 1000:.0f}ms correlationId "
                f"{correlation_id} from controller {controller} for {partitions} partitions"
            )

    def became_leader(
        self, partition: Partition, log: Log, leader_before: int, epoch_before: int
    ) -> None:
        """Note that this broker leads a partition in a new epoch."""
        if self._lines is None:
            return
        state = partition.state
        known = state.topic_id != ZERO_UUID
        topic_id = f"Some({uuid_to_text(state.topic_id)})" if known else "None"
        self._lines.append(
            f"{self._head}Leader {partition.tp} with topic id {topic_id} starts at leader epoch "
            f"{state.leader_epoch} from offset {state.epoch_start} with partition epoch "
            f"{state.partition_epoch}, high watermark {log.high_watermark}, ISR "
            f"{list_text(state.isr.committed)}, adding replicas {list_text(state.adding)} "
            f"and removing replicas {list_text(state.removing)} . Previous leader "
            f"{leader_text(leader_before)} and previous leader epoch was {epoch_before}."
        )

    def became_follower(
        self, partition: Partition, log: Log, leader_before: int, epoch_before: int
    ) -> None:
        """Note that this broker follows in a new epoch."""
        if self._lines is None:
            return
        state = partition.state
        self._lines.append(
            f"{self._head}Follower {partition.tp} starts at leader epoch {state.leader_epoch} "
            f"from offset {log.log_end_offset} with partition epoch {state.partition_epoch} "
            f"and high watermark {log.high_watermark}. Current leader is {state.leader}. "
            f"Previous leader {leader_text(leader_before)} and previous leader epoch was "
            f"{epoch_before}."
        )

    def flush(self) -> None:
        """Log the lines noted so far."""
        if self._lines:
            log_lines(self._lines)
            self._lines = []


@dataclass(slots=True)
class Applied:
    """What one LeaderAndIsr changed: in the current slice, and counted in all."""

    leaders: list[Partition] = field(default_factory=list)
    followers: list[Partition] = field(default_factory=list)
    expected: list[Partition] = field(default_factory=list)
    """led in an epoch that their followers have not fetched in yet"""
    waiting: list[tuple[Partition, Log, LeadershipUpdate]] = field(default_factory=list)
    """to lead or follow when the topic ids of their logs are durable"""
    named: list[Log] = field(default_factory=list)
    """logs that were given a topic id while they were led or followed"""
    led: int = 0
    followed: int = 0
    state_changes: StateChangeLog = field(kw_only=True)


_WireState = LeaderAndIsrRequest.LeaderAndIsrPartitionState


def _states(request: LeaderAndIsrRequest) -> Iterator[tuple[TopicPartition, bytes, _WireState]]:
    """Yield (partition, topic id, state) in any version's shape."""
    for state in request.ungrouped_partition_states:
        yield TopicPartition(state.topic_name, state.partition_index), ZERO_UUID, state
    for topic in request.topic_states:
        topic_id = bytes(topic.topic_id)
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), topic_id, state


def _update_of(tp: TopicPartition, topic_id: bytes, state: _WireState) -> LeadershipUpdate:
    """Return one partition's part of a LeaderAndIsr request as a noun of `model`."""
    return LeadershipUpdate(
        tp,
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        state.partition_epoch,
        tuple(state.replicas),
        tuple(state.adding_replicas),
        tuple(state.removing_replicas),
        state.controller_epoch,
        state.leader_recovery_state,
        topic_id,
        bool(state.is_new),
    )


def _accepts(
    replicas: ReplicaManager, name: str, request: LeaderAndIsrRequest | StopReplicaRequest
) -> bool:
    """Return whether no higher controller epoch is known; log it otherwise."""
    if replicas.accept_controller_epoch(request.controller_epoch):
        return True
    logger.warning(
        "%s refused controller=%d controller_epoch=%d ours=%d",
        name,
        request.controller_id,
        request.controller_epoch,
        replicas.controller_epoch,
    )
    return False


async def apply_leader_and_isr(
    replicas: ReplicaManager, request: LeaderAndIsrRequest, version: int, correlation_id: int = -1
) -> LeaderAndIsrResponse:
    """Become leader or follower of every partition named."""
    async with replicas.control_lock:
        if not _accepts(replicas, "LeaderAndIsr", request):
            return _respond(request, version, {}, ErrorCode.STALE_CONTROLLER_EPOCH)
        applied = Applied(state_changes=StateChangeLog(replicas.broker_id))
        began_s = replicas.clock.monotonic()
        count = len(request.ungrouped_partition_states)
        count += sum(len(topic.partition_states) for topic in request.topic_states)
        applied.state_changes.handling("LeaderAndIsr", correlation_id, request.controller_id, count)
        errors: dict[TopicPartition, ErrorCode] = {}
        time_slice = TimeSlice(replicas.clock)
        # Leaders first: clients wait for them, and followers' fetches are answered by them.
        ours = replicas.broker_id
        for tp, topic_id, state in sorted(_states(request), key=lambda s: s[2].leader != ours):
            update = _update_of(tp, topic_id, state)
            if _is_unknown(replicas, update):
                await replicas.logs.keep_as_stray(replicas.world.workers, tp)
            errors[tp] = _apply(replicas, update, applied)
            if time_slice.over:
                _notify(replicas, applied)
                await time_slice.next()
                if not replicas.accept_controller_epoch(request.controller_epoch):
                    # A replica that the newer controller has just let go must not come back.
                    return _respond(request, version, {}, ErrorCode.STALE_CONTROLLER_EPOCH)
        if applied.waiting or applied.named:
            await _go_on_with_durable_ids(replicas, applied, errors)
            if not replicas.accept_controller_epoch(request.controller_epoch):
                return _respond(request, version, {}, ErrorCode.STALE_CONTROLLER_EPOCH)
        await replicas.make_truncations_durable()  # clients learn next who leads
        took_s = replicas.clock.monotonic() - began_s
        applied.state_changes.finished(took_s, correlation_id, request.controller_id, count)
        _notify(replicas, applied)
        replicas.logs.replicas_received()
        replicas.begin_checkpoints()
        replicas.fetchers.close_idle()
        # One line for the whole request: a line per partition would cost more than its transition.
        logger.info(
            "LeaderAndIsr received controller=%d controller_epoch=%d partitions=%d leaders=%d "
            "followers=%d bad=%d",
            request.controller_id,
            request.controller_epoch,
            len(errors),
            applied.led,
            applied.followed,
            sum(code != 0 for code in errors.values()),
        )
        return _respond(request, version, errors, ErrorCode.NONE)


def _notify(replicas: ReplicaManager, applied: Applied) -> None:
    """Notify listeners and log the state changes of this time slice."""
    if applied.expected:
        replicas.fetches.expect_followers(applied.expected)
    replicas.leadership_changed(applied.leaders, applied.followers)
    applied.state_changes.flush()
    applied.led += len(applied.leaders)
    applied.followed += len(applied.followers)
    applied.leaders = []
    applied.followers = []
    applied.expected = []


def _apply(replicas: ReplicaManager, update: LeadershipUpdate, applied: Applied) -> ErrorCode:
    """Apply one partition's update; return the code that the controller is answered with."""
    tp, topic_id = update.tp, update.topic_id
    if tp in replicas.offline and not replicas.damaged.returns(tp):
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = replicas.partitions.get(tp)
    known_id = _known_topic_id(replicas, tp, partition)
    if ZERO_UUID not in (topic_id, known_id) and topic_id != known_id:
        logger.error(
            "LeaderAndIsr partition refused partition=%s reason=another topic id ours=%s theirs=%s",
            tp,
            uuid_to_text(known_id),
            uuid_to_text(topic_id),
        )
        return ErrorCode.INCONSISTENT_TOPIC_ID
    epoch = partition.state.leader_epoch if partition is not None else NO_EPOCH
    if update.leader_epoch < epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    decision = replicas.damaged.decide(update)
    if decision is DamageDecision.REFUSE:
        replicas.give_up(tp)
        return ErrorCode.KAFKA_STORAGE_ERROR
    if update.leader_epoch == epoch and partition is not None:
        return _same_epoch(replicas, partition, topic_id, applied)
    if replicas.broker_id not in update.replicas:
        logger.warning(
            "LeaderAndIsr partition refused partition=%s reason=not assigned to this broker", tp
        )
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    take_on = partial(_take_on, replicas, partition, update, known_id, decision, applied)
    return _attempt(replicas, tp, "LeaderAndIsr", take_on)


def _take_on(
    replicas: ReplicaManager,
    partition: Partition | None,
    update: LeadershipUpdate,
    known_id: bytes,
    decision: DamageDecision,
    applied: Applied,
) -> None:
    """Lead or follow in a new epoch, or once the topic id of the log is durable."""
    tp, topic_id = update.tp, update.topic_id
    replicas.offline.pop(tp, None)  # what a failed log dir took away does not come this far
    if decision is DamageDecision.REBUILD:
        replicas.damaged.set_aside(tp)
    if replicas.logs.get(tp) is None and not update.is_new:
        replicas.logs.mark_incomplete(tp)  # an empty disk in the place of a known one
    if partition is None:
        log = replicas.logs.get_or_create(tp, topic_id, update.is_new)
        partition = replicas.partition_kind(tp, replicas)
        partition.counts = replicas.topic_counts.of(tp.topic)
        replicas.partitions[tp] = partition
    else:
        log = replicas.logs.get_or_create(tp, topic_id)
    if topic_id == ZERO_UUID and known_id != ZERO_UUID:
        topic_id = known_id
        update = update._replace(topic_id=known_id)
    if topic_id != ZERO_UUID:
        replicas.topic_names[topic_id] = tp.topic
    if log.topic_id != ZERO_UUID and not log.topic_id_durable:
        applied.waiting.append((partition, log, update))
    else:
        _transition(replicas, partition, log, update, applied)


def _attempt(
    replicas: ReplicaManager, tp: TopicPartition, what: str, step: Callable[[], None]
) -> ErrorCode:
    """Take a step for one partition; return the code for the controller.

    The request's other partitions have no part in a failure.
    """
    try:
        step()
    except StorageError as error:
        logger.error("%s failed partition=%s error=%s", what, tp, error)  # noqa: TRY400
        partition = replicas.partitions.get(tp)
        if partition is not None:
            replicas.take_offline(partition)
        else:
            replicas.offline[tp] = None
        return ErrorCode.KAFKA_STORAGE_ERROR
    except OttlaError as error:
        logger.error("%s failed partition=%s error=%s", what, tp, error)  # noqa: TRY400
        return _code_for_controller(error)
    except Exception:  # our bug
        logger.exception("%s failed partition=%s", what, tp)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def _is_unknown(replicas: ReplicaManager, update: LeadershipUpdate) -> bool:
    """Return whether a new partition's place is taken by records of which nothing says whose.

    A power loss may bring a deleted folder back, without its topic id (R15).
    """
    tp = update.tp
    if not update.is_new or update.topic_id == ZERO_UUID or tp in replicas.partitions:
        return False
    if replicas.broker_id not in update.replicas:
        return False
    log = replicas.logs.get(tp)
    return log is not None and log.topic_id == ZERO_UUID and log.log_end_offset > 0


async def _go_on_with_durable_ids(
    replicas: ReplicaManager, applied: Applied, errors: dict[TopicPartition, ErrorCode]
) -> None:
    """Lead and follow what waited for its topic id to be durable: one sync for a whole request.

    Nothing is appended before: after a power loss nothing would say whose the records are (R15).
    Kafka: `UnifiedLog.maybeFlushMetadataFile`, before each log's first append.
    """
    logs = [log for _, log, _ in applied.waiting] + applied.named
    controller_epoch = replicas.controller_epoch
    await replicas.logs.make_topic_ids_durable(replicas.world.workers, logs)
    if replicas.controller_epoch != controller_epoch:
        return
    time_slice = TimeSlice(replicas.clock)
    for partition, log, update in applied.waiting:
        tp = update.tp
        if replicas.partitions.get(tp) is not partition:
            continue  # UpdateMetadata took it away meanwhile
        step = partial(_transition, replicas, partition, log, update, applied)
        errors[tp] = _attempt(replicas, tp, "LeaderAndIsr", step)
        if time_slice.over:
            _notify(replicas, applied)
            await time_slice.next()
            if replicas.controller_epoch != controller_epoch:
                return


def _known_topic_id(
    replicas: ReplicaManager, tp: TopicPartition, partition: Partition | None
) -> bytes:
    if partition is not None and partition.state.topic_id != ZERO_UUID:
        return partition.state.topic_id
    log = replicas.logs.get(tp)
    return log.topic_id if log is not None else ZERO_UUID


def _same_epoch(
    replicas: ReplicaManager, partition: Partition, topic_id: bytes, applied: Applied
) -> ErrorCode:
    """Nothing new, unless the controller has just given the topic an id, or stopped to send it.

    Any follower that it stopped follows again. It matters for a damaged replica (adr/0008): it is
    stopped after its first refusal, and by then a second LeaderAndIsr may have had it copied again.
    Kafka would wait for a higher epoch.
    """
    if partition.stopped:
        partition.stopped = False
        _follow(replicas, partition)
        replicas.moves.resume(partition)
        stale = ErrorCode.NONE
    else:
        stale = ErrorCode.STALE_CONTROLLER_EPOCH
    if topic_id != ZERO_UUID and partition.state.topic_id == ZERO_UUID:
        partition.assign_topic_id(topic_id)
        if partition.log is not None:
            applied.named.append(partition.log)
    elif (
        topic_id == ZERO_UUID
        and partition.state.topic_id != ZERO_UUID
        and not partition.state.is_leader
    ):
        return ErrorCode.NONE
    else:
        return stale
    if not partition.state.is_leader:
        replicas.fetchers.topic_id_changed(partition)
    return ErrorCode.NONE


def _follow(replicas: ReplicaManager, partition: Partition) -> None:
    """Fetch from the leader.

    One that is not alive yet is asked for again and again until it is; Kafka would leave the
    partition without a fetcher until the next LeaderAndIsr.
    """
    following = partition.state.leader >= 0 and not partition.state.is_leader
    if following and not (replicas.leaving or replicas.shutting_down):
        replicas.fetchers.add(partition)


def _transition(
    replicas: ReplicaManager,
    partition: Partition,
    log: Log,
    update: LeadershipUpdate,
    applied: Applied,
) -> None:
    if log.failed is not None:
        raise log.failed
    replicas.recovery.cancel(partition.tp)
    partition.stopped = False
    _lead_or_follow(replicas, partition, log, update, applied)
    replicas.moves.resume(partition)


def _lead_or_follow(
    replicas: ReplicaManager,
    partition: Partition,
    log: Log,
    update: LeadershipUpdate,
    applied: Applied,
) -> None:
    if update.leader == replicas.broker_id:
        # The fetcher goes first: nothing may be appended as follower to a log that we lead.
        replicas.fetchers.remove((partition.tp,))
        if partition.tp in replicas.logs.unclean and len(update.replicas) > 1:
            partition.await_leadership(update, log)
            replicas.recovery.add(
                partition,
                log,
                update,
                lambda: _lead_after_recovery(replicas, partition, log, update),
            )
            return
        _lead(replicas, partition, log, update, applied)
        return
    before = partition.state.leader, partition.state.leader_epoch
    if not partition.make_follower(update, log):
        return
    applied.state_changes.became_follower(partition, log, *before)
    replicas.fetchers.remove((partition.tp,))
    applied.followers.append(partition)
    _follow(replicas, partition)


def leader_and_isr_error(
    request: LeaderAndIsrRequest, version: int, code: ErrorCode
) -> LeaderAndIsrResponse:
    """Return the response that refuses a whole request."""
    return _respond(request, version, {}, code)


def _lead(
    replicas: ReplicaManager,
    partition: Partition,
    log: Log,
    update: LeadershipUpdate,
    applied: Applied,
) -> None:
    replicas.in_sync(partition.tp)  # or alone, or allowed to lose: it says what was kept
    before = partition.state.leader, partition.state.leader_epoch
    if partition.make_leader(update, log):
        applied.leaders.append(partition)
        if update.recovery_state == RECOVERING:
            # As in Kafka there is nothing to recover from: its first ISR change says so.
            logger.warning(
                "unclean election partition=%s leader_epoch=%d offset=%d: what only others had "
                "from this offset on "
                "is lost",
                partition.tp,
                partition.state.leader_epoch,
                log.log_end_offset,
            )
    if partition.state.is_leader:
        applied.state_changes.became_leader(partition, log, *before)
        applied.expected.append(partition)


def _lead_after_recovery(
    replicas: ReplicaManager, partition: Partition, log: Log, update: LeadershipUpdate
) -> None:
    """Begin to lead, outside of any request: the other replicas have been asked."""
    applied = Applied(state_changes=StateChangeLog(replicas.broker_id))
    _lead(replicas, partition, log, update, applied)
    _notify(replicas, applied)


def _respond(
    request: LeaderAndIsrRequest,
    version: int,
    errors: dict[TopicPartition, ErrorCode],
    code: ErrorCode,
) -> LeaderAndIsrResponse:
    response = LeaderAndIsrResponse(error_code=code)
    item = LeaderAndIsrResponse.LeaderAndIsrPartitionError
    if version < 5:
        response.partition_errors = [
            item(topic_name=tp.topic, partition_index=tp.partition, error_code=errors.get(tp, code))
            for tp, _, _ in _states(request)
        ]
        return response
    for topic in request.topic_states:
        responses = []
        for state in topic.partition_states:
            tp = TopicPartition(topic.topic_name, state.partition_index)
            responses.append(item(partition_index=tp.partition, error_code=errors.get(tp, code)))
        response.topics.append(
            LeaderAndIsrResponse.LeaderAndIsrTopicError(
                topic_id=topic.topic_id, partition_errors=responses
            )
        )
    return response


# --- StopReplica --------------------------------------------------------------------------------


def stop_states(
    request: StopReplicaRequest, version: int
) -> Iterator[tuple[TopicPartition, int, bool]]:
    """Yield (partition, leader epoch or -1, delete) in any version's shape."""
    if version < 1:
        for old in request.ungrouped_partitions:
            tp = TopicPartition(old.topic_name, old.partition_index)
            yield tp, NO_EPOCH, request.delete_partitions
    elif version < 3:
        for topic in request.topics:
            for index in topic.partition_indexes:
                yield TopicPartition(topic.name, index), NO_EPOCH, request.delete_partitions
    else:
        for group in request.topic_states:
            for state in group.partition_states:
                tp = TopicPartition(group.topic_name, state.partition_index)
                yield tp, state.leader_epoch, state.delete_partition


async def apply_stop_replica(
    replicas: ReplicaManager, request: StopReplicaRequest, version: int
) -> StopReplicaResponse:
    """Stop following, and delete where asked, also what is on disk but not hosted."""
    async with replicas.control_lock:
        if not _accepts(replicas, "StopReplica", request):
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        response = StopReplicaResponse()
        # After a reassignment no LeaderAndIsr goes to a removed replica that led.
        deleted: list[Partition] = []
        time_slice = TimeSlice(replicas.clock)
        for tp, epoch, delete in stop_states(request, version):
            response.partition_errors.append(
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=tp.topic,
                    partition_index=tp.partition,
                    error_code=_stop(replicas, tp, epoch, deleted, delete=delete),
                )
            )
            if time_slice.over:
                replicas.leadership_changed([], deleted)
                deleted = []
                await time_slice.next()
        replicas.leadership_changed([], deleted)
        replicas.fetchers.close_idle()
        failed = await replicas.logs.leaving.make_durable(replicas.world.workers)
        for entry in response.partition_errors if failed else ():
            if TopicPartition(entry.topic_name, entry.partition_index) in failed:
                entry.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return response


def _stop(
    replicas: ReplicaManager,
    tp: TopicPartition,
    epoch: int,
    deleted: list[Partition],
    *,
    delete: bool,
) -> ErrorCode:
    if tp in replicas.offline:
        if not (delete and replicas.damaged.returns(tp)):
            return ErrorCode.KAFKA_STORAGE_ERROR
        del replicas.offline[tp]
    partition = replicas.partitions.get(tp)
    if partition is not None:
        if epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and epoch < partition.state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        replicas.recovery.cancel(tp)
        replicas.fetchers.remove((tp,))
        replicas.moves.remove((tp,))
        if delete:
            del replicas.partitions[tp]
            partition.stop()
            replicas.forget_topic(partition)
            deleted.append(partition)
        else:
            partition.stopped = not partition.state.is_leader
            partition.release_waiting()
    if not delete:
        return ErrorCode.NONE
    logger.info("delete replica partition=%s leader_epoch=%d", tp, epoch)
    return _attempt(replicas, tp, "delete", partial(replicas.logs.delete_stray_folder, tp))


def _code_for_controller(error: OttlaError) -> ErrorCode:
    """Return the error of a failed partition in the response.

    KAFKA_STORAGE_ERROR means that its log dir is offline, and no controller would send the request
    again; after UNKNOWN_SERVER_ERROR an Ottla controller resends everything to the broker.
    """
    if isinstance(error, OutOfDescriptorsError):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error.code
