"""Strays: replicas that are no longer ours, and whose StopReplica never came.

Who may call: the broker's handlers of UpdateMetadata and LeaderAndIsr, its lifecycle. A controller
that dies between the end of a reassignment and its StopReplica leaves the removed replica running;
if it led, it would go on taking acks=1 records that nobody will ever see. Every broker is told of
every partition by the next controller, so the replica learns there that it is out. Invariants:
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

Word = tuple[TopicPartition, int, Sequence[int]]
"""What the controller says of a partition: which, its leader epoch and its replicas."""


def let_go(replicas: ReplicaManager, words: Iterable[Word]) -> list[TopicPartition]:
    """Stop every replica of ours that an assignment of a newer leader epoch leaves out."""
    stopped = []
    for tp, leader_epoch, assigned in words:
        partition = replicas.partitions.get(tp)
        if partition is None or partition.leader_epoch >= leader_epoch:
            continue
        if replicas.broker_id in assigned:
            continue
        logger.info(
            "stray partition=%s epoch=%d newer=%d replicas=%s",
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


def let_go_of_topics(
    replicas: ReplicaManager, had: Iterable[Partition], gone: Collection[str]
) -> None:
    """Stop those of the replicas we had whose topic was deleted without a word to us.

    The controller waits for the replicas of dead brokers, but not for one that was moved away from
    us while we were cut off: nobody tells us of its topic any more.
    """
    stopped = []
    for partition in had:
        tp = partition.tp
        if tp.topic in gone and replicas.partitions.get(tp) is partition:
            logger.warning("stray partition=%s: its topic was deleted while we were away", tp)
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
            "stray replica deleted partition=%s: its topic was deleted, another has its name", tp
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
