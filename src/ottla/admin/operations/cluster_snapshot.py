"""A cluster's brokers, leaders, ISRs and log ends at one moment, for `ottla whatif`.

Who may call: `explain.whatif_command`, tests. Invariants: any Kafka is asked, over the wire only;
nothing changes; a broker that does not respond leaves sizes and log ends unknown, nothing else; the
file is JSON of these structs, and reading it gives an equal value.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from ottla.admin.operations import configs, log_dirs, reassign, unclean
from ottla.admin.operations.configs import TOPIC
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.client import Client
from ottla.wire.messages.describe_configs import DescribeConfigsRequest

VERSION = 1
MAX_BYTES = 256 * 1024 * 1024
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
TOPICS_PER_REQUEST = 500

Id = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Broker(msgspec.Struct, forbid_unknown_fields=True):
    """A live broker."""

    id: Id
    rack: str | None = None


class Partition(msgspec.Struct, forbid_unknown_fields=True):
    """One partition; `leader` is -1 where there is none.

    `sizes`: bytes per replica. `ends`: leader epoch and end offset of each live replica's log,
    where an unclean election may come to need them.
    """

    replicas: list[Id]
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    leader_epoch: int
    isr: list[Id]
    adding: list[Id] = msgspec.field(default_factory=list)
    removing: list[Id] = msgspec.field(default_factory=list)
    sizes: dict[int, int] = msgspec.field(default_factory=dict)
    ends: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)


class Topic(msgspec.Struct, forbid_unknown_fields=True):
    """A topic's partitions, in the order of their numbers, and the settings that count."""

    partitions: list[Partition]
    min_isr: int = 1
    unclean: bool = False


class Snapshot(msgspec.Struct, forbid_unknown_fields=True):
    """A cluster. `ottla`: whether its controller is one of Ottla's (it elects the longest log)."""

    cluster_id: str
    controller: int
    ottla: bool
    brokers: list[Broker]
    topics: dict[str, Topic]
    version: int = VERSION

    def partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        for name, topic in self.topics.items():
            for number, partition in enumerate(topic.partitions):
                yield TopicPartition(name, number), partition


async def take(client: Client) -> Snapshot:
    """Return a snapshot.

    With the log ends of partitions without a leader, and of those that may be led uncleanly: a
    replica is not in sync and unclean.leader.election.enable is true.
    """
    response = await client.metadata(None)
    found = Snapshot(
        response.cluster_id or "",
        response.controller_id,
        await unclean.is_ottla(client, response.controller_id),
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
    for tp, move in (await reassign.in_progress(client)).items():
        if tp in by_name:
            by_name[tp].adding, by_name[tp].removing = list(move.adding), list(move.removing)
    await _read_settings(client, found)
    live = [broker.id for broker in found.brokers]
    for lying in (await log_dirs.describe(client, live)).replicas:
        if lying.partition in by_name and not lying.is_future:
            by_name[lying.partition].sizes[lying.broker] = lying.size
    asked: dict[int, list[TopicPartition]] = {}
    for tp, partition in by_name.items():
        behind = len(partition.isr) < len(partition.replicas)
        if partition.leader < 0 or (behind and found.topics[tp.topic].unclean):
            for broker in partition.replicas:
                if broker in live:
                    asked.setdefault(broker, []).append(tp)
    for broker, ends in (await unclean.log_ends(client, asked)).items():
        for tp, end in ends.items():
            by_name[tp].ends[broker] = (end.epoch, end.offset)
    return found


async def _read_settings(client: Client, snapshot: Snapshot) -> None:
    names = list(snapshot.topics)
    r = DescribeConfigsRequest
    for first in range(0, len(names), TOPICS_PER_REQUEST):
        resources = [
            r.DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=[MIN_ISR, UNCLEAN]
            )
            for name in names[first : first + TOPICS_PER_REQUEST]
        ]
        for result in (await client.call(r(resources=resources))).results:
            if result.error_code:
                why = configs.reason(result.error_code, result.error_message)
                raise OttlaError(f"settings of topic {result.resource_name}: {why}")
            topic = snapshot.topics[result.resource_name]
            for setting in result.configs:
                if setting.name == MIN_ISR:
                    topic.min_isr = int(setting.value)
                elif setting.name == UNCLEAN:
                    topic.unclean = setting.value == "true"


def parse(data: bytes, where: str) -> Snapshot:
    """Return what a file of `whatif --save` says; OttlaError names what is wrong with it."""
    if len(data) > MAX_BYTES:
        raise OttlaError(f"{where}: more than {MAX_BYTES:,} bytes are no snapshot of a cluster")
    try:
        found = msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OttlaError(
            f"{where} is no snapshot for whatif: {error}; `ottla whatif … --save FILE` writes one"
        ) from None
    if found.version != VERSION:
        raise OttlaError(f"{where}: version {found.version}, expected {VERSION}")
    ids = [broker.id for broker in found.brokers]
    if len(set(ids)) != len(ids):
        raise OttlaError(f"{where}: a broker is listed twice")
    for tp, partition in found.partitions():
        replicas = set(partition.replicas)
        if not replicas or len(replicas) != len(partition.replicas):
            raise OttlaError(f"{where}: {tp} has no replicas, or one broker twice")
        if not set(partition.isr) <= replicas:
            raise OttlaError(f"{where}: the ISR of {tp} names a broker that is no replica")
    return found
