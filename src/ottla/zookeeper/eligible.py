"""Eligible leader replicas, and whether brokers kept their logs, in znodes of our own.

Who may call: `Store`. Invariants: all of it lies under `/ottla`, which JVM brokers do not look at;
what is the controller's is written with the check of its epoch; a record that cannot be read is
reported and counts as none (F41). Kafka has these facts in KRaft's `PartitionRecord` and
`RegisterBrokerRecord` (KIP-966).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ottla.model.cluster import BrokerInfo, Eligible, MinIsr
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.zookeeper import znodes
from ottla.zookeeper.access import Access, Write
from ottla.zookeeper.errors import MalformedZnodeError, NoNodeError, ZooKeeperError
from ottla.zookeeper.operations import Create, Delete, Set
from ottla.zookeeper.statements import ROOT, decode_statement, statement_path, states_of

ELIGIBLE = f"{ROOT}/eligible"

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
            1,
            uuid_to_text(record.topic_id),
            record.partition_epoch,
            record.min_isr,
            list(record.broker_epochs),
        )
    )


class EligibleReplicas(Access):
    """The store's part for them."""

    async def get_clean_brokers(self, brokers: Iterable[BrokerInfo]) -> set[int]:
        """Return the brokers whose current registration states that they kept all logs."""
        listed = list(brokers)
        replies = await self.get_many([statement_path(b.id) for b in listed])
        clean = set()
        for broker, reply in zip(listed, replies, strict=True):
            if reply is None or not states_of(reply, broker.epoch):
                continue
            try:
                said = decode_statement(broker.id, reply[0])
            except MalformedZnodeError as error:
                self.ignore(error)
                continue
            if said.logs_whole:
                clean.add(broker.id)
        return clean

    async def stated(self, broker: BrokerInfo) -> bool:
        """Return whether a broker's registration has or had a statement: then it is one of ours.

        One that ends has withdrawn it (`withdraw_statement`), later than it registered.
        """
        found = await self.get_data_and_stat(statement_path(broker.id))
        return found is not None and found[1].mzxid >= broker.epoch

    async def get_eligible_topics(self) -> list[str]:
        """Return the topics there are records of, deleted ones perhaps among them."""
        return await self.get_children(ELIGIBLE)

    async def get_eligible(self, topic_ids: Mapping[str, bytes]) -> dict[TopicPartition, Eligible]:
        """Return all records of these topics, by partition."""
        present = [t for t in await self.get_children(ELIGIBLE) if t in topic_ids]
        listed = await self.read_all(self.session.children, [f"{ELIGIBLE}/{t}" for t in present])
        partitions = [
            TopicPartition(topic, int(name))
            for topic, names in zip(present, listed, strict=True)
            if not isinstance(names, ZooKeeperError)
            for name in sorted(names)
            if name.isascii() and name.isdigit() and len(name) < 10
        ]
        replies = await self.get_many([eligible_path(tp) for tp in partitions])
        found = {}
        for tp, reply in zip(partitions, replies, strict=True):
            if reply is None or not reply[0]:
                continue
            try:
                record = znodes.decode_json(_Record, eligible_path(tp), reply[0])
            except MalformedZnodeError as error:
                self.ignore(error)
                continue
            if record.topic_id == uuid_to_text(topic_ids[tp.topic]):
                found[tp] = Eligible(
                    topic_ids[tp.topic],
                    record.partition_epoch,
                    record.min_isr,
                    tuple(record.replicas),
                    reply[1].mzxid,
                    reply[1].mtime,
                )
        return found

    async def set_eligible(
        self,
        records: Mapping[TopicPartition, Eligible],
        expected_controller_epoch_zk_version: int,
    ) -> dict[TopicPartition, Eligible]:
        """Write records and missing parents; return the records as they are now."""
        topics = list(dict.fromkeys(tp.topic for tp in records))
        paths = [ROOT, ELIGIBLE, *(f"{ELIGIBLE}/{t}" for t in topics), *map(eligible_path, records)]
        present = await self.read_all(self.session.exists, paths)
        writes = [
            Write(path, Create(path, None))
            for path, stat in zip(paths, present, strict=True)
            if stat is None
        ]
        writes += [
            Write(tp, Set(eligible_path(tp), encode_eligible(record)))
            for tp, record in records.items()
        ]
        results = await self.write_all(writes, expected_controller_epoch_zk_version)
        return {
            tp: replace(record, zxid=results[tp].mzxid, written_ms=results[tp].mtime)
            for tp, record in records.items()
            if not isinstance(results[tp], ZooKeeperError)
        }

    async def delete_eligible(
        self, partitions: Iterable[TopicPartition], expected_controller_epoch_zk_version: int
    ) -> None:
        """Delete records; those that are gone already are fine."""
        writes = [Write(tp, Delete(eligible_path(tp))) for tp in partitions]
        results = await self.write_all(writes, expected_controller_epoch_zk_version)
        for result in results.values():
            if isinstance(result, ZooKeeperError) and not isinstance(result, NoNodeError):
                raise result

    async def delete_eligible_of_topic(
        self, topic: str, expected_controller_epoch_zk_version: int
    ) -> None:
        """Delete all records of a topic."""
        path = f"{ELIGIBLE}/{topic}"
        if await self.path_exists(path):
            await self.delete_recursive(path, expected_controller_epoch_zk_version)

    async def get_min_isr(self, topics: Sequence[str]) -> dict[str, MinIsr]:
        """Return min.insync.replicas of each topic's own settings."""
        paths = [znodes.config_path("topics", topic) for topic in topics]
        found = {}
        for topic, path, reply in zip(topics, paths, await self.get_many(paths), strict=True):
            found[topic] = MinIsr()
            if reply is None:
                continue
            stat = reply[1]
            value = None
            try:
                text = znodes.decode_config(path, reply[0]).get("min.insync.replicas", "")
                value = int(text) if text else None
            except (MalformedZnodeError, ValueError):
                value = None
            found[topic] = MinIsr(value, stat.mzxid, stat.mtime, stat.version)
        return found
