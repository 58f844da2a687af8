"""Brokers: they come, go, bounce, move, lose folders.

Who may call: `loop`, `failover`. Invariants: a broker that came back with a higher epoch died in
between, even if nobody saw it gone: its failure is handled before its start (R8, F11); new brokers
are told the whole cluster before they are told to lead or follow. Kafka:
`processBrokerChange`, `onBrokerStartup`, `onBrokerFailure`, `onReplicasBecomeOffline`,
`onBrokerLogDirFailure` and `processLeaderAndIsrResponseReceived`.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from ottla.controller import deletion, reassignment
from ottla.controller.broker_epochs import compare
from ottla.controller.events import (
    BrokerFellBehind,
    BrokerModified,
    BrokersChanged,
    LogDirsFailed,
)
from ottla.controller.plan import Failure
from ottla.controller.snapshot import broker_facts
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.controller.term import ControllerTerm
from ottla.model.cluster import BrokerInfo
from ottla.model.errors import ControllerMovedError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.zookeeper import znodes
from ottla.zookeeper.watches import WatchType

logger = logging.getLogger(__name__)

TELL_AGAIN_S = 30.0
"""Until a broker that failed at a request is told everything anew."""


async def brokers_changed(term: ControllerTerm) -> None:
    """Compare the registrations there are with those known."""
    watch = term.watcher(BrokersChanged())
    present = await term.store.get_all_brokers_in_cluster(watch)
    context, channels = term.context, term.channels
    change = compare(context, present)
    new, bounced = [b.id for b in change.new], [b.id for b in change.bounced]
    term.journal.event(
        term.cause,
        "BrokersChanged",
        {
            "present": broker_facts(present),
            "known": broker_facts(context.brokers.values()),
            "shutting_down": sorted(context.shutting_down),
            "new": new,
            "bounced": bounced,
            "dead": change.dead,
        },
    )
    if not (change.new or change.bounced or change.dead):
        return
    logger.info("brokers new=%s bounced=%s dead=%s", new, bounced, list(change.dead))
    for broker in change.new:
        channels.add(broker)
    for broker in change.bounced:
        channels.remove(broker.id)
        channels.add(broker)
    for broker_id in change.dead:
        channels.remove(broker_id)
    if change.new:
        await _join(term, change.new)
    if change.bounced:
        await _leave(term, bounced)
        await _join(term, change.bounced)
    if change.dead:
        await _leave(term, change.dead)


async def _join(term: ControllerTerm, brokers: Iterable[BrokerInfo]) -> None:
    brokers = list(brokers)
    term.context.whole |= await term.store.get_whole_brokers(brokers)
    for broker in brokers:
        term.context.add_broker(broker)
    await broker_startup(term, [b.id for b in brokers])


async def _leave(term: ControllerTerm, broker_ids: Sequence[int]) -> None:
    for broker_id in broker_ids:
        term.context.remove_broker(broker_id)
    await broker_failure(term, broker_ids)


async def broker_startup(term: ControllerTerm, new: Sequence[int]) -> None:
    """Introduce brokers to the cluster and give them their replicas."""
    context, moves = term.context, term.moves
    for broker_id in new:
        context.offline_dirs.pop(broker_id, None)
    await moves.metadata([b for b in context.brokers if b not in new])
    await moves.metadata(new, context.partitions_with_leadership())
    await moves.replicas(context.replicas_on(new), ReplicaState.ONLINE)
    never_led = context.partition_states.among(context.reassigning, PartitionState.NEW)
    await moves.online_where_possible()
    await reassignment.resume(term, lambda assignment: any(b in assignment.target for b in new))
    # What was reassigned before it had a leader has its target in the first ISR: no leader will
    # ask for it, so nothing else would go on with it.
    led = context.partition_states.among(never_led, PartitionState.ONLINE)
    await reassignment.complete_if_caught_up(term, led)
    await deletion.resume(term, {tp.topic for tp, _ in context.replicas_on(new)})
    await watch_registrations(term, new)


async def watch_registrations(term: ControllerTerm, broker_ids: Iterable[int]) -> None:
    """Leave a watch on the data of each registration."""
    store = term.store
    by_path = {znodes.broker_path(b): b for b in broker_ids}
    await store.read_all(
        lambda path: store.session.exists(
            path, term.watcher(BrokerModified(by_path[path]), WatchType.DATA_CHANGED)
        ),
        list(by_path),
    )


async def broker_failure(term: ControllerTerm, dead: Sequence[int]) -> None:
    """Move leadership away from brokers that are gone, and take them out of every ISR."""
    context = term.context
    for broker_id in dead:
        context.offline_dirs.pop(broker_id, None)
        context.shutting_down.discard(broker_id)
    await replicas_became_offline(term, context.replicas_on(dead))


async def replicas_became_offline(
    term: ControllerTerm, replicas: Sequence[PartitionReplica]
) -> None:
    """Elect new leaders first, then shrink the ISRs, then tell who is gone."""
    context, moves = term.context, term.moves
    going = [r for r in replicas if r.partition.topic in context.deleting]
    staying = [r for r in replicas if r.partition.topic not in context.deleting]
    leaderless = context.partitions_with_offline_leader()
    await moves.partitions(leaderless, PartitionState.OFFLINE)
    outcomes = await moves.online_where_possible()
    await moves.replicas(staying, ReplicaState.OFFLINE)
    if going:
        await deletion.fail(term, going)
    if not staying and all(isinstance(o, Failure) for o in outcomes.values()):
        # No LeaderAndIsr has carried the news of the dead broker yet.
        await moves.metadata(context.live_or_shutting_down)


async def broker_modified(term: ControllerTerm, broker_id: int) -> None:
    """Take a registration's new endpoints and tell everybody."""
    await watch_registrations(term, [broker_id])
    new = await term.store.get_broker(broker_id)
    known = term.context.brokers.get(broker_id)
    if new is None or known is None or new.epoch != known.epoch:
        return  # gone or bounced: BrokersChanged follows
    if new.endpoints == known.endpoints and new.features == known.features:
        return
    logger.info("broker modified id=%d endpoints=%s", broker_id, [str(e) for e in new.endpoints])
    term.journal.event(
        term.cause,
        "BrokerModified",
        {"broker": broker_id, "endpoints": [str(e) for e in new.endpoints]},
    )
    term.context.add_broker(new)
    await term.moves.metadata(term.context.live_or_shutting_down)


async def log_dirs_failed(term: ControllerTerm) -> None:
    """Ask the brokers that reported a failed folder, by LeaderAndIsr, which replicas are left."""
    store = term.store
    names = await store.get_all_log_dir_event_notifications(term.watcher(LogDirsFailed()))
    if not names:
        return
    try:
        brokers = await store.get_broker_ids_from_log_dir_events(names)
        logger.info("log directories failed brokers=%s", brokers)
        term.journal.event(term.cause, "LogDirsFailed", {"brokers": brokers})
        replicas = term.context.replicas_on(b for b in brokers if b in term.context.brokers)
        await term.moves.replicas(replicas, ReplicaState.ONLINE)
    finally:
        await store.delete_log_dir_event_notifications(term.fence, names)


async def leader_and_isr_answered(term: ControllerTerm, broker: int, response: Any) -> None:
    """Learn which replicas a broker could not host."""
    if response.error_code != ErrorCode.NONE:
        logger.error("LeaderAndIsr refused broker=%d error=%d", broker, response.error_code)
        raise_if_deposed(response.error_code, broker)
        _tell_again_if_it_failed(term, broker, response.error_code)
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
                continue  # as thousands of answers say
            tp = TopicPartition(name, partition.partition_index)
            if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                after.add(tp)
                if tp not in before:
                    failed.append(tp)
            elif partition.error_code == ErrorCode.NONE:
                after.discard(tp)
            else:
                _tell_again_if_it_failed(term, broker, partition.error_code)
    if broker not in context.brokers:
        return
    context.offline_dirs[broker] = after
    if failed:
        logger.info("replicas offline broker=%d partitions=%d", broker, len(failed))
        term.journal.event(
            term.cause,
            "LeaderAndIsrAnswered",
            {"broker": broker, "offline": [str(tp) for tp in failed]},
        )
        await term.moves.eligibility.lost(broker, failed)
        await replicas_became_offline(term, [PartitionReplica(tp, broker) for tp in failed])
    returned = sorted(before - after)
    if returned:
        logger.info("replicas back broker=%d partitions=%d", broker, len(returned))
        term.journal.event(
            term.cause,
            "ReplicasReturned",
            {"broker": broker, "online": [str(tp) for tp in returned]},
        )
        if not set(returned).isdisjoint(context.waiting_for_leader()):
            # It may be the last one in sync. Kafka lets it wait for the next event of a broker.
            await term.moves.online_where_possible()


def update_metadata_answered(term: ControllerTerm, broker: int, response: Any) -> None:
    if response.error_code != ErrorCode.NONE:
        logger.error("UpdateMetadata refused broker=%d error=%d", broker, response.error_code)
        raise_if_deposed(response.error_code, broker)
        _tell_again_if_it_failed(term, broker, response.error_code)


def _tell_again_if_it_failed(term: ControllerTerm, broker: int, error_code: int) -> None:
    """Have a broker whose handler failed told everything anew, later: it lacks what was said."""
    if error_code == ErrorCode.UNKNOWN_SERVER_ERROR and broker not in term.to_be_told_again:
        term.to_be_told_again.add(broker)
        term.later(TELL_AGAIN_S, BrokerFellBehind(broker))


def raise_if_deposed(error_code: int, broker: int) -> None:
    """Raise ControllerMovedError if a broker has seen a higher controller epoch than ours."""
    if error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
        raise ControllerMovedError(f"broker {broker} has heard of a newer controller")


async def fell_behind(term: ControllerTerm, broker: int) -> None:
    """Tell a broker everything anew, because requests to it were dropped or failed there.

    A replica that a reassignment waits for is told as new and stays new: on its way from new to
    online nothing is told, since it has caught up by then (as in Kafka, which tells nobody anew).
    """
    context, moves = term.context, term.moves
    term.to_be_told_again.discard(broker)
    if broker not in context.brokers:
        return
    logger.info("telling everything anew broker=%d", broker)
    term.journal.event(term.cause, "BrokerFellBehind", {"broker": broker})
    await moves.metadata([broker], context.partitions_with_leadership())
    replicas = context.replicas_on([broker])
    new = frozenset(context.replica_states.among(replicas, ReplicaState.NEW))
    await moves.replicas([r for r in replicas if r not in new], ReplicaState.ONLINE)
    await moves.tell_new([r for r in replicas if r in new])
