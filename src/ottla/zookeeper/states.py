"""The states of partitions: who leads, who is in sync, and since which epoch.

Invariants: a partition's epoch is the version of its state znode and every update is a
compare-and-swap on it (R6); controller writes are fenced (R10); a malformed znode is reported and
read as absent, never a crash (F41). Kafka: the partition states of `KafkaZkClient`.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ottla.model.cluster import LeaderAndIsr, LeaderIsrAndControllerEpoch, UpdateResult
from ottla.model.errors import IneligibleReplicaError
from ottla.model.ids import TopicPartition
from ottla.zookeeper import znodes
from ottla.zookeeper.access import Part, Write, present
from ottla.zookeeper.eligible import eligible_path
from ottla.zookeeper.errors import (
    BadVersionError,
    NoNodeError,
    ZooKeeperError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Check, Create, Set
from ottla.zookeeper.statements import statement_path, states_of


class PartitionStates(Part):
    """The state znodes, by partition."""

    async def get(
        self,
        partitions: Sequence[TopicPartition],
        written_at: dict[TopicPartition, int] | None = None,
        created_at: dict[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
        """Return the states there are; malformed ones are reported and left out.

        `written_at` and `created_at`, if given, are filled with the zxid of each state's last
        change and of its creation.
        """
        states: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}

        def take(start: int, replies: list[tuple[bytes, Stat] | ZooKeeperError]) -> None:
            for index, one in enumerate(replies, start):
                reply = present(one)
                if reply is None:
                    continue
                tp = partitions[index]
                state = self._zk.decoded(znodes.decode_state, tp, reply[0], reply[1].version)
                if state is None:
                    continue
                states[tp] = state
                if written_at is not None:
                    written_at[tp] = reply[1].mzxid
                if created_at is not None:
                    created_at[tp] = reply[1].czxid

        await self._zk.get_data_in_slices([znodes.state_path(tp) for tp in partitions], take)
        return states

    async def get_one(self, tp: TopicPartition) -> LeaderIsrAndControllerEpoch | None:
        return (await self.get([tp])).get(tp)

    async def create(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
    ) -> dict[TopicPartition, ZooKeeperError | None]:
        """Create state znodes and the parents they lack; None where it worked, else the error."""
        topics = list(dict.fromkeys(tp.topic for tp in states))
        parents = [znodes.partitions_path(topic) for topic in topics]
        present = await self._zk.read_all(self._zk.session.exists, parents)
        writes = [
            Write(path, Create(path, None))
            for path, stat in zip(parents, present, strict=True)
            if stat is None
        ]
        for tp, state in states.items():
            data = znodes.encode_state(state.leader_and_isr, state.controller_epoch)
            writes.append(Write((tp, "parent"), Create(znodes.partition_path(tp), None)))
            writes.append(Write(tp, Create(znodes.state_path(tp), data)))
        results = await self._zk.write_all(writes)
        return {tp: r if isinstance(r := results[tp], ZooKeeperError) else None for tp in states}

    async def update(
        self,
        states: Mapping[TopicPartition, LeaderAndIsr],
        controller_epoch: int,
        newcomers: Mapping[TopicPartition, Mapping[int, int]] | None = None,
        records: Mapping[TopicPartition, int] | None = None,
    ) -> UpdateResult:
        """Write states, each only over the partition epoch it was decided from.

        `newcomers`: broker epochs of those whom a state lets into an ISR. It is not written, and
        its error is an IneligibleReplicaError, if one of them has another registration by then.
        `records`: the versions of the records of eligible replicas that elections rest on; one that
        has changed is to be decided once more.
        """
        newcomers, records = newcomers or {}, records or {}
        groups: dict[frozenset[tuple[int, int]], list[Write]] = {}
        for tp, state in states.items():
            data = znodes.encode_state(state, controller_epoch)
            op = Set(znodes.state_path(tp), data, state.partition_epoch)
            check = Check(eligible_path(tp), records[tp]) if tp in records else None
            write = Write(tp, op, check)
            registered = frozenset(newcomers.get(tp, {}).items())
            groups.setdefault(registered, []).append(write)
        result = UpdateResult()
        replies: dict[TopicPartition, Stat | ZooKeeperError] = {}
        for registered, writes in groups.items():
            guards = await self._registration_guards(dict(registered))
            if guards is not None:
                replies |= await self._zk.write_all(writes, guards)
        for tp, state in states.items():
            reply = replies.get(tp)
            if reply is None:
                result.finished[tp] = IneligibleReplicaError(
                    f"one of the brokers {sorted(newcomers.get(tp, {}))} registered anew"
                )
            elif isinstance(reply, BadVersionError) or (
                tp in records and isinstance(reply, NoNodeError)
            ):
                result.retry.append(tp)
            elif isinstance(reply, ZooKeeperError):
                result.finished[tp] = reply
            else:
                result.finished[tp] = replace(state, partition_epoch=reply.version)
        return result

    async def _registration_guards(self, epochs: Mapping[int, int]) -> list[Check] | None:
        """Return what holds while each broker has this registration; None where one has not.

        A broker of ours sets its statement with each registration, so its version tells. Of a JVM
        broker there is no such znode: it is only looked at now.
        """
        if not epochs:
            return []
        brokers = list(epochs)
        registrations = await self._zk.get_many([znodes.broker_path(b) for b in brokers])
        statements = await self._zk.get_many([statement_path(b) for b in brokers])
        guards = []
        for broker, registration, statement in zip(brokers, registrations, statements, strict=True):
            if registration is None or registration[1].czxid != epochs[broker]:
                return None
            if statement is not None and states_of(statement, epochs[broker]):
                guards.append(Check(statement_path(broker), statement[1].version))
        return guards
