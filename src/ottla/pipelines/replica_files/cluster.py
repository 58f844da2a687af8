"""What a running cluster says of its partitions: high watermarks, leaders, ISR, topic ids.

Works with any Kafka. Invariant: high watermarks are asked before the ISR: then whoever is in the
ISR has all below them, whether it was in it all the time or came back meanwhile
(`Partition.maybeExpandIsr` lets no one in below the high watermark).
"""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.client import Client, parse_bootstrap
from ottla.log.files import OsFiles
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.model.protocol import LATEST
from ottla.net import runtime
from ottla.pipelines import config
from ottla.pipelines.replica_files.replica import Truth
from ottla.pipelines.source.cluster import metadata_within, offsets_request

ASK_TIMEOUT_S = 30.0
AT_ONCE = 2_000
"""Partitions asked for in one request."""


def ask(
    running: config.Cluster, wanted: Callable[[TopicPartition], bool]
) -> dict[TopicPartition, Truth]:
    """Ask a cluster; OttlaError if it does not respond.

    A partition whose leader does not respond for it has no high watermark here.
    """
    bootstrap, security = running.bootstrap_servers, running.security()
    try:
        addresses = parse_bootstrap(bootstrap)
    except ValueError as error:
        raise OttlaError(f"bootstrap servers: {error}") from None

    async def conversation() -> dict[TopicPartition, Truth]:
        world = runtime.real_world(OsFiles())
        client = Client(
            world, addresses, "ottla-replicas", timeout_s=ASK_TIMEOUT_S, security=security
        )
        try:
            metadata = await metadata_within(client, None, bootstrap, ASK_TIMEOUT_S)
            before = _facts(metadata, wanted)
            marks = await _high_watermarks(client, before)
            return {
                tp: Truth(marks.get(tp), found.leader, found.isr, found.replicas, found.topic_id)
                for tp, found in _facts(await client.metadata(None), wanted).items()
            }
        finally:
            await client.close()

    return runtime.run(conversation)


def _facts(response: Any, wanted: Callable[[TopicPartition], bool]) -> dict[TopicPartition, Truth]:
    found = {}
    for topic in response.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if wanted(tp):
                found[tp] = Truth(
                    None, p.leader_id, frozenset(p.isr_nodes), frozenset(p.replica_nodes),
                    uuid_to_text(topic.topic_id) if any(topic.topic_id) else None,
                )  # fmt: skip
    return found


async def _high_watermarks(
    client: Client, partitions: Mapping[TopicPartition, Truth]
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp, truth in partitions.items():
        if truth.leader >= 0:
            by_leader.setdefault(truth.leader, []).append(tp)
    for leader, led in by_leader.items():
        for at in range(0, len(led), AT_ONCE):
            asked = dict.fromkeys(led[at : at + AT_ONCE], LATEST)
            response = await client.call(offsets_request(asked), leader)
            for topic in response.topics:
                for p in topic.partitions:
                    if p.error_code == ErrorCode.NONE:
                        found[TopicPartition(topic.name, p.partition_index)] = p.offset
    return found
