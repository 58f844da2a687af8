"""Eligible leader replicas, and whether brokers kept their logs, in znodes of our own.

Invariants: all of it lies under `/ottla`, which JVM brokers do not look at; what is the
controller's is written with the check of its epoch; a record that cannot be read is reported and
counts as none (F41). Kafka has these facts in KRaft's `PartitionRecord` and `RegisterBrokerRecord`
(KIP-966).
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ottla.model.cluster import Eligible
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.zookeeper import znodes
from ottla.zookeeper.access import ANY_VERSION, Part, Write
from ottla.zookeeper.errors import MalformedZnodeError, NoNodeError, ZooKeeperError
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Create, Delete, Set
from ottla.zookeeper.statements import ROOT

log = logging.getLogger(__name__)

ELIGIBLE = f"{ROOT}/eligible"

FORMAT = 2
"""The version in a record. One of format 1 was written after the leader had been sent its state,
which may have moved the high watermark before: it counts for nothing."""

IsrInEpoch = tuple[frozenset[int], int]
"""An ISR by which a leader wants to move its high watermark, and the partition epoch it is of."""

_Int = Annotated[int, Meta(ge=-1)]
_MAX_REPLICAS = 100


class _Record(msgspec.Struct):
    version: int
    topic_id: str
    partition_epoch: _Int
    min_isr: Annotated[int, Meta(ge=1)]
    replicas: Annotated[list[tuple[_Int, _Int]], Meta(max_length=_MAX_REPLICAS)]


def eligible_path(tp: TopicPartition) -> str:
    return f"{ELIGIBLE}/{tp.topic}/{tp.partition}"


def encode_eligible(record: Eligible) -> bytes:
    return msgspec.json.encode(
        _Record(
            FORMAT,
            uuid_to_text(record.topic_id),
            record.partition_epoch,
            record.min_isr,
            list(record.broker_epochs),
        )
    )


class EligibleReplicas(Part):
    """The records of eligible replicas, by partition."""

    async def get_topics(self) -> list[str]:
        """Return the topics there are records of, deleted ones perhaps among them."""
        return await self._zk.get_children(ELIGIBLE)

    async def get(self, topic_ids: Mapping[str, bytes]) -> dict[TopicPartition, Eligible]:
        """Return all records of these topics, by partition."""
        present = [t for t in await self._zk.get_children(ELIGIBLE) if t in topic_ids]
        paths = [f"{ELIGIBLE}/{topic}" for topic in present]
        listed = await self._zk.read_all(self._zk.session.children, paths)
        partitions = [
            TopicPartition(topic, int(name))
            for topic, names in zip(present, listed, strict=True)
            if not isinstance(names, ZooKeeperError)
            for name in sorted(names)
            if name.isascii() and name.isdigit() and len(name) < 10
        ]
        replies = await self._zk.get_many([eligible_path(tp) for tp in partitions])
        found = {}
        for tp, reply in zip(partitions, replies, strict=True):
            if reply is None or not reply[0]:
                continue
            record = self._zk.decoded(znodes.decode_json, _Record, eligible_path(tp), reply[0])
            if record is None or record.version != FORMAT:
                continue
            if record.topic_id == uuid_to_text(topic_ids[tp.topic]):
                found[tp] = Eligible(
                    topic_ids[tp.topic],
                    record.partition_epoch,
                    record.min_isr,
                    tuple(record.replicas),
                    reply[1].version,
                )
        return found

    async def get_standing(self, records: Mapping[TopicPartition, Eligible]) -> set[TopicPartition]:
        """Return the partitions whose record no one has changed or deleted."""
        await self._zk.catch_up()
        paths = [eligible_path(tp) for tp in records]
        replies = await self._zk.get_many(paths)
        return {
            tp
            for (tp, record), reply in zip(records.items(), replies, strict=True)
            if reply is not None and reply[1].version == record.znode_version
        }

    async def void(self, wanted: Mapping[TopicPartition, IsrInEpoch]) -> set[TopicPartition]:
        """Delete records that name a replica outside an ISR; return where none of them counts now.

        For the leader, which then moves its high watermark by this ISR. Not returned: partitions
        whose state has another version, as its leader will hear, and those that a controller wrote
        to meanwhile. No record appears later: a controller writes the one of a state before it
        sends that state to the leader, and derives none from a record that was deleted.
        """
        await self._zk.catch_up()
        topics = set(await self._zk.get_children(ELIGIBLE))
        # A topic that never had a record has had no election by one, either.
        proven = {tp for tp in wanted if tp.topic not in topics}
        rest = [tp for tp in wanted if tp.topic in topics]
        if not rest:
            return proven
        replies = await self._zk.get_many([eligible_path(tp) for tp in rest])
        writes = [
            Write(tp, Delete(eligible_path(tp), reply[1].version))
            for tp, reply in zip(rest, replies, strict=True)
            if reply is not None and self._names_another(tp, reply[0], wanted[tp][0])
        ]
        results = await self._zk.write_all(writes)
        for tp, result in results.items():
            if not isinstance(result, ZooKeeperError):
                log.info("eligible replicas voided partition=%s isr=%s", tp, sorted(wanted[tp][0]))
        # Read last: an election by a record that was still there would have written the state.
        paths = [znodes.state_path(tp) for tp in rest]
        states = await self._zk.read_all(self._zk.session.exists, paths)
        for tp, stat in zip(rest, states, strict=True):
            deleted = results.get(tp)
            if isinstance(deleted, ZooKeeperError) and not isinstance(deleted, NoNodeError):
                continue
            if isinstance(stat, Stat) and stat.version == wanted[tp][1]:
                proven.add(tp)
        return proven

    def _names_another(self, tp: TopicPartition, data: bytes, isr: frozenset[int]) -> bool:
        """Return whether a record names a replica outside an ISR; an unreadable one names none."""
        try:
            record = znodes.decode_json(_Record, eligible_path(tp), data)
        except MalformedZnodeError:
            return False
        return any(broker not in isr for broker, _ in record.replicas)

    async def set(
        self, records: Mapping[TopicPartition, Eligible]
    ) -> dict[TopicPartition, Eligible]:
        """Write records and missing parents; return the records as they are now.

        One derived from another is written over that one alone: if a leader has deleted it, what
        is derived from it would be wrong.
        """
        topics = list(dict.fromkeys(tp.topic for tp in records))
        new = [tp for tp, record in records.items() if record.znode_version == ANY_VERSION]
        paths = [ROOT, ELIGIBLE, *(f"{ELIGIBLE}/{t}" for t in topics), *map(eligible_path, new)]
        present = await self._zk.read_all(self._zk.session.exists, paths)
        writes = [
            Write(path, Create(path, None))
            for path, stat in zip(paths, present, strict=True)
            if stat is None
        ]
        writes += [
            Write(tp, Set(eligible_path(tp), encode_eligible(record), record.znode_version))
            for tp, record in records.items()
        ]
        results = await self._zk.write_all(writes)
        return {
            tp: replace(record, znode_version=results[tp].version)
            for tp, record in records.items()
            if not isinstance(results[tp], ZooKeeperError)
        }

    async def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete records; those that are gone already are fine."""
        await self._zk.delete_paths([eligible_path(tp) for tp in partitions])

    async def delete_topic(self, topic: str) -> None:
        """Delete all records of a topic."""
        await self._zk.delete_recursive(f"{ELIGIBLE}/{topic}")
