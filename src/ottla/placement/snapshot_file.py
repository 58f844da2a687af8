"""A snapshot of a cluster's brokers, leaders, ISRs and log ends, and its file, for `ottla whatif`.

Invariants: plain values in, plain values out; the file is JSON of these structs, and reading it
gives an equal value; a bad file is one line with its name, the reason and the way out.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

VERSION = 1
MAX_BYTES = 256 * 1024 * 1024
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"

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


def parse(data: bytes, where: str) -> Snapshot:
    """Return what a file of `whatif --save` says; OttlaError names what is wrong with it."""
    if len(data) > MAX_BYTES:
        raise OttlaError(f"{where}: larger than a snapshot may be ({MAX_BYTES:,} bytes)")
    try:
        found = msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OttlaError(
            f"{where} is not a snapshot: {error}; `ottla whatif … --save FILE` writes one"
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
            raise OttlaError(f"{where}: the ISR of {tp} names a broker that is not a replica")
    return found
