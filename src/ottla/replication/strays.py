"""Strays: replicas that are no longer ours, and whose StopReplica never came.

Who may call: the broker's handlers of UpdateMetadata and LeaderAndIsr, its lifecycle. A controller
that dies between the end of a reassignment and its StopReplica leaves the removed replica running;
if it led, it would go on taking acks=1 records that nobody will ever see. The next controller sends
the metadata of every partition to every broker: there the replica is missing. Invariants:
only a higher leader epoch than ours makes a replica a stray; its files stay, as Kafka's do (R14),
until its topic is known to be deleted because the name has another id (R15). Kafka in ZooKeeper
mode has no such steps: a stray of a deleted topic would keep the next topic of that name off this
broker.
"""

import logging
from collections.abc import Collection, Iterable, Sequence

from ottla.model.ids import TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

Assignment = tuple[TopicPartition, int, Sequence[int]]
"""A partition, its leader epoch and its replicas, as the controller sends them."""


def stop_unassigned(
    replicas: ReplicaManager, assignments: Iterable[Assignment]
) -> list[TopicPartition]:
    """Stop the replicas here that an assignment of a newer leader epoch does not name."""
    stopped = []
    for tp, leader_epoch, assigned in assignments:
        partition = replicas.partitions.get(tp)
        if partition is None or partition.leader_epoch >= leader_epoch:
            continue
        if replicas.broker_id in assigned:
            continue
        logger.info(
            "stray replica partition=%s leader_epoch=%d newer=%d replicas=%s",
            tp,
            partition.leader_epoch,
            leader_epoch,
            list(assigned),
        )
        _stop(replicas, partition)
        stopped.append(partition)
    if stopped:
        replicas.leadership_changed([], stopped)
    return [partition.tp for partition in stopped]


def stop_deleted(replicas: ReplicaManager, had: Iterable[Partition], gone: Collection[str]) -> None:
    """Stop those of the replicas we had whose topic was deleted, and no StopReplica came.

    The controller waits for the replicas of dead brokers, but not for one that was moved away while
    this broker was cut off: nobody sends it anything of that topic any more.
    """
    stopped = []
    for partition in had:
        tp = partition.tp
        if tp.topic in gone and replicas.partitions.get(tp) is partition:
            logger.warning(
                "stray replica partition=%s reason=its topic was deleted while this broker was "
                "down",
                tp,
            )
            _stop(replicas, partition)
            stopped.append(partition)
    if stopped:
        replicas.leadership_changed([], stopped)


def delete_strays(
    replicas: ReplicaManager, dead: Iterable[TopicPartition], topic_id: bytes
) -> None:
    """Delete replicas of topics that are deleted, as their StopReplica would have.

    `topic_id` is that of the topic which bears the name now: what has it is alive, and stays.
    """
    stopped = []
    for tp in dead:
        log = replicas.logs.get(tp)
        if log is not None and log.topic_id == topic_id:
            continue  # deleted and created anew while this caller asked ZooKeeper
        logger.warning(
            "stray replica deleted partition=%s reason=its topic was deleted, another has its name",
            tp,
        )
        partition = replicas.partitions.get(tp)
        if partition is not None:
            _stop(replicas, partition)
            stopped.append(partition)
        replicas.logs.delete(tp)
    if stopped:
        replicas.leadership_changed([], stopped)


def _stop(replicas: ReplicaManager, partition: Partition) -> None:
    replicas.recovery.cancel(partition.tp)
    replicas.fetchers.remove((partition.tp,))
    replicas.moves.remove((partition.tp,))
    del replicas.partitions[partition.tp]
    partition.stop()
    replicas.forget_topic(partition)
