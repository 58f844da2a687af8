"""Brokers: they start, fail, bounce, change endpoints, lose log directories.

A decider. Invariants: a broker that came back with a higher epoch died in between, even if no watch
showed it: its failure is handled before its start (R8, F11); new brokers are sent the whole cluster
before they are sent what to lead or follow. Kafka: `processBrokerChange`, `onBrokerStartup`,
`onBrokerFailure`, `onReplicasBecomeOffline`, `onBrokerLogDirFailure` and
`processLeaderAndIsrResponseReceived`.
"""

import logging
from collections.abc import Iterable, Sequence

from ottla.controller import deletion, reassignment
from ottla.controller.broker_epochs import compare
from ottla.controller.events import ProcessGone
from ottla.controller.plan import Failure
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.cluster import BrokerInfo
from ottla.model.ids import TopicPartition

logger = logging.getLogger(__name__)


async def on_brokers_changed(changes: StateChanges) -> None:
    """Compare the registrations there are with those known."""
    context, outbox = changes.context, changes.outbox
    present = await changes.cluster.read_brokers()
    change = compare(context, present)
    new, bounced = [b.id for b in change.new], [b.id for b in change.bounced]
    changes.outbox.record(
        journaled.BrokersChanged(
            present=registrations(present),
            known=registrations(context.brokers.values()),
            shutting_down=tuple(sorted(context.shutting_down)),
            new=tuple(new),
            bounced=tuple(bounced),
            dead=change.dead,
        )
    )
    if not (change.new or change.bounced or change.dead):
        return
    logger.info("brokers changed new=%s bounced=%s dead=%s", new, bounced, list(change.dead))
    for broker in change.new:
        outbox.open(broker)
    for broker in change.bounced:
        outbox.close(broker.id)
        outbox.open(broker)
    for broker_id in change.dead:
        outbox.close(broker_id)
    if change.new:
        await _add(changes, change.new)
    if change.bounced:
        await _remove(changes, bounced)
        await _add(changes, change.bounced)
    if change.dead:
        await _remove(changes, change.dead)


async def on_process_gone(changes: StateChanges, gone: ProcessGone) -> None:
    """Take evidence that the process behind a registration is gone."""
    context = changes.context
    known = context.brokers.get(gone.broker)
    if known is None or known.epoch != gone.broker_epoch:
        return  # gone, or registered again
    if known.endpoints != gone.endpoints or gone.broker in context.shutting_down:
        return  # its listeners are others by now, or it is about to end in order
    await remove_registration(changes, known, gone.evidence)


async def remove_registration(changes: StateChanges, broker: BrokerInfo, evidence: str) -> None:
    """Remove the registration of a broker whose process is gone (R17).

    What follows is what follows the end of its session, and follows at once.
    """
    changes.outbox.record(
        journaled.ProcessGone(broker=broker.id, broker_epoch=broker.epoch, evidence=evidence)
    )
    problem = await changes.cluster.remove_registration(broker, evidence)
    if problem is not None:
        logger.info("registration kept broker=%d reason=%s", broker.id, problem)
        return
    logger.warning(
        "registration removed broker=%d broker_epoch=%d reason=%s",
        broker.id,
        broker.epoch,
        evidence,
    )
    await on_brokers_changed(changes)


def registrations(brokers: Iterable[BrokerInfo]) -> tuple[journaled.Registration, ...]:
    """Return registrations as journal lines hold them."""
    return tuple((b.id, b.epoch, b.rack) for b in brokers)


async def _add(changes: StateChanges, brokers: Sequence[BrokerInfo]) -> None:
    stated = await changes.cluster.read_statements(brokers)
    changes.context.clean_brokers.update(stated.whole)
    changes.context.voiding_brokers.update(stated.voiding)
    for broker in brokers:
        changes.context.add_broker(broker)
    await on_broker_startup(changes, [b.id for b in brokers])


async def _remove(changes: StateChanges, broker_ids: Sequence[int]) -> None:
    for broker_id in broker_ids:
        changes.context.remove_broker(broker_id)
    await on_broker_failure(changes, broker_ids)


async def on_broker_startup(changes: StateChanges, new: Sequence[int]) -> None:
    """Introduce brokers to the cluster and give them their replicas."""
    context = changes.context
    for broker_id in new:
        context.offline_dirs.pop(broker_id, None)
    # 1. The live brokers, to the others; the metadata of the cluster, to the new ones.
    await changes.metadata([b for b in context.brokers if b not in new])
    await changes.metadata(new, context.partitions_with_leadership())
    # 2. Their replicas go to OnlineReplica.
    await changes.replicas(context.replicas_on(new), ReplicaState.ONLINE)
    # 3. Partitions without a leader may have one now.
    never_led = context.partition_states.among(context.reassigning, PartitionState.NEW)
    await changes.online_where_possible()
    # 4. Reassignments that waited for them go on.
    await reassignment.resume(changes, lambda assignment: any(b in assignment.target for b in new))
    # What was reassigned before it had a leader has its target in the first ISR: no leader will
    # propose it, so nothing else would go on with it.
    led = context.partition_states.among(never_led, PartitionState.ONLINE)
    await reassignment.complete_if_caught_up(changes, led)
    # 5. So do deletions.
    await deletion.resume(changes, {tp.topic for tp, _ in context.replicas_on(new)})
    await changes.cluster.watch_registrations(new)


async def on_broker_failure(changes: StateChanges, dead: Sequence[int]) -> None:
    """Move leadership away from brokers that are gone, and take them out of every ISR."""
    context = changes.context
    for broker_id in dead:
        context.offline_dirs.pop(broker_id, None)
        context.shutting_down.discard(broker_id)
    await on_replicas_offline(changes, context.replicas_on(dead))


async def on_replicas_offline(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> None:
    """Elect new leaders first, then shrink the ISRs, then send the live brokers."""
    context = changes.context
    going = [r for r in replicas if r.partition.topic in context.deleting]
    staying = [r for r in replicas if r.partition.topic not in context.deleting]
    # 1. Partitions they led go to OfflinePartition, 2. and to OnlinePartition by an election.
    leaderless = context.partitions_with_offline_leader()
    await changes.partitions(leaderless, PartitionState.OFFLINE)
    outcomes = await changes.online_where_possible()
    # 3. The replicas go to OfflineReplica: out of the ISRs.
    await changes.replicas(staying, ReplicaState.OFFLINE)
    # 4. Those of topics being deleted make the deletion wait.
    if going:
        await deletion.on_deletion_failed(changes, going)
    # 5. No LeaderAndIsr has carried the news of the dead broker yet: send UpdateMetadata.
    if not staying and all(isinstance(o, Failure) for o in outcomes.values()):
        await changes.metadata(context.live_or_shutting_down)


async def on_broker_modified(changes: StateChanges, broker_id: int) -> None:
    """Take a registration's new endpoints and send them to everybody."""
    await changes.cluster.watch_registrations([broker_id])
    await take_modified(changes, broker_id)


async def take_modified(changes: StateChanges, broker_id: int) -> None:
    """Take what a registration says now."""
    new = await changes.cluster.read_broker(broker_id)
    known = changes.context.brokers.get(broker_id)
    if new is None or known is None or new.epoch != known.epoch:
        return  # gone or bounced: BrokersChanged follows
    if new.endpoints == known.endpoints and new.features == known.features:
        return
    endpoints = [str(e) for e in new.endpoints]
    logger.info("broker modified broker=%d endpoints=%s", new.id, endpoints)
    changes.outbox.record(journaled.BrokerModified(broker=new.id, endpoints=endpoints))
    changes.context.add_broker(new)
    await changes.metadata(changes.context.live_or_shutting_down)


async def on_log_dirs_failed(changes: StateChanges) -> None:
    """Take the notifications of failed log directories, and delete them."""
    names = await changes.cluster.read_log_dir_events()
    if not names:
        return
    try:
        await _ask_what_is_left(changes, await changes.cluster.read_failed_brokers(names))
    finally:
        await changes.cluster.delete_log_dir_events(names)


async def _ask_what_is_left(changes: StateChanges, brokers: Sequence[int]) -> None:
    """Ask the brokers that reported a failed log directory, by LeaderAndIsr, what is left."""
    context = changes.context
    logger.info("log directories failed brokers=%s", list(brokers))
    changes.outbox.record(journaled.LogDirsFailed(brokers=list(brokers)))
    replicas = context.replicas_on(b for b in brokers if b in context.brokers)
    await changes.replicas(replicas, ReplicaState.ONLINE)


async def on_replicas_hosted(
    changes: StateChanges,
    broker: int,
    failed: Sequence[TopicPartition],
    returned: Sequence[TopicPartition],
) -> None:
    """Take a LeaderAndIsr response: some replicas it cannot host, others it can again."""
    context = changes.context
    offline = context.offline_dirs.setdefault(broker, set())
    offline.update(failed)
    offline.difference_update(returned)
    if failed:
        logger.info("replicas offline broker=%d partitions=%d", broker, len(failed))
        changes.outbox.record(
            journaled.LeaderAndIsrAnswered(
                broker=broker,
                offline=[str(tp) for tp in failed],
                online=[str(tp) for tp in returned],
            )
        )
        await changes.eligibility.remove(broker, failed)
        await on_replicas_offline(changes, [PartitionReplica(tp, broker) for tp in failed])
    if returned:
        logger.info("replicas back broker=%d partitions=%d", broker, len(returned))
        changes.outbox.record(
            journaled.ReplicasReturned(broker=broker, online=[str(tp) for tp in returned])
        )
        # One that the request of a reassignment brought back is still in OfflineReplica. Kafka lets
        # it wait for the next event of a broker.
        replicas = [PartitionReplica(tp, broker) for tp in returned]
        still_offline = context.replica_states.among(replicas, ReplicaState.OFFLINE)
        await changes.replicas(still_offline, ReplicaState.ONLINE)
        if not set(returned).isdisjoint(context.waiting_for_leader()):
            # It may be the last one in sync. Kafka lets it wait for the next event of a broker.
            await changes.online_where_possible()


async def full_resync(changes: StateChanges, broker: int) -> None:
    """Send a broker everything again, because requests to it were dropped or failed there.

    A replica that a reassignment waits for is sent as new and stays new: on its way from new to
    online nothing is sent, since it has caught up by then (as in Kafka, which sends nothing again).
    """
    context = changes.context
    logger.info("full resync broker=%d", broker)
    changes.outbox.record(journaled.BrokerFellBehind(broker=broker))
    await changes.metadata([broker], context.partitions_with_leadership())
    replicas = context.replicas_on([broker])
    new = frozenset(context.replica_states.among(replicas, ReplicaState.NEW))
    await changes.replicas([r for r in replicas if r not in new], ReplicaState.ONLINE)
    await changes.send_new([r for r in replicas if r in new])


async def on_unclean_elections_enabled(changes: StateChanges, topic: str | None) -> None:
    """Elect where a topic's settings (None: the defaults) now allow unclean elections."""
    changes.outbox.record(journaled.UncleanElectionEnabled(topic=topic or journaled.EVERY_TOPIC))
    await changes.online_where_possible(topic)
