"""What a running cluster says of its partitions: high watermarks, leaders, ISR, topic ids.

Works with any Kafka. Invariant: high watermarks are asked before the ISR: then every replica in
the ISR has all below them, whether it was in it all the time or came back meanwhile
(`Partition.maybeExpandIsr` lets no one in below the high watermark).
"""

from collections.abc import Callable
from dataclasses import replace

from ottla.admin.replica_files.replica import Truth
from ottla.client.client import Client
from ottla.client.offsets import ask_offsets
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.model.protocol import LATEST


async def truths(
    client: Client, wanted: Callable[[TopicPartition], bool]
) -> dict[TopicPartition, Truth]:
    """Ask a cluster; OttlaError if it does not respond.

    A partition whose leader does not respond for it has no high watermark here.
    """
    before = await _facts(client, wanted)
    marks, _, asked = await ask_offsets(client, dict.fromkeys(before, LATEST))
    for error in asked.failed.values():
        raise error
    return {
        tp: replace(found, high_watermark=marks[tp].offset if tp in marks else None)
        for tp, found in (await _facts(client, wanted)).items()
    }


async def _facts(
    client: Client, wanted: Callable[[TopicPartition], bool]
) -> dict[TopicPartition, Truth]:
    found = {}
    for topic in (await client.metadata(None)).topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name or "", p.partition_index)
            if wanted(tp):
                found[tp] = Truth(
                    None, p.leader_id, frozenset(p.isr_nodes), frozenset(p.replica_nodes),
                    uuid_to_text(topic.topic_id) if any(topic.topic_id) else None,
                )  # fmt: skip
    return found
