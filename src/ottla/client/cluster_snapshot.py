"""A snapshot of a cluster, asked for over the wire, for `ottla whatif`.

Invariants: any Kafka is asked; nothing changes; a broker that does not respond leaves sizes and log
ends unknown, nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from ottla.client import configs, log_dirs, reassignments, unclean_elections
from ottla.client.client import Client
from ottla.client.error_texts import reason
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.placement.snapshot_file import MIN_ISR, UNCLEAN, Broker, Partition, Snapshot, Topic


async def take(client: Client) -> Snapshot:
    """Return a snapshot.

    With the log ends of partitions without a leader, and of those that may be led uncleanly: a
    replica is not in sync and unclean.leader.election.enable is true.
    """
    response = await client.metadata(None)
    found = Snapshot(
        response.cluster_id or "",
        response.controller_id,
        await unclean_elections.is_ottla(client, response.controller_id),
        [Broker(b.node_id, b.rack) for b in sorted(response.brokers, key=lambda b: b.node_id)],
        {},
    )
    for topic in sorted(response.topics, key=lambda topic: topic.name or ""):
        partitions = sorted(topic.partitions, key=lambda p: p.partition_index)
        if [p.partition_index for p in partitions] == list(range(len(partitions))) and partitions:
            found.topics[topic.name or ""] = Topic(
                [
                    Partition(p.replica_nodes, p.leader_id, p.leader_epoch, p.isr_nodes)
                    for p in partitions
                ]
            )
    by_name = dict(found.partitions())
    live = [broker.id for broker in found.brokers]
    moves, described, _ = await asyncio.gather(
        reassignments.in_progress(client),
        log_dirs.describe(client, live),
        _read_settings(client, found),
    )
    for tp, move in moves.items():
        if tp in by_name:
            by_name[tp].adding, by_name[tp].removing = list(move.adding), list(move.removing)
    for lying in described.replicas:
        if lying.partition in by_name and not lying.is_future:
            by_name[lying.partition].sizes[lying.broker] = lying.size
    asked: dict[int, list[TopicPartition]] = {}
    for tp, partition in by_name.items():
        behind = len(partition.isr) < len(partition.replicas)
        if partition.leader < 0 or (behind and found.topics[tp.topic].unclean):
            for broker in partition.replicas:
                if broker in live:
                    asked.setdefault(broker, []).append(tp)
    for broker, ends in (await unclean_elections.log_ends(client, asked)).items():
        for tp, end in ends.items():
            by_name[tp].ends[broker] = (end.epoch, end.offset)
    return found


async def _read_settings(client: Client, snapshot: Snapshot) -> None:
    async for name, (min_isr, allowed) in topic_settings(client, list(snapshot.topics)):
        snapshot.topics[name].min_isr, snapshot.topics[name].unclean = min_isr, allowed


async def topic_settings(
    client: Client, names: Sequence[str]
) -> AsyncIterator[tuple[str, tuple[int, bool]]]:
    """Yield min.insync.replicas and unclean.leader.election.enable of topics, as in force."""
    async for result in configs.of_topics(client, names, [MIN_ISR, UNCLEAN]):
        if result.error_code:
            why = reason(result.error_code, result.error_message)
            raise OttlaError(f"settings of topic {result.resource_name}: {why}")
        values = {setting.name: setting.value for setting in result.configs}
        yield result.resource_name, (int(values[MIN_ISR] or 0), values[UNCLEAN] == "true")
