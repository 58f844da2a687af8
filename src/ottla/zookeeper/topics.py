"""Topics, partition states, and the requests to the controller in /admin.

Invariants: a partition's epoch is the version of its state znode and every update is a
compare-and-swap on it (R6); controller writes are fenced (R10); a malformed znode is reported and
read as absent, never a crash (F41). Kafka: the topic part of `KafkaZkClient`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from ottla.model.cluster import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    TopicInfo,
    UpdateResult,
)
from ottla.model.errors import IneligibleReplicaError
from ottla.model.ids import TopicPartition
from ottla.model.steps import yield_to_loop
from ottla.zookeeper import znodes
from ottla.zookeeper.access import ANY_VERSION, Access, Write, present
from ottla.zookeeper.eligible import eligible_path
from ottla.zookeeper.errors import (
    BadVersionError,
    MalformedZnodeError,
    NoNodeError,
    ZooKeeperError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Check, Create, Delete, Set
from ottla.zookeeper.statements import statement_path, states_of
from ottla.zookeeper.watches import WatchCallback

PARTITIONS_A_SLICE = 200
MAX_CONFLICTS = 20
"""How often a topic's znode is read again because another client wrote it."""


class Topics(Access):
    """See the module."""

    # --- topics -----------------------------------------------------------------------------

    async def get_all_topics_in_cluster(self, watch: WatchCallback | None = None) -> list[str]:
        """Return all topic names, sorted. `watch`: on the list."""
        return await self.get_children(znodes.TOPICS, watch)

    async def topic_exists(self, topic: str) -> bool:
        return await self.path_exists(znodes.topic_path(topic))

    async def get_topics(self, names: Sequence[str]) -> dict[str, TopicInfo | None]:
        """Return each topic; None where it is gone or its znode is malformed (and reported)."""
        replies = await self.get_many([znodes.topic_path(name) for name in names])
        found: dict[str, TopicInfo | None] = {}
        for name, reply in zip(names, replies, strict=True):
            try:
                found[name] = reply and znodes.decode_topic(name, reply[0])
            except MalformedZnodeError as error:
                self.ignore(error)
                found[name] = None
        return found

    async def get_topic(self, name: str, watch: WatchCallback | None = None) -> TopicInfo | None:
        """Return one topic. `watch`: on its data."""
        found = await self.get_data_and_stat(znodes.topic_path(name), watch)
        try:
            return found and znodes.decode_topic(name, found[0])
        except MalformedZnodeError as error:
            self.ignore(error)
            return None

    async def set_topic_assignment(
        self,
        topic: str,
        info: TopicInfo,
        expected_controller_epoch_zk_version: int = ANY_VERSION,
        version: int = ANY_VERSION,
    ) -> None:
        """Replace a topic's assignment (and id); NoNodeError if the topic is gone.

        BadVersionError if its znode is not of this version.
        """
        op = Set(znodes.topic_path(topic), znodes.encode_topic(info), version)
        await self.write(op, expected_controller_epoch_zk_version)

    async def update_topic_assignment(
        self,
        topic: str,
        change: Callable[[TopicInfo | None], TopicInfo],
        expected_controller_epoch_zk_version: int = ANY_VERSION,
    ) -> None:
        """Change a topic's assignment as it stands (None: malformed); NoNodeError if it is gone.

        Controller and brokers both write it: what came in between is read again, not lost.
        """
        path = znodes.topic_path(topic)
        for left in reversed(range(MAX_CONFLICTS)):
            found = await self.get_data_and_stat(path)
            if found is None:
                raise NoNodeError(path=path)
            try:
                info = znodes.decode_topic(topic, found[0])
            except MalformedZnodeError as error:
                self.ignore(error)
                info = None
            op = Set(path, znodes.encode_topic(change(info)), found[1].version)
            try:
                await self.write(op, expected_controller_epoch_zk_version)
            except BadVersionError:
                if not left:
                    raise
            else:
                return

    async def create_topic_assignment(self, info: TopicInfo) -> None:
        """Create a topic's znode; NodeExistsError if there is one that is not ours."""
        await self.create_recursive(znodes.topic_path(info.name), znodes.encode_topic(info))

    # --- partition states -------------------------------------------------------------------

    async def get_and_watch_topics(
        self, names: Sequence[str], watch_of: Callable[[str], WatchCallback]
    ) -> list[tuple[TopicInfo, Stat]]:
        """Read topics, pipelined, each with a watch on its znode.

        Those that are gone are left out, and malformed ones, which are reported.
        """
        by_path = {znodes.topic_path(topic): topic for topic in names}
        replies = await self.read_all(
            lambda path: self.session.get(path, watch_of(by_path[path])), list(by_path)
        )
        found = []
        parsed = 0
        for topic, one in zip(by_path.values(), replies, strict=True):
            reply = present(one)
            if reply is None:
                continue
            try:
                info = znodes.decode_topic(topic, reply[0])
            except MalformedZnodeError as error:
                self.ignore(error)
                continue
            found.append((info, reply[1]))
            parsed += len(info.assignment)
            if parsed >= PARTITIONS_A_SLICE:
                parsed = 0
                await yield_to_loop()
        return found

    async def get_topic_partition_states(
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
                try:
                    states[tp] = znodes.decode_state(tp, reply[0], reply[1].version)
                except MalformedZnodeError as error:
                    self.ignore(error)
                    continue
                if written_at is not None:
                    written_at[tp] = reply[1].mzxid
                if created_at is not None:
                    created_at[tp] = reply[1].czxid

        await self.get_data_in_slices([znodes.state_path(tp) for tp in partitions], take)
        return states

    async def get_topic_partition_state(
        self, tp: TopicPartition
    ) -> LeaderIsrAndControllerEpoch | None:
        return (await self.get_topic_partition_states([tp])).get(tp)

    async def create_topic_partition_states(
        self,
        states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch],
        expected_controller_epoch_zk_version: int,
    ) -> dict[TopicPartition, ZooKeeperError | None]:
        """Create state znodes and the parents they lack; None where it worked, else the error."""
        topics = list(dict.fromkeys(tp.topic for tp in states))
        parents = [znodes.partitions_path(topic) for topic in topics]
        present = await self.read_all(self.session.exists, parents)
        writes = [
            Write(path, Create(path, None))
            for path, stat in zip(parents, present, strict=True)
            if stat is None
        ]
        for tp, state in states.items():
            data = znodes.encode_state(state.leader_and_isr, state.controller_epoch)
            writes.append(Write((tp, "parent"), Create(znodes.partition_path(tp), None)))
            writes.append(Write(tp, Create(znodes.state_path(tp), data)))
        results = await self.write_all(writes, expected_controller_epoch_zk_version)
        return {tp: r if isinstance(r := results[tp], ZooKeeperError) else None for tp in states}

    async def update_leader_and_isr(
        self,
        states: Mapping[TopicPartition, LeaderAndIsr],
        controller_epoch: int,
        expected_controller_epoch_zk_version: int,
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
                replies |= await self.write_all(
                    writes, expected_controller_epoch_zk_version, guards
                )
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
        registrations = await self.get_many([znodes.broker_path(b) for b in brokers])
        statements = await self.get_many([statement_path(b) for b in brokers])
        guards = []
        for broker, registration, statement in zip(brokers, registrations, statements, strict=True):
            if registration is None or registration[1].czxid != epochs[broker]:
                return None
            if statement is not None and states_of(statement, epochs[broker]):
                guards.append(Check(statement_path(broker), statement[1].version))
        return guards

    # --- deletion ---------------------------------------------------------------------------

    async def get_topic_deletions(self, watch: WatchCallback | None = None) -> list[str]:
        """Return the topics to be deleted, sorted. `watch`: on the list."""
        return await self.get_children(znodes.DELETE_TOPICS, watch)

    async def create_delete_topic_path(self, topic: str) -> None:
        """Ask for a topic's deletion; NodeExistsError if it was asked already."""
        await self.create_recursive(znodes.delete_topic_path(topic), None)

    async def is_topic_marked_for_deletion(self, topic: str) -> bool:
        return await self.path_exists(znodes.delete_topic_path(topic))

    async def delete_topic_deletions(
        self, topics: Iterable[str], expected_controller_epoch_zk_version: int
    ) -> None:
        paths = [znodes.delete_topic_path(topic) for topic in topics]
        await self.delete_paths(paths, expected_controller_epoch_zk_version)

    async def delete_topic_znode(
        self, topic: str, expected_controller_epoch_zk_version: int
    ) -> None:
        path = znodes.topic_path(topic)
        await self.delete_recursive(path, expected_controller_epoch_zk_version)

    async def delete_topic_configs(
        self, topics: Iterable[str], expected_controller_epoch_zk_version: int
    ) -> None:
        paths = [znodes.config_path("topics", topic) for topic in topics]
        await self.delete_paths(paths, expected_controller_epoch_zk_version)

    async def delete_paths(
        self, paths: Sequence[str], expected_controller_epoch_zk_version: int = ANY_VERSION
    ) -> None:
        """Delete znodes; those already gone are fine, any other error is raised at the end."""
        writes = [Write(path, Delete(path)) for path in paths]
        results = await self.write_all(writes, expected_controller_epoch_zk_version)
        for result in results.values():
            if isinstance(result, ZooKeeperError) and not isinstance(result, NoNodeError):
                raise result

    # --- legacy requests by znode -----------------------------------------------------------

    async def get_partition_reassignment(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Return what /admin/reassign_partitions asks for; nothing if absent or malformed."""
        found = await self.get_data_and_stat(znodes.REASSIGN_PARTITIONS)
        try:
            return znodes.decode_reassignment(found[0]) if found else {}
        except MalformedZnodeError as error:
            self.ignore(error)
            return {}

    async def create_partition_reassignment(
        self, reassignment: Mapping[TopicPartition, Sequence[int]]
    ) -> None:
        data = znodes.encode_reassignment(reassignment)
        await self.create_recursive(znodes.REASSIGN_PARTITIONS, data)

    async def set_or_create_partition_reassignment(
        self,
        reassignment: Mapping[TopicPartition, Sequence[int]],
        expected_controller_epoch_zk_version: int,
    ) -> None:
        data = znodes.encode_reassignment(reassignment)
        path = znodes.REASSIGN_PARTITIONS
        try:
            await self.write(Set(path, data), expected_controller_epoch_zk_version)
        except NoNodeError:
            await self.write(Create(path, data), expected_controller_epoch_zk_version)

    async def delete_partition_reassignment(
        self, expected_controller_epoch_zk_version: int
    ) -> None:
        paths = [znodes.REASSIGN_PARTITIONS]
        await self.delete_paths(paths, expected_controller_epoch_zk_version)

    async def reassign_partitions_in_progress(self, watch: WatchCallback | None = None) -> bool:
        return await self.path_exists(znodes.REASSIGN_PARTITIONS, watch)

    async def get_preferred_replica_election(self) -> list[TopicPartition]:
        """Return what the legacy znode asks for; nothing if absent or malformed."""
        found = await self.get_data_and_stat(znodes.PREFERRED_REPLICA_ELECTION)
        try:
            return znodes.decode_preferred_election(found[0]) if found else []
        except MalformedZnodeError as error:
            self.ignore(error)
            return []

    async def create_preferred_replica_election(self, partitions: Iterable[TopicPartition]) -> None:
        data = znodes.encode_preferred_election(partitions)
        await self.create_recursive(znodes.PREFERRED_REPLICA_ELECTION, data)

    async def delete_preferred_replica_election(
        self, expected_controller_epoch_zk_version: int
    ) -> None:
        paths = [znodes.PREFERRED_REPLICA_ELECTION]
        await self.delete_paths(paths, expected_controller_epoch_zk_version)
