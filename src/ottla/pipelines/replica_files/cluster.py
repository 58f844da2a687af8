"""What a running cluster says of its partitions: high watermarks, leaders, ISR, topic ids.

Works with any Kafka. Invariant: high watermarks are asked before the ISR: then every replica in
the ISR has all below them, whether it was in it all the time or came back meanwhile
(`Partition.maybeExpandIsr` lets no one in below the high watermark).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.client.client import Client, parse_bootstrap
from ottla.client.offsets import ask_offsets
from ottla.log.files import OsFiles
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.model.protocol import LATEST
from ottla.net import runtime
from ottla.pipelines import config
from ottla.pipelines.replica_files.replica import Truth
from ottla.pipelines.source.cluster import metadata_within

ASK_TIMEOUT_S = 30.0


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
            marks, _, asked = await ask_offsets(client, dict.fromkeys(before, LATEST))
            for error in asked.failed.values():
                raise error
            return {
                tp: replace(found, high_watermark=marks[tp].offset if tp in marks else None)
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
