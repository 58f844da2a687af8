"""Cluster state: what the controller reads and writes in ZooKeeper, and asks of brokers.

A decider but for what its calls do. One method for each read and write; procedures and handlers
have no other way to the store. Invariants: every write is checked against the version of
/controller_epoch; what a call returned, or how it failed, is in the journal before the procedure
goes on, as an `EffectPerformed` line under the name given here, with the arguments. The states of
partitions, which are many, have no line of their own: they are in the snapshot and in the decisions
made from them, and only their errors are recorded. `explain.replayed_term` answers the same calls
from a journal, where neither the store nor the fence is there: they are looked up by the call.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ottla.controller import events as happened
from ottla.controller.elections import LogEnd
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
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicIdNote,
    TopicInfo,
    UpdateResult,
)
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition, is_usable_uuid
from ottla.model.journal_schema import EffectPerformed, partition_of
from ottla.zookeeper import znodes
from ottla.zookeeper.errors import (
    BadVersionError,
    MalformedZnodeError,
    NoNodeError,
)
from ottla.zookeeper.watches import WatchType

if TYPE_CHECKING:
    from ottla.controller.term import ControllerTerm

logger = logging.getLogger(__name__)

T = TypeVar("T")

UNCLEAN_ELECTION = "unclean.leader.election.enable"


class Form(NamedTuple, Generic[T]):
    """How a result is written into the journal, and read from it."""

    write: Callable[[T], Any]
    read: Callable[[Any], T]


def _same(value: Any) -> Any:
    return value


def _form(kind: type[T]) -> Form[T]:
    return Form(_same, lambda recorded: msgspec.convert(recorded, kind, str_keys=True))


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [str(tp) for tp in partitions]


def _by_name(found: Mapping[TopicPartition, T]) -> dict[str, T]:
    return {str(tp): value for tp, value in found.items()}


def _targets(recorded: Any) -> Targets:
    return {partition_of(tp): tuple(target) for tp, target in recorded.items()}


def _states(recorded: Any) -> States:
    states = msgspec.convert(recorded, dict[str, LeaderIsrAndControllerEpoch])
    return {partition_of(tp): state for tp, state in states.items()}


def _log_ends(recorded: Any) -> LogEnds:
    ends = msgspec.convert(recorded, dict[str, dict[int, LogEnd]], str_keys=True)
    return {partition_of(tp): of for tp, of in ends.items()}


PLAIN: Form[Any] = Form(_same, _same)
_PARTITIONS: Form[list[TopicPartition]] = Form(
    _names, lambda recorded: [partition_of(tp) for tp in recorded]
)


def _or_none(form: Form[T]) -> Form[T | None]:
    return Form(
        lambda found: None if found is None else form.write(found),
        lambda recorded: None if recorded is None else form.read(recorded),
    )


class ClusterState:
    """One term's. See the module."""

    def __init__(self, term: "ControllerTerm") -> None:
        self.removed_total = 0
        """Registrations that were removed because the broker's process was gone."""
        self._term = term

    async def _record(
        self, name: str, call: Callable[[], Awaitable[T]], form: Form[T] = PLAIN, **arguments: Any
    ) -> T:
        """Make a call and record its result."""
        result = await self._record_error(name, call, **arguments)
        self._term.journal.event(
            EffectPerformed(effect=name, arguments=arguments or None, result=form.write(result))
        )
        return result

    async def _record_error(
        self, name: str, call: Callable[[], Awaitable[T]], **arguments: Any
    ) -> T:
        """Make a call; record only its failure."""
        try:
            return await call()
        except OttlaError as error:
            text = f"{type(error).__name__}: {error}"
            self._term.journal.event(
                EffectPerformed(effect=name, arguments=arguments or None, error=text)
            )
            raise

    # --- states of partitions ---------------------------------------------------------------

    async def read_states(self, partitions: Sequence[TopicPartition]) -> States:
        """Read states to decide from; those without a readable state are left out."""
        store = self._term.store
        return await self._record_error(
            "ReadStates", lambda: store.get_topic_partition_states(partitions)
        )

    async def read_all_states(self, partitions: Sequence[TopicPartition], zxids: Zxids) -> States:
        """Read the states that a new controller finds; add when they were written to `zxids`."""
        store = self._term.store
        return await self._record_error(
            "ReadAllStates",
            lambda: store.get_topic_partition_states(partitions, zxids.written, zxids.created),
        )

    async def create_states(self, states: States) -> Mapping[TopicPartition, OttlaError | None]:
        """Create partitions' first states; return the error, or None, of each."""
        term = self._term
        return await self._record_error(
            "CreateStates", lambda: term.store.create_topic_partition_states(states, term.fence)
        )

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
        return await self._record_error(
            "UpdateStates",
            lambda: term.store.update_leader_and_isr(
                states, term.context.epoch, term.fence, newcomers, records
            ),
        )

    async def read_isrs(self, partitions: Sequence[TopicPartition]) -> Targets:
        """Read the ISR of each partition; those without a state are left out."""

        async def isrs() -> Targets:
            states = await self._term.store.get_topic_partition_states(partitions)
            return {tp: state.leader_and_isr.isr for tp, state in states.items()}

        form = Form(_by_name, _targets)
        return await self._record("ReadIsrs", isrs, form, partitions=_names(partitions))

    async def read_changed_states(self, partitions: Sequence[TopicPartition]) -> States:
        """Read states that leaders wrote by themselves."""
        store = self._term.store
        return await self._record(
            "ReadChangedStates",
            lambda: store.get_topic_partition_states(partitions),
            Form(_by_name, _states),
            partitions=_names(partitions),
        )

    # --- brokers ----------------------------------------------------------------------------

    async def find_cluster(self) -> FoundCluster:
        """Read what there is, at once, and leave a watch on all of it."""

        async def find() -> FoundCluster:
            return FoundCluster(*await self._term.find_cluster())

        return await self._record("FindCluster", find, _form(FoundCluster))

    async def find_statements(self, brokers: Sequence[BrokerInfo]) -> FoundStatements:
        """Read what a new controller has to know of brokers' logs, at once."""

        async def find() -> FoundStatements:
            return FoundStatements(*await self._term.find_statements(brokers))

        return await self._record(
            "FindStatements",
            find,
            _form(FoundStatements),
            brokers=[b.id for b in brokers],
        )

    async def read_brokers(self) -> list[BrokerInfo]:
        """Read all registrations, with a watch on their coming and going."""
        term = self._term
        return await self._record(
            "ReadBrokers",
            lambda: term.store.get_all_brokers_in_cluster(term.watcher(happened.BrokersChanged())),
            _form(list[BrokerInfo]),
        )

    async def read_broker(self, broker: int) -> BrokerInfo | None:
        """Read a registration; None if it is gone."""
        store, form = self._term.store, _or_none(_form(BrokerInfo))
        return await self._record(
            "ReadBroker", lambda: store.get_broker(broker), form, broker=broker
        )

    async def watch_registrations(self, brokers: Sequence[int]) -> None:
        """Leave a watch on the data of brokers' registrations."""
        term = self._term
        by_path = {znodes.broker_path(b): b for b in brokers}
        await self._record_error(
            "WatchRegistrations",
            lambda: term.store.read_all(
                lambda path: term.store.session.exists(
                    path,
                    term.watcher(happened.BrokerModified(by_path[path]), WatchType.DATA_CHANGED),
                ),
                list(by_path),
            ),
        )

    async def remove_registration(self, broker: BrokerInfo, evidence: str) -> str | None:
        """Delete the registration of a broker whose process is gone; return why not."""

        async def remove() -> str | None:
            term = self._term
            problem = await term.store.remove_registration(
                broker,
                evidence,
                term.settings.controller_id,
                term.fence,
                any_broker=term.removes_unstated(broker),
            )
            self.removed_total += problem is None
            return problem

        return await self._record(
            "RemoveRegistration", remove, broker=broker.id, broker_epoch=broker.epoch
        )

    async def read_statements(self, brokers: Sequence[BrokerInfo]) -> Stated:
        """Read what these registrations state."""

        async def stated() -> Stated:
            whole, voiding = await self._term.store.get_stated(brokers)
            return Stated(tuple(sorted(whole)), tuple(sorted(voiding)))

        ids = [b.id for b in brokers]
        return await self._record("ReadStatements", stated, _form(Stated), brokers=ids)

    async def read_log_ends(self, wanted: Mapping[int, Sequence[TopicPartition]]) -> LogEnds:
        """Ask brokers where their logs end; those that do not respond are left out."""
        form: Form[LogEnds] = Form(
            lambda ends: {
                str(tp): {str(broker): end for broker, end in of.items()} for tp, of in ends.items()
            },
            _log_ends,
        )
        return await self._record(
            "ReadLogEnds",
            lambda: self._term.fetch_log_ends(wanted),
            form,
            **{str(broker): _names(tps) for broker, tps in wanted.items()},
        )

    # --- notifications of brokers -----------------------------------------------------------

    async def read_isr_changes(self) -> list[str]:
        """Read the names of the notifications of changed ISRs, with a watch."""
        term, event = self._term, happened.IsrChangesNotified()
        return await self._record(
            "ReadIsrChanges",
            lambda: term.store.get_all_isr_change_notifications(term.watcher(event)),
        )

    async def read_changed_partitions(self, names: Sequence[str]) -> list[TopicPartition]:
        """Read which partitions these notifications of changed ISRs name."""
        store = self._term.store
        return await self._record(
            "ReadChangedPartitions",
            lambda: store.get_partitions_from_isr_change_notifications(names),
            _PARTITIONS,
            names=names,
        )

    async def delete_isr_changes(self, names: Sequence[str]) -> None:
        """Delete these notifications of changed ISRs."""
        term = self._term
        await self._record(
            "DeleteIsrChanges",
            lambda: term.store.delete_isr_change_notifications(term.fence, names),
            names=names,
        )

    async def read_log_dir_events(self) -> list[str]:
        """Read the names of the notifications of failed log directories, with a watch."""
        term, event = self._term, happened.LogDirsFailed()
        return await self._record(
            "ReadLogDirEvents",
            lambda: term.store.get_all_log_dir_event_notifications(term.watcher(event)),
        )

    async def read_failed_brokers(self, names: Sequence[str]) -> list[int]:
        """Read which brokers these notifications of failed log directories name."""
        store = self._term.store
        return await self._record(
            "ReadFailedBrokers",
            lambda: store.get_broker_ids_from_log_dir_events(names),
            names=names,
        )

    async def delete_log_dir_events(self, names: Sequence[str]) -> None:
        """Delete these notifications of failed log directories."""
        term = self._term
        await self._record(
            "DeleteLogDirEvents",
            lambda: term.store.delete_log_dir_event_notifications(term.fence, names),
            names=names,
        )

    # --- topics -----------------------------------------------------------------------------

    async def read_topic_names(self, known: AbstractSet[str]) -> list[str]:
        """Read the names of all topics, with a watch; recorded is how they differ from `known`."""
        term, event = self._term, happened.TopicsChanged()

        def difference(names: list[str]) -> dict[str, list[str]]:
            new = [name for name in names if name not in known]
            return {"new": new, "gone": sorted(known - set(names))}

        return await self._record(
            "ReadTopicNames",
            lambda: term.store.get_all_topics_in_cluster(term.watcher(event)),
            Form(difference, lambda read: [*sorted(known - set(read["gone"])), *read["new"]]),
        )

    async def read_topics(self, names: Sequence[str]) -> list[FoundTopic]:
        """Read topics' znodes, each with a watch; those that are gone or malformed are left out."""

        async def topics() -> list[FoundTopic]:
            found = await self._term.store.get_and_watch_topics(
                names,
                lambda topic: self._term.watcher(
                    happened.PartitionsModified(topic), WatchType.DATA_CHANGED
                ),
            )
            return [FoundTopic(info, stat.czxid, stat.version) for info, stat in found]

        return await self._record("ReadTopics", topics, _form(list[FoundTopic]), topics=names)

    def ignore_topic(self, topic: str, problem: str) -> None:
        """Report a topic whose name cannot be that of a folder."""
        self._term.store.ignore(MalformedZnodeError(znodes.topic_path(topic)[:300], problem[-200:]))

    async def write_topic(self, info: TopicInfo) -> None:
        """Write a topic's znode as a whole."""
        term = self._term
        await self._record(
            "WriteTopic",
            lambda: term.store.set_topic_assignment(info.name, info, term.fence),
            topic=info.name,
            partitions=list(info.assignment),
        )

    async def write_topic_id(self, info: TopicInfo, version: int) -> bool:
        """Write a topic with its id over the version that was read; return False if it is gone.

        Where another client wrote it meanwhile, the watch that was left with the read brings us
        back.
        """

        async def write() -> bool:
            term = self._term
            try:
                await term.store.set_topic_assignment(info.name, info, term.fence, version)
            except NoNodeError:
                return False
            except BadVersionError:
                logger.info(
                    "topic id not written topic=%s reason=written by another client", info.name
                )
            return True

        return await self._record(
            "WriteTopicId", write, topic=info.name, id=info.topic_id, version=version
        )

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

        async def write() -> bool:
            try:
                await self._term.store.update_topic_assignment(topic, change, self._term.fence)
            except (NoNodeError, BadVersionError) as error:
                logger.warning("assignment not written topic=%s error=%s", topic, error)
                return False
            return True

        return await self._record("WriteAssignments", write, topic=topic, partitions={**partitions})

    async def read_topic_id_notes(self, topics: Sequence[str]) -> Mapping[str, TopicIdNote]:
        """Read what /ottla/topic_ids says of topics."""
        store, form = self._term.store, _form(dict[str, TopicIdNote])
        return await self._record(
            "ReadTopicIdNotes", lambda: store.get_topic_id_notes(topics), form, topics=topics
        )

    async def write_topic_id_notes(self, notes: Mapping[str, TopicIdNote]) -> None:
        """Write into /ottla/topic_ids what is to be said of topics."""
        term = self._term
        await self._record(
            "WriteTopicIdNotes",
            lambda: term.store.set_topic_id_notes(notes, term.fence),
            topics=list(notes),
        )

    async def read_topic_ids_here(self, topics: Sequence[str]) -> Mapping[str, AbstractSet[bytes]]:
        """Return the ids that this broker knows topics by: on its disks, else in its metadata."""

        async def here() -> Mapping[str, AbstractSet[bytes]]:
            known = self._term.known_topic_ids()
            return {topic: known[topic] for topic in topics if topic in known}

        form: Form[Mapping[str, AbstractSet[bytes]]] = Form(
            lambda found: {topic: sorted(ids) for topic, ids in found.items()},
            lambda recorded: msgspec.convert(recorded, dict[str, set[bytes]]),
        )
        return await self._record("ReadTopicIdsHere", here, form, topics=topics)

    async def draw_topic_id(self) -> bytes:
        """Return a new topic id, drawn at random."""

        async def draw() -> bytes:
            topic_id = self._term.world.random.randbytes(16)
            while not is_usable_uuid(topic_id):
                topic_id = self._term.world.random.randbytes(16)
            return topic_id

        return await self._record("DrawTopicId", draw, _form(bytes))

    async def read_topic_deletions(self) -> list[str]:
        """Read which topics' deletion is requested, with a watch."""
        term, event = self._term, happened.TopicDeletionsRequested()
        return await self._record(
            "ReadTopicDeletions", lambda: term.store.get_topic_deletions(term.watcher(event))
        )

    async def delete_topic_deletions(self, topics: Sequence[str]) -> None:
        """Delete /admin/delete_topics/TOPIC of each topic."""
        term = self._term
        await self._record(
            "DeleteTopicDeletions",
            lambda: term.store.delete_topic_deletions(topics, term.fence),
            topics=topics,
        )

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic's znodes: its own and all below, the note of its id, its settings."""
        term = self._term

        async def delete() -> None:
            await term.store.delete_topic_znode(topic, term.fence)
            await term.store.delete_topic_id_note(topic, term.fence)

        await self._record("DeleteTopicZnode", delete, topic=topic)
        await self._record(
            "DeleteTopicConfig",
            lambda: term.store.delete_topic_configs([topic], term.fence),
            topic=topic,
        )

    # --- settings ---------------------------------------------------------------------------

    async def read_unclean_topics(self, topics: Sequence[str]) -> Mapping[str, bool]:
        """Read which topics allow unclean elections."""

        async def unclean() -> dict[str, bool]:
            configs = await self._term.store.get_entities_configs("topics", topics)
            default = "true" if self._term.unclean_by_default() else "false"
            return {
                topic: configs[topic].get(UNCLEAN_ELECTION, default).lower() == "true"
                for topic in topics
            }

        return await self._record("ReadUncleanTopics", unclean, topics=topics)

    async def read_min_isr(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Read topics' min.insync.replicas; where one has none, this broker's default counts."""
        term = self._term
        return await self._record(
            "ReadMinIsr",
            lambda: term.store.get_min_isr(topics, term.min_isr_by_default()),
            topics=topics,
        )

    async def read_features(self) -> tuple[znodes.Features, int] | None:
        """Read /feature and its version, creating it where it is absent; None: not readable.

        One that cannot be read stays for a person to look at: the controller needs nothing from it
        (F41).
        """

        async def features() -> tuple[znodes.Features, int] | None:
            store = self._term.store
            try:
                return await store.get_or_create_feature(znodes.Features(enabled=True, levels={}))
            except MalformedZnodeError as error:
                store.ignore(error)
                return None

        form = _or_none(_form(tuple[znodes.Features, int]))
        return await self._record("ReadFeatures", features, form)

    async def write_features(self, features: znodes.Features, version: int) -> None:
        """Write /feature over the version that was read."""

        async def write() -> None:
            await self._term.store.update_feature(features, version)

        await self._record("WriteFeatures", write, features=features, version=version)

    # --- eligible replicas (adr/0007) -------------------------------------------------------

    async def read_all_eligible(
        self, topic_ids: Mapping[str, bytes]
    ) -> Mapping[TopicPartition, Eligible]:
        """Read all records of eligible replicas of these topics."""
        store = self._term.store
        return await self._record_error("ReadAllEligible", lambda: store.get_eligible(topic_ids))

    async def read_standing_eligible(
        self, records: Mapping[TopicPartition, Eligible]
    ) -> set[TopicPartition]:
        """Read which of these records are still in ZooKeeper as they were written.

        A leader deletes a record before it acknowledges without the replicas that it names.
        """
        store = self._term.store
        form: Form[set[TopicPartition]] = Form(
            lambda standing: [str(tp) for tp in records if tp in standing],
            lambda recorded: {partition_of(text) for text in recorded},
        )
        return await self._record(
            "ReadStandingEligible",
            lambda: store.get_standing_eligible(records),
            form,
            partitions=_names(records),
        )

    async def write_eligible(
        self, records: Mapping[TopicPartition, Eligible]
    ) -> Mapping[TopicPartition, Eligible]:
        """Write who may lead besides the ISR; return the records that stand."""
        term = self._term
        form: Form[Mapping[TopicPartition, Eligible]] = Form(
            lambda found: {str(tp): record.znode_version for tp, record in found.items()},
            lambda recorded: {
                (tp := partition_of(text)): replace(records[tp], znode_version=version)
                for text, version in recorded.items()
            },
        )
        return await self._record(
            "WriteEligible",
            lambda: term.store.set_eligible(records, term.fence),
            form,
            records={
                str(tp): (r.partition_epoch, r.min_isr, r.broker_epochs)
                for tp, r in records.items()
            },
        )

    async def delete_eligible(self, partitions: Sequence[TopicPartition]) -> None:
        """Delete records of who may lead besides the ISR."""
        term = self._term
        await self._record(
            "DeleteEligible",
            lambda: term.store.delete_eligible(partitions, term.fence),
            partitions=_names(partitions),
        )

    async def delete_eligible_of_topic(self, topic: str) -> None:
        """Delete all such records of a topic."""
        term = self._term
        await self._record(
            "DeleteEligibleOfTopic",
            lambda: term.store.delete_eligible_of_topic(topic, term.fence),
            topic=topic,
        )

    # --- requests in /admin, and producer ids -----------------------------------------------

    async def read_reassignments(self, *, watch: bool = False) -> Targets | None:
        """Read what /admin/reassign_partitions requests; None if there is no such znode.

        `watch`: and leave a watch on it.
        """

        async def read() -> Targets | None:
            term = self._term
            callback = term.watcher(happened.ReassignmentRequested()) if watch else None
            if not await term.store.reassign_partitions_in_progress(callback):
                return None
            return await term.store.get_partition_reassignment()

        return await self._record("ReadReassignments", read, _or_none(Form(_by_name, _targets)))

    async def write_reassignments(self, left: Targets) -> None:
        """Leave only these requests in /admin/reassign_partitions; without any, delete it."""

        async def write() -> None:
            store, fence = self._term.store, self._term.fence
            if not left:
                await store.delete_partition_reassignment(fence)
                return
            try:
                await store.set_or_create_partition_reassignment(left, fence)
            except NoNodeError:
                logger.info("the requests for reassignment were removed by another client")

        await self._record("WriteReassignments", write, left=_by_name(left))

    async def read_preferred_election(self) -> list[TopicPartition] | None:
        """Read what /admin/preferred_replica_election requests, with a watch; None: nothing."""

        async def read() -> list[TopicPartition] | None:
            term = self._term
            watch = term.watcher(happened.PreferredElectionRequested())
            if not await term.store.watch_exists(znodes.PREFERRED_REPLICA_ELECTION, watch):
                return None
            return await term.store.get_preferred_replica_election()

        return await self._record("ReadPreferredElection", read, _or_none(_PARTITIONS))

    async def delete_preferred_election(self) -> None:
        """Delete /admin/preferred_replica_election."""
        term = self._term
        await self._record(
            "DeletePreferredElection",
            lambda: term.store.delete_preferred_replica_election(term.fence),
        )

    async def allocate_producer_ids(self, broker: int) -> tuple[int, int]:
        """Take the next block of producer ids for a broker; return the first and the last."""

        async def allocate() -> tuple[int, int]:
            block = await self._term.store.allocate_producer_ids(broker)
            return block.first, block.last

        form = _form(tuple[int, int])
        return await self._record("AllocateProducerIds", allocate, form, broker=broker)
