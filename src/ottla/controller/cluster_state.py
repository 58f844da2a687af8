"""Cluster state: what the controller reads and writes in ZooKeeper, and asks of brokers.

A decider but for what its calls do. One method for each read and write; procedures and handlers
have no other way to the store. Invariants: every write is checked against the version of
/controller_epoch; what a `recorded` call was asked and returned, or how it failed, is in the
journal before the procedure goes on, as an `EffectPerformed` line under the method's name
(`ReadMinIsr` for `read_min_isr`). The states of partitions, which are many, have no line of their
own: they are in the snapshot and in the decisions made from them, and only errors are recorded.
`explain.replayed_term` answers the same calls from a journal.
"""

import functools
import inspect
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from ottla.controller import events as happened
from ottla.controller.found import (
    FoundCluster,
    FoundStatements,
    FoundTopic,
    LogEnds,
    Stated,
    States,
    Targets,
    Zxids,
)
from ottla.model.cluster import (
    BrokerInfo,
    Eligible,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicIdNote,
    TopicInfo,
    UpdateResult,
)
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition, is_usable_uuid
from ottla.model.journal_schema import EffectPerformed, partition_of
from ottla.zookeeper.errors import BadVersionError, MalformedZnodeError, NoNodeError
from ottla.zookeeper.watches import WatchType
from ottla.zookeeper.znodes import (
    PREFERRED_REPLICA_ELECTION,
    Features,
    broker_path,
    topic_path,
)

if TYPE_CHECKING:
    from ottla.controller.term import ControllerTerm

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[P, Coroutine[Any, Any, T]]

UNCLEAN_ELECTION = "unclean.leader.election.enable"


# --- recording ----------------------------------------------------------------------------------


def recorded(*left_out: str, result: bool = True) -> Callable[[Call[P, T]], Call[P, T]]:
    """Record the calls of a method, but for the arguments that are `left_out`.

    Without `result` only failures are recorded.
    """

    def decorate(call: Call[P, T]) -> Call[P, T]:
        name = "".join(word.capitalize() for word in call.__name__.split("_"))
        read = _reader(get_type_hints(call)["return"])
        signature = inspect.signature(call)

        @functools.wraps(call)
        async def recording(*args: P.args, **kwargs: P.kwargs) -> T:
            given = dict(signature.bind(*args, **kwargs).arguments)
            state: ClusterState = given.pop("self")
            if not result:
                return await state.note_failure(name, lambda: call(*args, **kwargs))
            asked = {key: plain(value) for key, value in given.items() if key not in left_out}
            return await state.note(name, asked or None, lambda: call(*args, **kwargs), read)

        return recording

    return decorate


def plain(value: Any) -> Any:
    """Return a value as msgspec writes it as JSON: partitions are text, sets are sorted lists."""
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(of) for key, of in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(plain, value))
    if isinstance(value, list | tuple):
        return list(map(plain, value))
    return value


def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what makes a value of this type of what `plain` has made of one."""
    origin, of = get_origin(kind), get_args(kind)
    if kind is TopicPartition:
        return partition_of
    if origin is types.UnionType:  # or None
        inner = _reader(of[0])
        return lambda found: None if found is None else inner(found)
    if of and of[0] is TopicPartition:
        if len(of) == 1:
            return lambda found: origin(map(partition_of, found))
        value = _reader(of[1])
        return lambda found: {partition_of(tp): value(one) for tp, one in found.items()}
    return lambda found: msgspec.convert(found, kind, str_keys=True)


class ClusterState:
    """One term's. See the module."""

    def __init__(self, term: "ControllerTerm") -> None:
        self.removed_total = 0
        """Registrations that were removed because the broker's process was gone."""
        self._term = term

    async def note(
        self,
        name: str,
        arguments: dict[str, Any] | None,
        call: Callable[[], Awaitable[T]],
        read: Callable[[Any], T],  # noqa: ARG002 - for who replays
    ) -> T:
        """Make a call and record it; `read` makes its result of what the journal has of it."""
        result = await self.note_failure(name, call, arguments)
        done = EffectPerformed(effect=name, arguments=arguments, result=plain(result))
        self._term.journal.event(done)
        return result

    async def note_failure(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        arguments: dict[str, Any] | None = None,
    ) -> T:
        """Make a call and record its failure."""
        try:
            return await call()
        except OttlaError as error:
            text = f"{type(error).__name__}: {error}"
            self._term.journal.event(EffectPerformed(effect=name, arguments=arguments, error=text))
            raise

    # --- states of partitions ---------------------------------------------------------------

    @recorded(result=False)
    async def read_states(self, partitions: Sequence[TopicPartition]) -> States:
        """Read states to decide from; those without a readable state are left out."""
        return await self._term.store.states.get(partitions)

    @recorded(result=False)
    async def read_all_states(self, partitions: Sequence[TopicPartition], zxids: Zxids) -> States:
        """Read the states that a new controller finds; add when they were written to `zxids`."""
        return await self._term.store.states.get(partitions, zxids.written, zxids.created)

    @recorded(result=False)
    async def create_states(self, states: States) -> Mapping[TopicPartition, OttlaError | None]:
        """Create partitions' first states; return the error, or None, of each."""
        return await self._term.store.states.create(states)

    @recorded(result=False)
    async def update_states(
        self,
        states: Mapping[TopicPartition, LeaderAndIsr],
        newcomers: Mapping[TopicPartition, Mapping[int, int]],
        records: Mapping[TopicPartition, int],
    ) -> UpdateResult:
        """Write states, each over the partition epoch it was decided from.

        `newcomers`: broker epochs of those whom a state lets into an ISR; it is an error if one of
        them has another registration at the moment of the write. `records`: the znode versions of
        the records of eligible replicas that elections rest on; one that has changed by then is
        decided once more.
        """
        term = self._term
        return await term.store.states.update(states, term.context.epoch, newcomers, records)

    @recorded()
    async def read_isrs(self, partitions: Sequence[TopicPartition]) -> Targets:
        """Read the ISR of each partition; those without a state are left out."""
        states = await self._term.store.states.get(partitions)
        return {tp: state.leader_and_isr.isr for tp, state in states.items()}

    @recorded()
    async def read_changed_states(self, partitions: Sequence[TopicPartition]) -> States:
        """Read states that leaders wrote by themselves."""
        return await self._term.store.states.get(partitions)

    # --- brokers ----------------------------------------------------------------------------

    @recorded()
    async def find_cluster(self) -> FoundCluster:
        """Read what there is, at once, and leave a watch on all of it."""
        return FoundCluster(*await self._term.find_cluster())

    @recorded()
    async def find_statements(self, brokers: Sequence[BrokerInfo]) -> FoundStatements:
        """Read what a new controller has to know of brokers' logs, at once."""
        return FoundStatements(*await self._term.find_statements(brokers))

    @recorded()
    async def read_brokers(self) -> list[BrokerInfo]:
        """Read all registrations, with a watch on their coming and going."""
        watch = self._term.watcher(happened.BrokersChanged())
        return await self._term.store.brokers.get_all(watch)

    @recorded()
    async def read_broker(self, broker: int) -> BrokerInfo | None:
        """Read a registration; None if it is gone."""
        return await self._term.store.brokers.get(broker)

    @recorded(result=False)
    async def watch_registrations(self, brokers: Iterable[int]) -> None:
        """Leave a watch on the data of brokers' registrations."""
        term = self._term
        by_path = {broker_path(b): happened.BrokerModified(b) for b in brokers}
        await term.store.zk.read_all(
            lambda path: term.store.session.exists(
                path, term.watcher(by_path[path], WatchType.DATA_CHANGED)
            ),
            list(by_path),
        )

    @recorded()
    async def remove_registration(self, broker: BrokerInfo, evidence: str) -> str | None:
        """Delete the registration of a broker whose process is gone; return why not."""
        term = self._term
        problem = await term.store.removals.remove_registration(
            broker,
            evidence,
            term.settings.controller_id,
            any_broker=term.removes_unstated(broker),
        )
        self.removed_total += problem is None
        return problem

    @recorded()
    async def read_statements(self, brokers: Sequence[BrokerInfo]) -> Stated:
        """Read what these registrations state."""
        whole, voiding = await self._term.store.brokers.get_stated(brokers)
        return Stated(tuple(sorted(whole)), tuple(sorted(voiding)))

    @recorded()
    async def read_log_ends(self, wanted: Mapping[int, Sequence[TopicPartition]]) -> LogEnds:
        """Ask brokers where their logs end; those that do not respond are left out."""
        return await self._term.fetch_log_ends(wanted)

    # --- notifications of brokers -----------------------------------------------------------

    @recorded()
    async def read_isr_changes(self) -> list[str]:
        """Read the names of the notifications of changed ISRs, with a watch."""
        watch = self._term.watcher(happened.IsrChangesNotified())
        return await self._term.store.isr_changes.names(watch)

    @recorded()
    async def read_changed_partitions(self, names: Sequence[str]) -> list[TopicPartition]:
        """Read which partitions these notifications of changed ISRs name."""
        found = await self._term.store.isr_changes.read(names)
        return list(dict.fromkeys(tp for one in found for tp in one.what or ()))

    @recorded()
    async def delete_isr_changes(self, names: Sequence[str]) -> None:
        """Delete these notifications of changed ISRs."""
        await self._term.store.isr_changes.delete(names)

    @recorded()
    async def read_log_dir_events(self) -> list[str]:
        """Read the names of the notifications of failed log directories, with a watch."""
        watch = self._term.watcher(happened.LogDirsFailed())
        return await self._term.store.log_dir_events.names(watch)

    @recorded()
    async def read_failed_brokers(self, names: Sequence[str]) -> list[int]:
        """Read which brokers these notifications of failed log directories name."""
        found = await self._term.store.log_dir_events.read(names)
        return sorted({one.what for one in found if one.what is not None})

    @recorded()
    async def delete_log_dir_events(self, names: Sequence[str]) -> None:
        """Delete these notifications of failed log directories."""
        await self._term.store.log_dir_events.delete(names)

    # --- topics -----------------------------------------------------------------------------

    @recorded("known")
    async def read_topic_changes(self, known: AbstractSet[str]) -> tuple[list[str], list[str]]:
        """Read which topics are new and which known ones are gone, with a watch on all names."""
        watch = self._term.watcher(happened.TopicsChanged())
        present = await self._term.store.topics.get_names(watch)
        return [name for name in present if name not in known], sorted(known - set(present))

    @recorded()
    async def read_topics(self, topics: Sequence[str]) -> list[FoundTopic]:
        """Read topics' znodes, each with a watch; those that are gone or malformed are left out."""
        term = self._term
        found = await term.store.topics.get_and_watch(
            topics,
            lambda topic: term.watcher(happened.PartitionsModified(topic), WatchType.DATA_CHANGED),
        )
        return [FoundTopic(info, stat.czxid, stat.version) for info, stat in found]

    def ignore_topic(self, topic: str, problem: str) -> None:
        """Report a topic whose name cannot be that of a folder."""
        self._term.store.zk.ignore(MalformedZnodeError(topic_path(topic)[:300], problem[-200:]))

    @recorded()
    async def write_topic(self, info: TopicInfo) -> None:
        """Write a topic's znode as a whole."""
        await self._term.store.topics.set(info)

    @recorded()
    async def write_topic_id(self, info: TopicInfo, version: int) -> bool:
        """Write a topic with its id over the version that was read; return False if it is gone.

        Where another client wrote it meanwhile, the watch that was left with the read brings us
        back.
        """
        term, topic = self._term, info.name
        try:
            await term.store.topics.set(info, version)
        except NoNodeError:
            return False
        except BadVersionError:
            logger.info("topic id not written topic=%s reason=written by another client", topic)
        return True

    @recorded("known")
    async def write_assignments(
        self, topic: str, partitions: Mapping[int, ReplicaAssignment], known: TopicInfo
    ) -> bool:
        """Write some partitions' assignments into their topic's znode; return False if it is gone.

        Partitions of the znode that are not named stay as they are; `known` stands in for a znode
        that cannot be read.
        """

        def change(found: TopicInfo | None) -> TopicInfo:
            info = found or known
            if info.topic_id is None:  # an old tool wrote it (KAFKA-14190)
                info = replace(info, topic_id=known.topic_id)
            return replace(info, assignment={**info.assignment, **partitions})

        try:
            await self._term.store.topics.update(topic, change)
        except (NoNodeError, BadVersionError) as error:
            logger.warning("assignment not written topic=%s error=%s", topic, error)
            return False
        return True

    @recorded()
    async def read_topic_id_notes(self, topics: Sequence[str]) -> Mapping[str, TopicIdNote]:
        """Read what /ottla/topic_ids says of topics."""
        return await self._term.store.topic_ids.get(topics)

    @recorded()
    async def write_topic_id_notes(self, notes: Mapping[str, TopicIdNote]) -> None:
        """Write into /ottla/topic_ids what is to be said of topics."""
        await self._term.store.topic_ids.set(notes)

    @recorded()
    async def read_topic_ids_here(self, topics: Sequence[str]) -> Mapping[str, AbstractSet[bytes]]:
        """Return the ids that this broker knows topics by: on its disks, else in its metadata."""
        known = self._term.known_topic_ids()
        return {topic: known[topic] for topic in topics if topic in known}

    @recorded()
    async def draw_topic_id(self) -> bytes:
        """Return a new topic id, drawn at random."""
        topic_id = self._term.world.random.randbytes(16)
        while not is_usable_uuid(topic_id):
            topic_id = self._term.world.random.randbytes(16)
        return topic_id

    @recorded()
    async def read_topic_deletions(self) -> list[str]:
        """Read which topics' deletion is requested, with a watch."""
        watch = self._term.watcher(happened.TopicDeletionsRequested())
        return await self._term.store.topics.get_deletions(watch)

    @recorded()
    async def delete_topic_deletions(self, topics: Sequence[str]) -> None:
        """Delete /admin/delete_topics/TOPIC of each topic."""
        await self._term.store.topics.delete_deletions(topics)

    @recorded()
    async def delete_topic_znode(self, topic: str) -> None:
        """Delete /brokers/topics/TOPIC and all below it, and the note of the topic's id."""
        await self._term.store.topics.delete(topic)
        await self._term.store.topic_ids.delete(topic)

    @recorded()
    async def delete_topic_config(self, topic: str) -> None:
        """Delete /config/topics/TOPIC."""
        await self._term.store.configs.delete_topics([topic])

    # --- settings ---------------------------------------------------------------------------

    @recorded()
    async def read_unclean_topics(self, topics: Sequence[str]) -> Mapping[str, bool]:
        """Read which topics allow unclean elections."""
        configs = await self._term.store.configs.get_many("topics", topics)
        default = "true" if self._term.unclean_by_default() else "false"
        return {
            topic: configs[topic].get(UNCLEAN_ELECTION, default).lower() == "true"
            for topic in topics
        }

    @recorded()
    async def read_min_isr(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Read topics' min.insync.replicas; where one has none, this broker's default counts."""
        return await self._term.store.configs.get_min_isr(topics, self._term.min_isr_by_default())

    @recorded()
    async def read_features(self) -> tuple[Features, int] | None:
        """Read /feature and its version, creating it where it is absent; None: not readable.

        One that cannot be read stays for a person to look at: the controller needs nothing from it
        (F41).
        """
        store = self._term.store
        try:
            return await store.cluster.get_or_create_features(Features(enabled=True, levels={}))
        except MalformedZnodeError as error:
            store.zk.ignore(error)
            return None

    @recorded()
    async def write_features(self, features: Features, version: int) -> None:
        """Write /feature over the version that was read."""
        await self._term.store.cluster.update_features(features, version)

    # --- eligible replicas (adr/0007) -------------------------------------------------------

    @recorded(result=False)
    async def read_all_eligible(
        self, topic_ids: Mapping[str, bytes]
    ) -> Mapping[TopicPartition, Eligible]:
        """Read all records of eligible replicas of these topics."""
        return await self._term.store.eligible.get(topic_ids)

    @recorded()
    async def read_standing_eligible(
        self, records: Mapping[TopicPartition, Eligible]
    ) -> set[TopicPartition]:
        """Read which of these records are still in ZooKeeper as they were written.

        A leader deletes a record before it acknowledges without the replicas that it names.
        """
        return await self._term.store.eligible.get_standing(records)

    @recorded()
    async def write_eligible(
        self, records: Mapping[TopicPartition, Eligible]
    ) -> Mapping[TopicPartition, Eligible]:
        """Write who may lead besides the ISR; return the records that stand."""
        return await self._term.store.eligible.set(records)

    @recorded()
    async def delete_eligible(self, partitions: Sequence[TopicPartition]) -> None:
        """Delete records of who may lead besides the ISR."""
        await self._term.store.eligible.delete(partitions)

    @recorded()
    async def delete_eligible_of_topic(self, topic: str) -> None:
        """Delete all such records of a topic."""
        await self._term.store.eligible.delete_topic(topic)

    # --- requests in /admin, and producer ids -----------------------------------------------

    @recorded()
    async def read_reassignments(self, *, watch: bool = False) -> Targets | None:
        """Read what /admin/reassign_partitions requests; None if there is no such znode.

        `watch`: and leave a watch on it.
        """
        term = self._term
        callback = term.watcher(happened.ReassignmentRequested()) if watch else None
        if not await term.store.admin_requests.is_reassigning(callback):
            return None
        return await term.store.admin_requests.get_reassignment()

    @recorded()
    async def write_reassignments(self, left: Targets) -> None:
        """Leave only these requests in /admin/reassign_partitions; without any, delete it."""
        requests = self._term.store.admin_requests
        if not left:
            await requests.delete_reassignment()
            return
        try:
            await requests.set_reassignment(left)
        except NoNodeError:
            logger.info("the requests for reassignment were removed by another client")

    @recorded()
    async def read_preferred_election(self) -> list[TopicPartition] | None:
        """Read what /admin/preferred_replica_election requests, with a watch; None: nothing."""
        watch = self._term.watcher(happened.PreferredElectionRequested())
        if not await self._term.store.zk.path_exists(PREFERRED_REPLICA_ELECTION, watch):
            return None
        return await self._term.store.admin_requests.get_preferred_election()

    @recorded()
    async def delete_preferred_election(self) -> None:
        """Delete /admin/preferred_replica_election."""
        await self._term.store.admin_requests.delete_preferred_election()

    @recorded()
    async def allocate_producer_ids(self, broker: int) -> tuple[int, int]:
        """Take the next block of producer ids for a broker; return the first and the last."""
        block = await self._term.store.cluster.allocate_producer_ids(broker)
        return block.first, block.last
