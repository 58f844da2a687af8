"""Effects: what a procedure wants done, as values; the driver does it and sends the result back.

A decider's vocabulary. Who may call: the procedures make them, `driver` performs them, `explain`
takes their results from a journal. A procedure is a generator: `result = yield from
perform(effect)`. It holds no socket, no ZooKeeper and no clock, and it never waits: the driver
does.

Invariants: every write is fenced by the driver with the version of /controller_epoch; an effect
that fails is raised inside the procedure; what an effect was answered stands in the journal,
either in an `EffectPerformed` line (`arguments`, `to_journal`, `from_journal`) or, for the states
of partitions, in the lines of the decisions made from them.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from ottla.controller.batch import RequestBatch
from ottla.controller.elections import LogEnd
from ottla.controller.events import Event
from ottla.controller.plan import Decision
from ottla.controller.states import PartitionReplica
from ottla.model.cluster import (
    BrokerInfo,
    Eligible,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import ClusterFacts, TopicFacts, partition_of
from ottla.model.journal_schema import Event as JournalEvent
from ottla.model.state_machine import InvalidTransition

EffectResult = TypeVar("EffectResult")
Result = TypeVar("Result")

INFO, WARNING, ERROR = 20, 30, 40
"""Levels of `Log`, as `logging` has them."""

States = Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
Isr = tuple[int, ...]
Targets = Mapping[TopicPartition, tuple[int, ...]]
Change = tuple[TopicPartition | PartitionReplica, str, str]
"""A partition or replica, its state before and after."""


class Effect(msgspec.Struct, Generic[EffectResult], frozen=True):
    """Something to be done. Those that are `recorded` have their result in the journal."""

    recorded: ClassVar[bool] = False

    def arguments(self) -> dict[str, Any]:
        """Return what is asked, as JSON."""
        return {}

    def to_journal(self, result: EffectResult) -> Any:
        """Return a response as JSON."""
        return result

    def from_journal(self, recorded: Any) -> EffectResult:
        """Return the result that `to_journal` wrote."""
        result: EffectResult = recorded
        return result


Steps = Generator[Effect[Any], Any, Result]
"""A procedure: it yields effects, is sent their results, and returns a result."""


def perform(effect: Effect[EffectResult]) -> Steps[EffectResult]:
    """Have one effect done and return its result, typed."""
    result: EffectResult = yield effect
    return result


# --- the loop, time and logs --------------------------------------------------------------------


class YieldToLoop(Effect[None], frozen=True):
    """Let the event loop do what has become due: a slice of a long step is over."""


YIELD = YieldToLoop()


class StartTimer(Effect[None], frozen=True):
    """Queue an event after a while."""

    delay_s: float
    event: Event


class CheckController(Effect[None], frozen=True):
    """A state was found that a newer controller wrote: look who the controller is."""


class Log(Effect[None], frozen=True):
    """A log line of a module of this room; `%` arguments."""

    module: str
    level: int
    text: str
    values: tuple[Any, ...]


class Logger:
    """Makes log lines of one module, to be yielded."""

    def __init__(self, module: str) -> None:
        self._module = module

    def info(self, text: str, *values: Any) -> Log:
        return Log(self._module, INFO, text, values)

    def warning(self, text: str, *values: Any) -> Log:
        return Log(self._module, WARNING, text, values)

    def error(self, text: str, *values: Any) -> Log:
        return Log(self._module, ERROR, text, values)


class LogRefusals(Effect[None], frozen=True):
    """State changes that are not legal; also a line of state-change.log each."""

    refusals: Sequence[InvalidTransition]


# --- the journal --------------------------------------------------------------------------------


class Record(Effect[None], frozen=True):
    """Write an event into the journal."""

    event: JournalEvent


class RecordChanges(Effect[None], frozen=True):
    """Write state changes and decisions into the journal that no broker is sent."""

    changes: Sequence[Change]
    decisions: Sequence[tuple[Decision, str]]


class RecordSnapshot(Effect[int], frozen=True):
    """Write a part of the context into the journal; the response is its size in bytes."""

    part: str
    facts: ClusterFacts | TopicFacts


class EndSnapshot(Effect[None], frozen=True):
    """A snapshot of so many bytes is complete: the journal is to have room for several."""

    size: int


# --- brokers ------------------------------------------------------------------------------------


class Send(Effect[None], frozen=True):
    """Queue a batch's requests for the brokers, then write down what changed and was decided."""

    batch: RequestBatch
    changes: Sequence[Change]
    decisions: Sequence[tuple[Decision, str]]


class OpenChannel(Effect[None], frozen=True):
    """Begin to deliver requests to a broker."""

    broker: BrokerInfo


class CloseChannel(Effect[None], frozen=True):
    """Drop a broker's channel and what is queued in it."""

    broker: int


class Respond(Effect[None], frozen=True):
    """Respond to the request that is being handled, before the procedure ends."""

    response: Any


class ReadLogEnds(Effect[Mapping[TopicPartition, Mapping[int, LogEnd]]], frozen=True):
    """Ask brokers where their logs of partitions end; those that do not respond are left out."""

    wanted: Mapping[int, Sequence[TopicPartition]]
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {str(b): [str(tp) for tp in tps] for b, tps in self.wanted.items()}

    def to_journal(self, result: Mapping[TopicPartition, Mapping[int, LogEnd]]) -> Any:
        return {str(tp): {str(b): end for b, end in ends.items()} for tp, ends in result.items()}

    def from_journal(self, recorded: Any) -> Mapping[TopicPartition, Mapping[int, LogEnd]]:
        return {
            partition_of(tp): {int(b): (end[0], end[1]) for b, end in ends.items()}
            for tp, ends in recorded.items()
        }


class RemoveRegistration(Effect[str | None], frozen=True):
    """Delete the registration of a broker whose process is gone; the result says why not."""

    broker: BrokerInfo
    evidence: str
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"broker": self.broker.id, "broker_epoch": self.broker.epoch}


class WatchRegistrations(Effect[None], frozen=True):
    """Leave a watch on the data of brokers' registrations."""

    brokers: Sequence[int]


class Stated(msgspec.Struct, frozen=True):
    """What brokers state with their registrations, each as a sorted tuple of broker ids."""

    whole: tuple[int, ...] = ()
    """They started with all logs whole."""
    voiding: tuple[int, ...] = ()
    """As leaders they void the record of eligible replicas before they acknowledge without them."""


class ReadStatements(Effect[Stated], frozen=True):
    """Read what these registrations state."""

    brokers: Sequence[BrokerInfo]
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"brokers": [b.id for b in self.brokers]}

    def to_journal(self, result: Stated) -> Any:
        return result

    def from_journal(self, recorded: Any) -> Stated:
        return msgspec.convert(recorded, Stated)


# --- states of partitions: results are in the lines of decisions ----------------------------------


class ReadStates(Effect[States], frozen=True):
    """Read partitions' states to decide from; those without a readable state are left out."""

    partitions: Sequence[TopicPartition]


class UpdateResult(msgspec.Struct):
    """What became of an update.

    `finished` has the new state (with its new partition epoch) or the error, `retry` those whose
    state had changed meanwhile.
    """

    finished: dict[TopicPartition, LeaderAndIsr | OttlaError]
    retry: list[TopicPartition]


class CreateStates(Effect[Mapping[TopicPartition, OttlaError | None]], frozen=True):
    """Create partitions' first states; the response has the error, or None, of each."""

    states: States


class UpdateStates(Effect[UpdateResult], frozen=True):
    """Write states, each over the partition epoch it was decided from.

    `newcomers`: broker epochs of those whom a state lets into an ISR; it is an error if one of them
    has registered anew by the moment of the write. `records`: the znode versions of the records of
    eligible replicas that elections rest on; one that has changed by then is decided once more.
    """

    states: Mapping[TopicPartition, LeaderAndIsr]
    newcomers: Mapping[TopicPartition, Mapping[int, int]] = {}
    records: Mapping[TopicPartition, int] = {}


# --- other reads --------------------------------------------------------------------------------


class ReadIsrs(Effect[Mapping[TopicPartition, Isr]], frozen=True):
    """Read the ISR of each partition; those without a state are left out."""

    partitions: Sequence[TopicPartition]
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"partitions": [str(tp) for tp in self.partitions]}

    def to_journal(self, result: Mapping[TopicPartition, Isr]) -> Any:
        return {str(tp): isr for tp, isr in result.items()}

    def from_journal(self, recorded: Any) -> Mapping[TopicPartition, Isr]:
        return {partition_of(tp): tuple(isr) for tp, isr in recorded.items()}


class ReadUncleanTopics(Effect[Mapping[str, bool]], frozen=True):
    """Read which topics allow unclean elections."""

    topics: Sequence[str]
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"topics": list(self.topics)}

    def to_journal(self, result: Mapping[str, bool]) -> Any:
        return dict(result)


class ReadMinIsr(Effect[Mapping[str, int]], frozen=True):
    """Read topics' min.insync.replicas. Where a topic has none, this broker's default counts."""

    topics: Sequence[str]
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"topics": list(self.topics)}

    def to_journal(self, result: Mapping[str, int]) -> Any:
        return dict(result)


class ReadStandingEligible(Effect[set[TopicPartition]], frozen=True):
    """Read which of these records are still in ZooKeeper as they were written.

    A leader deletes a record before it acknowledges without the replicas that it names.
    """

    records: Mapping[TopicPartition, Eligible]
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"partitions": [str(tp) for tp in self.records]}

    def to_journal(self, result: set[TopicPartition]) -> Any:
        return [str(tp) for tp in self.records if tp in result]

    def from_journal(self, recorded: Any) -> set[TopicPartition]:
        return {partition_of(text) for text in recorded}


class ReadReassignments(Effect[Targets | None], frozen=True):
    """Read what /admin/reassign_partitions requests; None if there is no such znode.

    `watch`: and leave a watch on it.
    """

    watch: bool = False
    recorded = True

    def to_journal(self, result: Targets | None) -> Any:
        return None if result is None else {str(tp): target for tp, target in result.items()}

    def from_journal(self, recorded: Any) -> Targets | None:
        if recorded is None:
            return None
        return {partition_of(tp): tuple(target) for tp, target in recorded.items()}


# --- other writes -------------------------------------------------------------------------------


class WriteAssignments(Effect[bool], frozen=True):
    """Write some partitions' assignments into their topic's znode; False: it is gone.

    Partitions of the znode that are not named stay as they are; `known` stands in for a znode
    that cannot be read.
    """

    topic: str
    partitions: Mapping[int, ReplicaAssignment]
    known: TopicInfo
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"topic": self.topic, "partitions": {str(p): a for p, a in self.partitions.items()}}


class WriteTopic(Effect[None], frozen=True):
    """Write a topic's znode as a whole."""

    info: TopicInfo
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"topic": self.info.name, "partitions": list(self.info.assignment)}


class WriteReassignments(Effect[None], frozen=True):
    """Leave only these requests in /admin/reassign_partitions; without any, delete it."""

    left: Targets
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"left": {str(tp): target for tp, target in self.left.items()}}


class DeleteTopicZnode(Effect[None], frozen=True):
    """Delete /brokers/topics/TOPIC and all below it."""

    topic: str
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"topic": self.topic}


class DeleteTopicConfig(Effect[None], frozen=True):
    """Delete /config/topics/TOPIC."""

    topic: str
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"topic": self.topic}


class DeleteTopicDeletions(Effect[None], frozen=True):
    """Delete /admin/delete_topics/TOPIC of each topic."""

    topics: Sequence[str]
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"topics": list(self.topics)}


class WriteEligible(Effect[Mapping[TopicPartition, Eligible]], frozen=True):
    """Write who may lead besides the ISR; the response has the records that stand."""

    records: Mapping[TopicPartition, Eligible]
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {
            "records": {
                str(tp): (r.partition_epoch, r.min_isr, r.broker_epochs)
                for tp, r in self.records.items()
            }
        }

    def to_journal(self, result: Mapping[TopicPartition, Eligible]) -> Any:
        return {str(tp): record.znode_version for tp, record in result.items()}

    def from_journal(self, recorded: Any) -> Mapping[TopicPartition, Eligible]:
        return {
            partition_of(text): msgspec.structs.replace(
                self.records[partition_of(text)], znode_version=version
            )
            for text, version in recorded.items()
        }


class DeleteEligible(Effect[None], frozen=True):
    """Delete records of who may lead besides the ISR."""

    partitions: Sequence[TopicPartition]
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"partitions": [str(tp) for tp in self.partitions]}


class DeleteEligibleOfTopic(Effect[None], frozen=True):
    """Delete all such records of a topic."""

    topic: str
    recorded = True

    def arguments(self) -> dict[str, Any]:
        return {"topic": self.topic}
