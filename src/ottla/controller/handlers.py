"""Handlers: one for each event; each reads what the event is about and has its procedure done.

Who may call: `loop`. Invariants: an event from a watch is handled by what is read now, and the
watch is left again by the same read; the order of steps is the procedures' (`brokers`, `topics`,
`deletion`, `reassignment`, `requested_elections`, `requests`, `failover`), never decided here.
Kafka: the `process*` methods of `KafkaController`, and `initializeControllerContext`.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Any

from ottla.controller import (
    brokers,
    deletion,
    failover,
    reassignment,
    requested_elections,
    requests,
    snapshot,
    topic_ids,
    topics,
)
from ottla.controller import events as happened
from ottla.controller.effects import Steps, WatchRegistrations
from ottla.controller.eligible import note_first_broker_epochs
from ottla.controller.events import Event
from ottla.controller.state_changes import SLICE
from ottla.controller.term import ControllerTerm
from ottla.model.cluster import TopicInfo
from ottla.model.errors import ControllerMovedError, ErrorCode
from ottla.model.ids import TopicPartition, topic_name_problem
from ottla.model.time_slices import yield_to_loop
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.zookeeper import znodes
from ottla.zookeeper.errors import MalformedZnodeError, NoNodeError, ZooKeeperError
from ottla.zookeeper.watches import WatchType
from ottla.zookeeper.znodes import PREFERRED_REPLICA_ELECTION, Features

logger = logging.getLogger(__name__)

RESYNC_DELAY_S = 30.0
"""Until a broker that failed at a request gets a full resync."""
FIRST_BALANCE_DELAY_S = 5.0
READ_SLICE = 10_000


async def handle(term: ControllerTerm, cause: int, event: Event) -> Any:
    """Handle one event; `cause` is its id. Return the response of a request."""
    run = term.driver.run
    match event:
        case happened.BrokersChanged():
            await _brokers_changed(term, cause)
        case happened.ProcessGone() as gone:
            await _process_gone(term, cause, gone)
        case happened.BrokerModified(broker):
            await _broker_modified(term, cause, broker)
        case happened.TopicsChanged():
            await _topics_changed(term, cause)
        case happened.PartitionsModified(topic):
            await _partitions_modified(term, cause, topic)
        case happened.LeaderAndIsrResponseReceived(broker, response):
            await leader_and_isr_response(term, cause, broker, response)
        case happened.UpdateMetadataResponseReceived(broker, response):
            update_metadata_response(term, broker, response)
        case happened.StopReplicaResponseReceived(broker, response, deletes):
            await stop_replica_response(term, cause, broker, response, deletes)
        case happened.AlterPartitionReceived(request, result):
            await run(
                cause,
                lambda changes: requests.alter_partition(changes, request),
                lambda response: result.done() or result.set_result(response),
            )
        case happened.AllocateProducerIdsReceived(request, _):
            return await _allocate_producer_ids(term, request)
        case happened.ControlledShutdownReceived(request, _):
            return await run(cause, lambda c: requests.controlled_shutdown(c, request))
        case happened.IsrChangesNotified():
            await _isr_changes_notified(term, cause)
        case happened.LogDirsFailed():
            await _log_dirs_failed(term, cause)
        case happened.TopicDeletionsRequested():
            watch = term.watcher(happened.TopicDeletionsRequested())
            requested = await term.store.get_topic_deletions(watch)
            await run(cause, lambda changes: deletion.on_requests(changes, requested))
        case happened.ReassignmentRequested():
            await run(cause, reassignment.on_znode_changed)
        case happened.AlterReassignmentsReceived(wanted, _):
            return await run(cause, lambda changes: reassignment.on_request(changes, wanted))
        case happened.ListReassignmentsReceived(partitions, _):
            return reassignment.list_reassignments(term.context, partitions)
        case happened.PreferredElectionRequested():
            await _preferred_election_requested(term, cause)
        case happened.ElectLeadersReceived((kind, partitions), _):
            return await run(
                cause, lambda changes: requested_elections.on_request(changes, kind, partitions)
            )
        case happened.LeaderBalanceDue():
            await _leader_balance_due(term, cause)
        case happened.UncleanElectionEnabled(topic_or_all):
            await run(cause, lambda c: brokers.on_unclean_elections_enabled(c, topic_or_all))
        case happened.FullResyncDue(broker):
            term.resync_scheduled.discard(broker)
            if broker in term.context.brokers:
                await run(cause, lambda changes: brokers.full_resync(changes, broker))
        case happened.JournalRotated():
            await run(cause, lambda changes: snapshot.take(changes, snapshot.ROTATED))
        case _:
            logger.warning("event without a handler event=%s", type(event).__name__)
    return None


# --- controller failover --------------------------------------------------------------------------


async def on_controller_failover(term: ControllerTerm, cause: int) -> None:
    """Take over the cluster: read all of it, then do what `failover` says.

    A failure anywhere is the caller's to handle.
    """
    store, run = term.store, term.driver.run
    await _set_up_features(term)
    isr_changes, log_dirs, present, names = await asyncio.gather(
        store.get_all_isr_change_notifications(term.watcher(happened.IsrChangesNotified())),
        store.get_all_log_dir_event_notifications(term.watcher(happened.LogDirsFailed())),
        store.get_all_brokers_in_cluster(term.watcher(happened.BrokersChanged())),
        store.get_all_topics_in_cluster(term.watcher(happened.TopicsChanged())),
    )
    await store.delete_log_dir_event_notifications(term.fence, log_dirs)
    await store.delete_isr_change_notifications(term.fence, isr_changes)
    term.context.set_brokers(present)
    written_at = await _read_context(term, cause, names)
    watch = term.watcher(happened.TopicDeletionsRequested())
    deletions = await store.get_topic_deletions(watch)
    await run(
        cause, lambda changes: failover.on_controller_failover(changes, written_at, deletions)
    )
    await topic_ids.write_notes(term)
    await _preferred_election_requested(term, cause)
    if term.config.flag("auto.leader.rebalance.enable"):
        term.start_timer(FIRST_BALANCE_DELAY_S, happened.LeaderBalanceDue())


async def _set_up_features(term: ControllerTerm) -> None:
    """Make /feature say that features are versioned (KIP-584), as from 2.7 on.

    One that cannot be read stays for a person to look at: the controller needs nothing from it
    (F41).
    """
    initial = Features(enabled=True, levels={})
    try:
        features, version = await term.store.get_or_create_feature(initial)
    except MalformedZnodeError as error:
        term.store.ignore(error)
        return
    if not features.enabled or features.version != Features(enabled=True, levels={}).version:
        levels = features.levels if features.enabled else {}
        await term.store.update_feature(Features(enabled=True, levels=levels), version)


async def _read_context(
    term: ControllerTerm, cause: int, names: Sequence[str]
) -> dict[TopicPartition, int]:
    """Read topics and states; return the zxid at which each state was last written."""
    written_at: dict[TopicPartition, int] = {}
    context, store = term.context, term.store
    for info in await _read_and_watch(term, names, elected=True):
        context.add_topic(info)
        for partition, assignment in info.assignment.items():
            if assignment.being_reassigned:
                context.reassigning[TopicPartition(info.name, partition)] = None
        await yield_to_loop()
    await term.driver.run(cause, lambda _changes: _watch_registrations(list(context.brokers)))
    for some in context.partitions_in_slices(READ_SLICE):
        created_at: dict[TopicPartition, int] = {}
        read = await store.get_topic_partition_states(some, written_at, created_at)
        context.leadership.update(read)
        note_first_broker_epochs(context, created_at)
        await yield_to_loop()
    await _read_eligible(term)
    for broker in context.brokers.values():
        term.channels.add(broker)
    await term.driver.run(
        cause, lambda changes: snapshot.take(changes, snapshot.ELECTED, written_at)
    )
    return written_at


async def _read_eligible(term: ControllerTerm) -> None:
    """Read who may lead besides the ISR, and what brokers say of their logs."""
    context, store = term.context, term.store
    live = list(context.brokers.values())
    (context.clean_brokers, context.voiding_brokers), names, stated = await asyncio.gather(
        store.get_stated(live),
        store.get_eligible_topics(),
        asyncio.gather(*map(store.stated, live)),
    )
    context.unstated = {b.id for b, said in zip(live, stated, strict=True) if not said}
    if not term.settings.eligible_replicas:
        return
    for topic in names:
        if topic not in context.assignments:
            await store.delete_eligible_of_topic(topic, term.fence)
    context.eligible = await store.get_eligible(context.topic_ids)


def _watch_registrations(broker_ids: Sequence[int]) -> Steps[None]:
    yield WatchRegistrations(broker_ids)


# --- brokers --------------------------------------------------------------------------------------


async def _brokers_changed(term: ControllerTerm, cause: int) -> None:
    watch = term.watcher(happened.BrokersChanged())
    present = await term.store.get_all_brokers_in_cluster(watch)
    await term.driver.run(cause, lambda changes: brokers.on_brokers_changed(changes, present))


async def _process_gone(term: ControllerTerm, cause: int, gone: happened.ProcessGone) -> None:
    """Remove a registration, and do at once what its end leads to."""
    known = term.context.brokers.get(gone.broker)
    if known is None or known.epoch != gone.broker_epoch:
        return  # gone, or registered anew
    if known.endpoints != gone.endpoints or gone.broker in term.context.shutting_down:
        return  # its listeners are others by now, or it is about to end in order
    if await term.driver.run(cause, lambda _c: brokers.on_process_gone(known, gone.evidence)):
        await _brokers_changed(term, cause)


async def _broker_modified(term: ControllerTerm, cause: int, broker_id: int) -> None:
    await term.driver.run(cause, lambda _changes: _watch_registrations([broker_id]))
    new = await term.store.get_broker(broker_id)
    known = term.context.brokers.get(broker_id)
    if new is None or known is None or new.epoch != known.epoch:
        return  # gone or bounced: BrokersChanged follows
    if new.endpoints != known.endpoints or new.features != known.features:
        await term.driver.run(cause, lambda changes: brokers.on_broker_modified(changes, new))


async def _log_dirs_failed(term: ControllerTerm, cause: int) -> None:
    store = term.store
    watch = term.watcher(happened.LogDirsFailed())
    names = await store.get_all_log_dir_event_notifications(watch)
    if not names:
        return
    try:
        failed = await store.get_broker_ids_from_log_dir_events(names)
        await term.driver.run(cause, lambda changes: brokers.on_log_dirs_failed(changes, failed))
    finally:
        await store.delete_log_dir_event_notifications(term.fence, names)


async def leader_and_isr_response(
    term: ControllerTerm, cause: int, broker: int, response: Any
) -> None:
    """Learn which replicas a broker could not host."""
    if response.error_code != ErrorCode.NONE:
        logger.error("LeaderAndIsr refused broker=%d error=%d", broker, response.error_code)
        raise_if_fenced(response.error_code, broker)
        _resync_if_failed(term, broker, response.error_code)
        return
    context = term.context
    before = context.offline_dirs.get(broker, set())
    after = set(before)
    failed = []
    for topic in response.topics:
        name = context.topic_names.get(bytes(topic.topic_id))
        if name is None:
            continue
        for partition in topic.partition_errors:
            if not before and partition.error_code == ErrorCode.NONE:
                continue  # as thousands of responses say
            tp = TopicPartition(name, partition.partition_index)
            if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                after.add(tp)
                if tp not in before:
                    failed.append(tp)
            elif partition.error_code == ErrorCode.NONE:
                after.discard(tp)
            else:
                _resync_if_failed(term, broker, partition.error_code)
    returned = sorted(before - after)
    if broker in context.brokers and (failed or returned):
        await term.driver.run(
            cause,
            lambda changes: brokers.on_replicas_hosted(changes, broker, failed, returned),
        )


def update_metadata_response(term: ControllerTerm, broker: int, response: Any) -> None:
    if response.error_code != ErrorCode.NONE:
        logger.error("UpdateMetadata refused broker=%d error=%d", broker, response.error_code)
        raise_if_fenced(response.error_code, broker)
        _resync_if_failed(term, broker, response.error_code)


def _resync_if_failed(term: ControllerTerm, broker: int, error_code: int) -> None:
    """Schedule a full resync of a broker whose handler failed: it lacks what was sent."""
    if error_code == ErrorCode.UNKNOWN_SERVER_ERROR and broker not in term.resync_scheduled:
        term.resync_scheduled.add(broker)
        term.start_timer(RESYNC_DELAY_S, happened.FullResyncDue(broker))


def raise_if_fenced(error_code: int, broker: int) -> None:
    """Raise ControllerMovedError if a broker has seen a higher controller epoch than ours."""
    if error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
        raise ControllerMovedError(f"broker {broker} has seen a newer controller")


async def stop_replica_response(
    term: ControllerTerm,
    cause: int,
    broker: int,
    response: Any,
    deletes: Collection[TopicPartition],
) -> None:
    """Learn which replicas a broker deleted of those it was to delete."""
    raise_if_fenced(response.error_code, broker)
    if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
        # Meant for its earlier registration. Its bounce halts the deletion and its start resumes
        # it: if this response comes after both, a deletion it halted would stay halted.
        logger.info("deletion refused broker=%d reason=stale broker epoch", broker)
        return
    errors = {
        TopicPartition(e.topic_name, e.partition_index): e.error_code
        for e in response.partition_errors
    }
    if response.error_code != ErrorCode.NONE:
        # A refused request names no partitions: everything it was to do failed.
        errors = dict.fromkeys(deletes, response.error_code)
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    deleted = [tp for tp in sorted(deletes) if errors.get(tp, unknown) == ErrorCode.NONE]
    failed = [tp for tp in sorted(deletes) if errors.get(tp, ErrorCode.NONE) != ErrorCode.NONE]
    await term.driver.run(
        cause, lambda changes: deletion.on_replicas_deleted(changes, broker, deleted, failed)
    )


# --- topics ---------------------------------------------------------------------------------------


async def _topics_changed(term: ControllerTerm, cause: int) -> None:
    """Compare the topics there are with those known."""
    context, store = term.context, term.store
    present = await store.get_all_topics_in_cluster(term.watcher(happened.TopicsChanged()))
    known = set(context.assignments)
    gone = sorted(known.difference(present))
    new = await _read_and_watch(term, [topic for topic in present if topic not in known])
    await term.driver.run(cause, lambda changes: topics.on_topics_changed(changes, new, gone))
    await topic_ids.write_notes(term)


async def _partitions_modified(term: ControllerTerm, cause: int, topic: str) -> None:
    if topic not in term.context.assignments:
        return
    found = await _read_and_watch(term, [topic])
    if found:
        await term.driver.run(
            cause, lambda changes: topics.on_partitions_modified(changes, topic, found[0])
        )
    await topic_ids.write_notes(term)


async def _read_and_watch(
    term: ControllerTerm, names: Sequence[str], *, elected: bool = False
) -> list[TopicInfo]:
    """Read topics, pipelined, each with a watch on its data, and with the ids they are known by."""
    store = term.store
    legal = []
    for topic in names:
        problem = topic_name_problem(topic)
        if problem is None:
            legal.append(topic)
        else:  # its replicas could have no folders, and a broker would take its disk for broken
            store.ignore(MalformedZnodeError(znodes.topic_path(topic)[:300], problem[-200:]))
    by_path = {znodes.topic_path(topic): topic for topic in legal}
    results = await store.read_all(
        lambda path: store.session.get(
            path,
            term.watcher(happened.PartitionsModified(by_path[path]), WatchType.DATA_CHANGED),
        ),
        list(by_path),
    )
    found: list[topic_ids.FoundTopic] = []
    parsed = 0
    for topic, result in zip(by_path.values(), results, strict=True):
        if isinstance(result, NoNodeError):
            continue
        if isinstance(result, ZooKeeperError):
            raise result
        try:
            info = znodes.decode_topic(topic, result[0])
        except MalformedZnodeError as error:
            store.ignore(error)
            continue
        found.append(topic_ids.FoundTopic(info, result[1]))
        parsed += len(info.assignment)
        if parsed >= SLICE:
            parsed = 0
            await yield_to_loop()
    return await topic_ids.settle(term, found, elected=elected)


# --- elections, ISRs, producer ids ----------------------------------------------------------------


async def _preferred_election_requested(term: ControllerTerm, cause: int) -> None:
    """Do what /admin/preferred_replica_election requests, and delete it."""
    store = term.store
    watch = term.watcher(happened.PreferredElectionRequested())
    if not await store.watch_exists(PREFERRED_REPLICA_ELECTION, watch):
        return
    wanted = await store.get_preferred_replica_election()
    await term.driver.run(cause, lambda changes: requested_elections.on_znode(changes, wanted))
    await store.delete_preferred_replica_election(term.fence)


async def _leader_balance_due(term: ControllerTerm, cause: int) -> None:
    config = term.config
    try:
        limit = config.integer("leader.imbalance.per.broker.percentage") / 100
        await term.driver.run(
            cause, lambda changes: requested_elections.on_balance_due(changes, limit)
        )
    finally:
        term.start_timer(
            config.integer("leader.imbalance.check.interval.seconds"), happened.LeaderBalanceDue()
        )


async def _isr_changes_notified(term: ControllerTerm, cause: int) -> None:
    """Learn of ISRs that leaders of older versions wrote by themselves."""
    store, context = term.store, term.context
    watch = term.watcher(happened.IsrChangesNotified())
    names = await store.get_all_isr_change_notifications(watch)
    if not names:
        return
    try:
        changed = await store.get_partitions_from_isr_change_notifications(names)
        partitions = [tp for tp in changed if context.assignment(tp).replicas]
        found = await store.get_topic_partition_states(partitions)
        await term.driver.run(
            cause, lambda changes: requests.on_isr_changes(changes, partitions, found)
        )
    finally:
        await store.delete_isr_change_notifications(term.fence, names)


async def _allocate_producer_ids(
    term: ControllerTerm, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Give a broker its next block of producer ids (KIP-730)."""
    broker = term.context.brokers.get(request.broker_id)
    if broker is None:
        return AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != request.broker_epoch:
        return AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    block = await term.store.allocate_producer_ids(request.broker_id)
    return AllocateProducerIdsResponse(
        producer_id_start=block.first, producer_id_len=block.last - block.first + 1
    )
