"""Driver: performs the effects of procedures, one after another, in slices, and fenced.

Who may call: `term`. Invariants: the only place where a procedure meets ZooKeeper, channels, the
journal, timers and logs; every write is checked against the version of /controller_epoch; an
effect that fails is recorded and raised inside its procedure; requests are queued before anything
of them is written into the journal; where a procedure fails, what it has changed is still recorded.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from ottla.controller import effects as e
from ottla.controller.batch import Outgoing
from ottla.controller.context import Context
from ottla.controller.effects import Effect, Steps, YieldToLoop
from ottla.controller.elections import ElectionKind, LogEnd
from ottla.controller.eligibility import Eligibility
from ottla.controller.events import BrokerModified, ControllerChanged, Event, ReassignmentRequested
from ottla.controller.journal import Journal
from ottla.controller.plan import Decision
from ottla.controller.state_change_logger import StateChangeLogger
from ottla.controller.state_changes import CHANGES_A_LINE, Settings, StateChanges, slices
from ottla.model import journal_schema as journaled
from ottla.model.cluster import RECOVERING, BrokerInfo, Eligible, ReplicaAssignment, TopicInfo
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.time_slices import yield_to_loop
from ottla.zookeeper import znodes
from ottla.zookeeper.errors import BadVersionError, NoNodeError
from ottla.zookeeper.store import Store
from ottla.zookeeper.watches import WatchCallback, WatchType

logger = logging.getLogger(__name__)

T = TypeVar("T")
Procedure = Callable[[StateChanges], Steps[T]]
FetchLogEnds = Callable[
    [Mapping[int, Sequence[TopicPartition]]],
    Awaitable[Mapping[TopicPartition, Mapping[int, LogEnd]]],
]
_ELECTIONS = {kind.value for kind in ElectionKind}
_ROOM = __name__.rpartition(".")[0]


class Channels(Protocol):
    """What requests are queued in; `channels.Channels` is one."""

    def add(self, broker: BrokerInfo) -> None: ...

    def remove(self, broker_id: int) -> None: ...

    def send(self, request: Outgoing) -> None: ...


class Surroundings(Protocol):
    """What else a term has for its driver; `term.ControllerTerm` is one."""

    def watcher(self, event: Event, *types: WatchType) -> WatchCallback: ...

    def start_timer(self, delay_s: float, event: Event) -> None: ...

    def post_first(self, event: Event) -> None: ...

    def removes_unstated(self, broker: BrokerInfo) -> bool: ...

    def unclean_by_default(self) -> bool: ...

    def min_isr_by_default(self) -> int: ...


class Driver:
    """One term's. `run` has a procedure done for the event with the id `cause`."""

    def __init__(
        self,
        context: Context,
        settings: Settings,
        store: Store,
        journal: Journal,
        channels: Channels,
        surroundings: Surroundings,
        fetch_log_ends: FetchLogEnds | None = None,
    ) -> None:
        self.elections = Counter[str]()
        """Partitions that got a leader by an election, by the kind of election."""
        self.unclean_total = 0
        """Those of them whose leader was not in the ISR: records may be lost."""
        self.removed_total = 0
        """Registrations that were removed because the broker's process was gone."""
        self._context = context
        self._settings = settings
        self._eligibility = Eligibility(context, enabled=settings.eligible_replicas)
        self._store = store
        self._journal = journal
        self._channels = channels
        self._surroundings = surroundings
        self._fetch_log_ends = fetch_log_ends
        self._state_change_logger = StateChangeLogger(context, settings.controller_id)
        self._perform: dict[type[Effect[Any]], Callable[[int, Any], Awaitable[Any]]] = {
            e.CreateStates: self._create_states,
            e.UpdateStates: self._update_states,
            e.ReadStates: self._read_states,
            e.Send: self._send,
            e.RecordChanges: self._record_changes,
            e.ReadLogEnds: self._read_log_ends,
            e.WatchRegistrations: self._watch_registrations,
            e.RemoveRegistration: self._remove_registration,
            e.ReadStatements: self._read_statements,
            e.ReadIsrs: self._read_isrs,
            e.ReadUncleanTopics: self._read_unclean_topics,
            e.ReadMinIsr: self._read_min_isr,
            e.ReadStandingEligible: self._read_standing_eligible,
            e.ReadReassignments: self._read_reassignments,
            e.WriteAssignments: self._write_assignments,
            e.WriteTopic: self._write_topic,
            e.WriteReassignments: self._write_reassignments,
            e.DeleteTopicZnode: self._delete_topic_znode,
            e.DeleteTopicConfig: self._delete_topic_config,
            e.DeleteTopicDeletions: self._delete_topic_deletions,
            e.WriteEligible: self._write_eligible,
            e.DeleteEligible: self._delete_eligible,
            e.DeleteEligibleOfTopic: self._delete_eligible_of_topic,
        }

    @property
    def _fence(self) -> int:
        return self._context.epoch_zk_version

    async def run(
        self,
        cause: int,
        procedure: Procedure[T],
        respond: Callable[[Any], None] = lambda _response: None,
    ) -> T:
        """Do a procedure to its end and return its result; raise what it does not handle.

        `respond` takes the response of a procedure that responds before its end.
        """
        changes = StateChanges(self._context, self._settings, self._eligibility, cause)
        steps = procedure(changes)
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, YieldToLoop):
                    await yield_to_loop()
                    effect = steps.send(None)
                elif isinstance(effect, e.Respond):
                    respond(effect.response)
                    effect = steps.send(None)
                elif type(effect) in self._perform:
                    try:
                        outcome = await self._perform_one(cause, effect)
                    except OttlaError as error:
                        effect = steps.throw(error)
                    else:
                        effect = steps.send(outcome)
                else:
                    effect = steps.send(self._at_once(cause, effect))
        except StopIteration as end:
            result: T = end.value
            return result
        except Exception:
            self._record(cause, *changes.take_unrecorded())
            raise

    async def _perform_one(self, cause: int, effect: Effect[Any]) -> Any:
        """Perform an effect that may take time, and record its response or its error."""
        try:
            result = await self._perform[type(effect)](cause, effect)
        except OttlaError as error:
            self._record_effect(cause, effect, error=f"{type(error).__name__}: {error}")
            raise
        if effect.recorded:
            self._record_effect(cause, effect, result=effect.to_journal(result))
        return result

    def _record_effect(
        self, cause: int, effect: Effect[Any], result: Any = None, error: str | None = None
    ) -> None:
        arguments = effect.arguments() or None
        name = type(effect).__name__
        self._journal.event(
            cause,
            journaled.EffectPerformed(effect=name, arguments=arguments, result=result, error=error),
        )

    def _at_once(self, cause: int, effect: Effect[Any]) -> Any:
        """Perform an effect that takes no time."""
        match effect:
            case e.Record(event):
                self._journal.event(cause, event)
            case e.RecordSnapshot(part, facts):
                return self._journal.snapshot(cause, part, facts)
            case e.EndSnapshot(size):
                self._journal.snapshot_ended(size)
            case e.Log(module, level, text, values):
                logging.getLogger(f"{_ROOM}.{module}").log(level, text, *values)
            case e.LogRefusals(refusals):
                for refused in refusals:
                    logger.error(
                        "transition refused controller_epoch=%d reason=%s",
                        self._context.epoch,
                        refused,
                    )
                self._state_change_logger.refused(refusals)
            case e.StartTimer(delay_s, event):
                self._surroundings.start_timer(delay_s, event)
            case e.CheckController():
                self._surroundings.post_first(ControllerChanged())
            case e.OpenChannel(broker):
                self._channels.add(broker)
            case e.CloseChannel(broker_id):
                self._channels.remove(broker_id)
            case _:
                raise TypeError(f"no driver for {type(effect).__name__}")
        return None

    # --- requests and the journal -----------------------------------------------------------

    async def _send(self, cause: int, effect: e.Send) -> None:
        """Queue a batch's requests, then write down what changed, was decided and sent.

        Those to the controller's own broker come last: while this process handles them, it sends
        nothing to the others.
        """
        sent, own = [], []
        for request in effect.batch.requests():
            if request is not None:
                sent.append(request)
                if request.broker == self._settings.controller_id:
                    own.append(request)
                else:
                    self._channels.send(request)
            await yield_to_loop()
        for request in own:
            self._channels.send(request)
        await self._record_changes(cause, effect)
        for request in sent:
            self._journal.request(cause, request.broker, request.api_key, request.summary)
        self._state_change_logger.sent(sent)

    async def _record_changes(self, cause: int, effect: e.Send | e.RecordChanges) -> None:
        for changes in slices(effect.changes, CHANGES_A_LINE):
            self._journal.state_changes(cause, changes)
            # In slices also where the level is off: a log level must not change what runs when.
            for few in slices(changes):
                self._state_change_logger.changed(few)
                await yield_to_loop()
        for some in slices(effect.decisions):
            self._record(cause, (), some)
            await yield_to_loop()

    def _record(
        self, cause: int, changes: Sequence[e.Change], decisions: Sequence[tuple[Decision, str]]
    ) -> None:
        if changes:
            self._journal.state_changes(cause, changes)
        for decision, outcome in decisions:
            self._journal.decision(cause, decision, outcome)
            if outcome == "written" and decision.kind in _ELECTIONS:
                self._count(decision)

    def _count(self, decision: Decision) -> None:
        before, after = decision.before, decision.after
        assert before is not None
        assert after is not None
        if after.leader_epoch != before.leader_epoch:
            self.elections[decision.kind] += 1
            self.unclean_total += (
                after.recovery_state == RECOVERING and after.leader not in before.isr
            )

    # --- states of partitions ---------------------------------------------------------------

    async def _read_states(self, _cause: int, effect: e.ReadStates) -> e.States:
        return await self._store.get_topic_partition_states(effect.partitions)

    async def _create_states(
        self, _cause: int, effect: e.CreateStates
    ) -> Mapping[TopicPartition, OttlaError | None]:
        return await self._store.create_topic_partition_states(effect.states, self._fence)

    async def _update_states(self, _cause: int, effect: e.UpdateStates) -> e.UpdateResult:
        result = await self._store.update_leader_and_isr(
            effect.states, self._context.epoch, self._fence, effect.newcomers, effect.records
        )
        return e.UpdateResult({**result.finished}, result.retry)

    # --- reads ------------------------------------------------------------------------------

    async def _read_log_ends(
        self, _cause: int, effect: e.ReadLogEnds
    ) -> Mapping[TopicPartition, Mapping[int, LogEnd]]:
        return {} if self._fetch_log_ends is None else await self._fetch_log_ends(effect.wanted)

    async def _watch_registrations(self, _cause: int, effect: e.WatchRegistrations) -> None:
        by_path = {znodes.broker_path(b): b for b in effect.brokers}
        watcher = self._surroundings.watcher
        await self._store.read_all(
            lambda path: self._store.session.exists(
                path, watcher(BrokerModified(by_path[path]), WatchType.DATA_CHANGED)
            ),
            list(by_path),
        )

    async def _remove_registration(self, _cause: int, effect: e.RemoveRegistration) -> str | None:
        problem = await self._store.remove_registration(
            effect.broker,
            effect.evidence,
            self._settings.controller_id,
            self._fence,
            any_broker=self._surroundings.removes_unstated(effect.broker),
        )
        self.removed_total += problem is None
        return problem

    async def _read_statements(self, _cause: int, effect: e.ReadStatements) -> e.Stated:
        return e.Stated(*(tuple(sorted(s)) for s in await self._store.get_stated(effect.brokers)))

    async def _read_isrs(
        self, _cause: int, effect: e.ReadIsrs
    ) -> dict[TopicPartition, tuple[int, ...]]:
        states = await self._store.get_topic_partition_states(effect.partitions)
        return {tp: state.leader_and_isr.isr for tp, state in states.items()}

    async def _read_unclean_topics(
        self, _cause: int, effect: e.ReadUncleanTopics
    ) -> dict[str, bool]:
        configs = await self._store.get_entities_configs("topics", effect.topics)
        default = "true" if self._surroundings.unclean_by_default() else "false"
        return {
            topic: configs[topic].get("unclean.leader.election.enable", default).lower() == "true"
            for topic in effect.topics
        }

    async def _read_min_isr(self, _cause: int, effect: e.ReadMinIsr) -> dict[str, int]:
        default = self._surroundings.min_isr_by_default()
        return await self._store.get_min_isr(effect.topics, default)

    async def _read_standing_eligible(
        self, _cause: int, effect: e.ReadStandingEligible
    ) -> set[TopicPartition]:
        return await self._store.get_standing_eligible(effect.records)

    async def _read_reassignments(
        self, _cause: int, effect: e.ReadReassignments
    ) -> dict[TopicPartition, tuple[int, ...]] | None:
        watch = self._surroundings.watcher(ReassignmentRequested()) if effect.watch else None
        if not await self._store.reassign_partitions_in_progress(watch):
            return None
        return await self._store.get_partition_reassignment()

    # --- writes -----------------------------------------------------------------------------

    async def _write_assignments(self, _cause: int, effect: e.WriteAssignments) -> bool:
        news: Mapping[int, ReplicaAssignment] = effect.partitions

        def change(found: TopicInfo | None) -> TopicInfo:
            info = found or effect.known
            if info.topic_id is None:  # an old tool wrote it (KAFKA-14190)
                info = replace(info, topic_id=effect.known.topic_id)
            return replace(info, assignment={**info.assignment, **news})

        try:
            await self._store.update_topic_assignment(effect.topic, change, self._fence)
        except (NoNodeError, BadVersionError) as error:
            logger.warning("assignment not written topic=%s error=%s", effect.topic, error)
            return False
        return True

    async def _write_topic(self, _cause: int, effect: e.WriteTopic) -> None:
        await self._store.set_topic_assignment(effect.info.name, effect.info, self._fence)

    async def _write_reassignments(self, _cause: int, effect: e.WriteReassignments) -> None:
        if not effect.left:
            await self._store.delete_partition_reassignment(self._fence)
            return
        try:
            await self._store.set_or_create_partition_reassignment(effect.left, self._fence)
        except NoNodeError:
            logger.info("the requests for reassignment were removed by another client")

    async def _delete_topic_znode(self, _cause: int, effect: e.DeleteTopicZnode) -> None:
        await self._store.delete_topic_znode(effect.topic, self._fence)
        await self._store.delete_topic_id_note(effect.topic, self._fence)

    async def _delete_topic_config(self, _cause: int, effect: e.DeleteTopicConfig) -> None:
        await self._store.delete_topic_configs([effect.topic], self._fence)

    async def _delete_topic_deletions(self, _cause: int, effect: e.DeleteTopicDeletions) -> None:
        await self._store.delete_topic_deletions(effect.topics, self._fence)

    async def _write_eligible(
        self, _cause: int, effect: e.WriteEligible
    ) -> dict[TopicPartition, Eligible]:
        return await self._store.set_eligible(effect.records, self._fence)

    async def _delete_eligible(self, _cause: int, effect: e.DeleteEligible) -> None:
        await self._store.delete_eligible(effect.partitions, self._fence)

    async def _delete_eligible_of_topic(self, _cause: int, effect: e.DeleteEligibleOfTopic) -> None:
        await self._store.delete_eligible_of_topic(effect.topic, self._fence)
