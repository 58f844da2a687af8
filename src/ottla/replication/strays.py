"""Stray replicas: this broker is not assigned them any more, and their StopReplica never came.

A controller that dies between the end of a reassignment and its StopReplica leaves the removed
replica running; if it led, it would go on accepting acks=1 records that no consumer will ever see.
The next controller sends the metadata of every partition to every broker: there the replica is
missing. Invariants: only a higher leader epoch than ours, or another topic id, makes a replica a
stray; its files stay, as Kafka's do (R14). Where another topic has the name by now, they go to a
`-stray` folder and are kept there for `ottla.stray.retention.ms` (R15, R21). Kafka in ZooKeeper
mode has no such step: a stray of a deleted topic keeps the next topic of that name off the broker.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class Assignment(NamedTuple):
    """A partition as the controller sends it; the topic id is ZERO_UUID where it sends none."""

    tp: TopicPartition
    topic_id: bytes
    leader_epoch: int
    replicas: Sequence[int]


def stop_unassigned(
    replicas: ReplicaManager, assignments: Iterable[Assignment]
) -> list[TopicPartition]:
    """Stop the replicas here that an assignment of a newer leader epoch does not name.

    Those of a former topic of the same name, too: its leader epochs were counted by themselves.
    """
    stopped = []
    for tp, topic_id, leader_epoch, assigned in assignments:
        partition = replicas.partitions.get(tp)
        if partition is None or replicas.broker_id in assigned:
            continue
        ids = {topic_id, partition.state.topic_id}
        former_topic = len(ids) == 2 and ZERO_UUID not in ids
        if partition.state.leader_epoch >= leader_epoch and not former_topic:
            continue
        logger.info(
            "stray replica partition=%s leader_epoch=%d newer=%d replicas=%s",
            tp,
            partition.state.leader_epoch,
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
    this broker was cut off: no request about that topic comes any more.
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


async def put_strays_aside(
    replicas: ReplicaManager, strays: Iterable[TopicPartition], topic_id: bytes
) -> None:
    """Make room for a topic whose name another one had, whose replicas are still here.

    `topic_id` is that of the topic which bears the name now: what has it is alive, and stays.
    """
    async with replicas.control_lock:
        for tp in strays:
            log = replicas.logs.get(tp)
            if log is None or topic_id == log.topic_id:
                continue  # deleted and created again while this caller asked ZooKeeper
            logger.error(
                "stray replica put aside partition=%s reason=another topic has its name", tp
            )
            partition = replicas.partitions.get(tp)
            if partition is not None:
                _stop(replicas, partition)
                replicas.leadership_changed([], [partition])
            await replicas.logs.keep_as_stray(replicas.world.workers, tp)


def _stop(replicas: ReplicaManager, partition: Partition) -> None:
    replicas.recovery.cancel(partition.tp)
    replicas.fetchers.remove((partition.tp,))
    replicas.moves.remove((partition.tp,))
    del replicas.partitions[partition.tp]
    partition.stop()
    replicas.forget_topic(partition)
