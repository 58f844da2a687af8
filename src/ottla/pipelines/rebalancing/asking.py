"""Asking a cluster: brokers, racks, replicas, sizes on disk, volumes, reassignments in progress.

Works with any Kafka. Invariants: nothing is changed; a broker that does not answer is an error,
since a plan without its sizes would be wrong.
"""

import time
from collections.abc import Sequence
from typing import Any

from ottla.client.client import CONTROLLER, Client, parse_bootstrap
from ottla.log.files import OsFiles
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError, error_name
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.model.protocol import EARLIEST, LATEST
from ottla.net import runtime
from ottla.pipelines import config
from ottla.pipelines.rebalancing.seen import UNKNOWN, Seen, SeenBroker, SeenPartition
from ottla.pipelines.source.cluster import Cluster, metadata_within
from ottla.pipelines.source.options import parse_options
from ottla.pipelines.source.planning import edges
from ottla.wire.messages.cluster import DescribeLogDirsRequest
from ottla.wire.messages.topics import ListPartitionReassignmentsRequest

ASK_TIMEOUT_S = 60.0


class LogDirs:
    """What one broker says of its log dirs: sizes of replicas, the rest, volumes."""

    def __init__(self, results: Sequence[Any]) -> None:
        self.sizes: dict[TopicPartition, int] = {}
        self.future = 0
        volumes: set[tuple[int, int]] = set()
        for one in results:
            if one.error_code:
                continue  # a failed dir: metadata names its replicas as offline
            # Dirs of the same volume report the same: counted once, which is on the safe side.
            volumes.add((one.total_bytes, one.usable_bytes))
            for topic in one.topics:
                for p in topic.partitions:
                    if p.is_future_key:
                        self.future += p.partition_size
                    else:
                        tp = TopicPartition(topic.name, p.partition_index)
                        self.sizes[tp] = self.sizes.get(tp, 0) + p.partition_size
        reported = volumes and all(total >= 0 and usable >= 0 for total, usable in volumes)
        self.total = sum(total for total, _ in volumes) if reported else UNKNOWN
        self.usable = sum(usable for _, usable in volumes) if reported else UNKNOWN


def look(cluster: config.Cluster, *, offsets: bool) -> Seen:
    """Return what is there now; with `offsets` also where logs begin and end."""
    bootstrap, security = cluster.bootstrap_servers, cluster.security()
    try:
        addresses = parse_bootstrap(bootstrap)
    except ValueError as error:
        raise OttlaError(f"bootstrap servers: {error}") from None

    async def conversation() -> Seen:
        world = runtime.real_world(OsFiles())
        client = Client(
            world, addresses, "ottla-rebalance", timeout_s=ASK_TIMEOUT_S, patience_s=ASK_TIMEOUT_S,
            security=security,
        )  # fmt: skip
        try:
            return await _look(client, bootstrap)
        except ConnectionLostError as error:
            raise ConnectionLostError(
                f"{error}; are all brokers up, is cluster.bootstrap_servers={bootstrap} right?"
            ) from error
        finally:
            await client.close()

    seen = runtime.run(conversation)
    return _with_offsets(cluster, seen) if offsets else seen


async def _look(client: Client, bootstrap: str) -> Seen:
    metadata = await metadata_within(client, None, bootstrap, ASK_TIMEOUT_S)
    moving = await _moving(client)
    dirs: dict[int, LogDirs] = {}
    for broker in sorted(metadata.brokers, key=lambda b: b.node_id):
        response = await client.call(DescribeLogDirsRequest(topics=None), broker.node_id)
        if response.error_code:
            raise OttlaError(
                f"broker {broker.node_id} does not tell its log dirs: "
                f"{error_name(response.error_code)}"
            )
        dirs[broker.node_id] = LogDirs(response.results)
    partitions = []
    held: dict[int, int] = dict.fromkeys(dirs, 0)
    for topic in sorted(metadata.topics, key=lambda t: t.name or ""):
        if topic.error_code:
            raise OttlaError(f"topic {topic.name}: {error_name(topic.error_code)}")
        for p in sorted(topic.partitions, key=lambda p: p.partition_index):
            tp = TopicPartition(topic.name or "", p.partition_index)
            sizes = tuple(
                dirs[b].sizes.get(tp, UNKNOWN) if b in dirs else UNKNOWN for b in p.replica_nodes
            )
            for b, size in zip(p.replica_nodes, sizes, strict=True):
                if size > 0:
                    held[b] += size
            partitions.append(
                SeenPartition(
                    tp,
                    uuid_to_text(topic.topic_id),
                    tuple(p.replica_nodes),
                    sizes,
                    p.leader_id,
                    tuple(p.offline_replicas),
                    tp in moving,
                )
            )
    brokers = []
    for broker in sorted(metadata.brokers, key=lambda b: b.node_id):
        found = dirs[broker.node_id]
        logs = sum(found.sizes.values()) + found.future
        brokers.append(
            SeenBroker(
                broker.node_id, broker.rack, logs, logs - held[broker.node_id], found.total,
                found.usable,
            )
        )  # fmt: skip
    return Seen(time.time_ns() // 1_000_000, metadata.cluster_id or "", brokers, partitions)


async def _moving(client: Client) -> set[TopicPartition]:
    response = await client.call(ListPartitionReassignmentsRequest(topics=None), CONTROLLER)
    if response.error_code != ErrorCode.NONE:
        raise OttlaError(f"reassignments were not listed: {error_name(response.error_code)}")
    return {
        TopicPartition(t.name, p.partition_index) for t in response.topics for p in t.partitions
    }


def _with_offsets(asked: config.Cluster, seen: Seen) -> Seen:
    led = [p.tp for p in seen.partitions if p.leader >= 0]
    options = parse_options({**asked.source_options(), "subscribePattern": ".*"})
    with Cluster(options) as cluster:
        at_ms = time.time_ns() // 1_000_000
        last = edges(cluster, dict.fromkeys(led, LATEST))
        first = edges(cluster, dict.fromkeys(led, EARLIEST))
    partitions = [
        p._replace(start=first.get(p.tp, UNKNOWN), end=last.get(p.tp, UNKNOWN))
        for p in seen.partitions
    ]
    return Seen(at_ms, seen.cluster_id, seen.brokers, partitions)
