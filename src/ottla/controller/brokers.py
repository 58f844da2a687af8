"""Brokers: they start, fail, bounce, change endpoints, lose log directories.

A decider. Who may call: `handlers`, `failover`. Invariants: a broker that came back with a higher
epoch died in between, even if no watch showed it: its failure is handled before its start (R8,
F11); new brokers are sent the whole cluster before they are sent what to lead or follow. Kafka:
`processBrokerChange`, `onBrokerStartup`, `onBrokerFailure`, `onReplicasBecomeOffline`,
`onBrokerLogDirFailure` and `processLeaderAndIsrResponseReceived`.
"""

from collections.abc import Iterable, Sequence

from ottla.controller import deletion, reassignment
from ottla.controller.broker_epochs import compare
from ottla.controller.effects import (
    CloseChannel,
    Logger,
    OpenChannel,
    ReadStatements,
    Record,
    RemoveRegistration,
    Steps,
    WatchRegistrations,
    perform,
)
from ottla.controller.plan import Failure
from ottla.controller.state_changes import StateChanges
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model import journal_schema as journaled
from ottla.model.cluster import BrokerInfo
from ottla.model.ids import TopicPartition

_log = Logger("brokers")


def on_brokers_changed(changes: StateChanges, present: Sequence[BrokerInfo]) -> Steps[None]:
    """Compare the registrations there are with those known."""
    context = changes.context
    change = compare(context, present)
    new, bounced = [b.id for b in change.new], [b.id for b in change.bounced]
    yield Record(
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
    yield _log.info("brokers changed new=%s bounced=%s dead=%s", new, bounced, list(change.dead))
    for broker in change.new:
        yield OpenChannel(broker)
    for broker in change.bounced:
        yield CloseChannel(broker.id)
        yield OpenChannel(broker)
    for broker_id in change.dead:
        yield CloseChannel(broker_id)
    if change.new:
        yield from _add(changes, change.new)
    if change.bounced:
        yield from _remove(changes, bounced)
        yield from _add(changes, change.bounced)
    if change.dead:
        yield from _remove(changes, change.dead)


def on_process_gone(broker: BrokerInfo, evidence: str) -> Steps[bool]:
    """Remove the registration of a broker whose process is gone (R17); return whether it was.

    What follows is what follows the end of its session.
    """
    yield Record(
        journaled.ProcessGone(broker=broker.id, broker_epoch=broker.epoch, evidence=evidence)
    )
    problem = yield from perform(RemoveRegistration(broker, evidence))
    if problem is not None:
        yield _log.info("registration kept broker=%d reason=%s", broker.id, problem)
        return False
    yield _log.warning(
        "registration removed broker=%d broker_epoch=%d reason=%s",
        broker.id,
        broker.epoch,
        evidence,
    )
    return True


def registrations(brokers: Iterable[BrokerInfo]) -> tuple[journaled.Registration, ...]:
    """Return registrations as journal lines hold them."""
    return tuple((b.id, b.epoch, b.rack) for b in brokers)


def _add(changes: StateChanges, brokers: Sequence[BrokerInfo]) -> Steps[None]:
    stated = yield from perform(ReadStatements(brokers))
    changes.context.clean_brokers.update(stated.whole)
    changes.context.voiding_brokers.update(stated.voiding)
    for broker in brokers:
        changes.context.add_broker(broker)
    yield from on_broker_startup(changes, [b.id for b in brokers])


def _remove(changes: StateChanges, broker_ids: Sequence[int]) -> Steps[None]:
    for broker_id in broker_ids:
        changes.context.remove_broker(broker_id)
    yield from on_broker_failure(changes, broker_ids)


def on_broker_startup(changes: StateChanges, new: Sequence[int]) -> Steps[None]:
    """Introduce brokers to the cluster and give them their replicas."""
    context = changes.context
    for broker_id in new:
        context.offline_dirs.pop(broker_id, None)
    # 1. The live brokers, to the others; the metadata of the cluster, to the new ones.
    yield from changes.metadata([b for b in context.brokers if b not in new])
    yield from changes.metadata(new, context.partitions_with_leadership())
    # 2. Their replicas go to OnlineReplica.
    yield from changes.replicas(context.replicas_on(new), ReplicaState.ONLINE)
    # 3. Partitions without a leader may have one now.
    never_led = context.partition_states.among(context.reassigning, PartitionState.NEW)
    yield from changes.online_where_possible()
    # 4. Reassignments that waited for them go on.
    yield from reassignment.resume(
        changes, lambda assignment: any(b in assignment.target for b in new)
    )
    # What was reassigned before it had a leader has its target in the first ISR: no leader will
    # propose it, so nothing else would go on with it.
    led = context.partition_states.among(never_led, PartitionState.ONLINE)
    yield from reassignment.complete_if_caught_up(changes, led)
    # 5. So do deletions.
    yield from deletion.resume(changes, {tp.topic for tp, _ in context.replicas_on(new)})
    yield WatchRegistrations(new)


def on_broker_failure(changes: StateChanges, dead: Sequence[int]) -> Steps[None]:
    """Move leadership away from brokers that are gone, and take them out of every ISR."""
    context = changes.context
    for broker_id in dead:
        context.offline_dirs.pop(broker_id, None)
        context.shutting_down.discard(broker_id)
    yield from on_replicas_offline(changes, context.replicas_on(dead))


def on_replicas_offline(changes: StateChanges, replicas: Sequence[PartitionReplica]) -> Steps[None]:
    """Elect new leaders first, then shrink the ISRs, then send the live brokers."""
    context = changes.context
    going = [r for r in replicas if r.partition.topic in context.deleting]
    staying = [r for r in replicas if r.partition.topic not in context.deleting]
    # 1. Partitions they led go to OfflinePartition, 2. and to OnlinePartition by an election.
    leaderless = context.partitions_with_offline_leader()
    yield from changes.partitions(leaderless, PartitionState.OFFLINE)
    outcomes = yield from changes.online_where_possible()
    # 3. The replicas go to OfflineReplica: out of the ISRs.
    yield from changes.replicas(staying, ReplicaState.OFFLINE)
    # 4. Those of topics being deleted make the deletion wait.
    if going:
        yield from deletion.on_deletion_failed(changes, going)
    # 5. No LeaderAndIsr has carried the news of the dead broker yet: send UpdateMetadata.
    if not staying and all(isinstance(o, Failure) for o in outcomes.values()):
        yield from changes.metadata(context.live_or_shutting_down)


def on_broker_modified(changes: StateChanges, new: BrokerInfo) -> Steps[None]:
    """Take a registration's new endpoints and send them to everybody."""
    endpoints = [str(e) for e in new.endpoints]
    yield _log.info("broker modified broker=%d endpoints=%s", new.id, endpoints)
    yield Record(journaled.BrokerModified(broker=new.id, endpoints=endpoints))
    changes.context.add_broker(new)
    yield from changes.metadata(changes.context.live_or_shutting_down)


def on_log_dirs_failed(changes: StateChanges, brokers: Sequence[int]) -> Steps[None]:
    """Ask the brokers that reported a failed log directory, by LeaderAndIsr, what is left."""
    context = changes.context
    yield _log.info("log directories failed brokers=%s", list(brokers))
    yield Record(journaled.LogDirsFailed(brokers=list(brokers)))
    replicas = context.replicas_on(b for b in brokers if b in context.brokers)
    yield from changes.replicas(replicas, ReplicaState.ONLINE)


def on_replicas_hosted(
    changes: StateChanges,
    broker: int,
    failed: Sequence[TopicPartition],
    returned: Sequence[TopicPartition],
) -> Steps[None]:
    """Take a LeaderAndIsr response: some replicas it cannot host, others it can again."""
    context = changes.context
    offline = context.offline_dirs.setdefault(broker, set())
    offline.update(failed)
    offline.difference_update(returned)
    if failed:
        yield _log.info("replicas offline broker=%d partitions=%d", broker, len(failed))
        yield Record(
            journaled.LeaderAndIsrAnswered(
                broker=broker,
                offline=[str(tp) for tp in failed],
                online=[str(tp) for tp in returned],
            )
        )
        yield from changes.eligibility.remove(broker, failed)
        yield from on_replicas_offline(changes, [PartitionReplica(tp, broker) for tp in failed])
    if returned:
        yield _log.info("replicas back broker=%d partitions=%d", broker, len(returned))
        yield Record(journaled.ReplicasReturned(broker=broker, online=[str(tp) for tp in returned]))
        # One that the request of a reassignment brought back is still in OfflineReplica. Kafka lets
        # it wait for the next event of a broker.
        replicas = [PartitionReplica(tp, broker) for tp in returned]
        still_offline = context.replica_states.among(replicas, ReplicaState.OFFLINE)
        yield from changes.replicas(still_offline, ReplicaState.ONLINE)
        if not set(returned).isdisjoint(context.waiting_for_leader()):
            # It may be the last one in sync. Kafka lets it wait for the next event of a broker.
            yield from changes.online_where_possible()


def full_resync(changes: StateChanges, broker: int) -> Steps[None]:
    """Send a broker everything anew, because requests to it were dropped or failed there.

    A replica that a reassignment waits for is sent as new and stays new: on its way from new to
    online nothing is sent, since it has caught up by then (as in Kafka, which sends nothing anew).
    """
    context = changes.context
    yield _log.info("full resync broker=%d", broker)
    yield Record(journaled.BrokerFellBehind(broker=broker))
    yield from changes.metadata([broker], context.partitions_with_leadership())
    replicas = context.replicas_on([broker])
    new = frozenset(context.replica_states.among(replicas, ReplicaState.NEW))
    yield from changes.replicas([r for r in replicas if r not in new], ReplicaState.ONLINE)
    yield from changes.send_new([r for r in replicas if r in new])


def on_unclean_elections_enabled(changes: StateChanges, topic: str | None) -> Steps[None]:
    """Elect where a topic's settings (None: the defaults) now allow unclean elections."""
    yield Record(journaled.UncleanElectionEnabled(topic=topic or journaled.EVERY_TOPIC))
    yield from changes.online_where_possible(topic)
