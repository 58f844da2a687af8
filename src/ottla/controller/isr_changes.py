"""ISR changes: validates the ISRs that leaders propose (AlterPartition, KIP-497).

A decider. Invariants: the broker must have the epoch we know (R8); no replica enters the ISR whose
broker is offline or shutting down (R9, KIP-841), nor one by what its broker had in an earlier
registration (KIP-903); a repeated request gets the same response; a request from the past is
refused, one from the future means that we are no longer the controller. What passes is still only a
proposal: the write compares and swaps (R6). Kafka: `KafkaController.tryProcessAlterPartition`, as
to broker epochs to `ReplicationControlManager.ineligibleReplicasForIsr`.

A leader that proposes a broker which is no replica does not know the assignment: a controller died
after it had cancelled a reassignment in ZooKeeper and before it sent that to the leader. The
proposal is refused, and `renew` sends the leader its replicas. Kafka in ZooKeeper mode accepts it.

Leaders of ours name the broker epoch of each member they ask for, JVM leaders in ZooKeeper mode -1.
A newcomer without an epoch is accepted unless a registration of its broker ended since the state
was last written: then it is unknown which registration is meant. The leader is refused and gets a
new leader epoch (`renew`), in which only the current registration can fetch. Kafka in ZooKeeper
mode accepts it.
"""

from dataclasses import dataclass, field

from ottla.controller.context import Context
from ottla.model.cluster import RECOVERED, RECOVERING, LeaderAndIsr
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.protocol import UNKNOWN_BROKER_EPOCH
from ottla.model.rules import Rule
from ottla.wire.messages.control import AlterPartitionRequest, AlterPartitionResponse

TOPIC_IDS_FROM = 2
EPOCHS_FROM = 3

Result = ErrorCode | LeaderAndIsr


@dataclass(slots=True)
class Validation:
    """The validation result: what to write, what is answered already, and why it was refused."""

    error: ErrorCode = ErrorCode.NONE
    writes: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    results: dict[TopicPartition, Result] = field(default_factory=dict)
    requested: list[TopicPartition] = field(default_factory=list)
    unknown: list[AlterPartitionResponse.TopicData] = field(default_factory=list)
    reasons: dict[TopicPartition, str] = field(default_factory=dict)
    proposals: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    renew: list[TopicPartition] = field(default_factory=list)
    """Partitions that need a new leader epoch before their leader is believed."""
    stale: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """Members named by the epoch of an earlier registration."""
    unsure: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """Newcomers named without an epoch of which an earlier registration is known."""
    epochs: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    """The broker epochs that were given, by partition and broker."""


def version_of(request: AlterPartitionRequest) -> int:
    """Return the version a request must have come in, by what it holds."""
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.new_isr_with_epochs:
                return EPOCHS_FROM
        if topic.topic_name:
            return 1
    return TOPIC_IDS_FROM if any(t.topic_id != ZERO_UUID for t in request.topics) else EPOCHS_FROM


def validate(context: Context, request: AlterPartitionRequest, version: int) -> Validation:
    """Validate every partition of one request."""
    found = Validation()
    broker = context.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        found.error = ErrorCode.STALE_BROKER_EPOCH
        return found
    for topic in request.topics:
        name = topic.topic_name
        if version >= TOPIC_IDS_FROM:
            known = context.topic_names.get(bytes(topic.topic_id))
            if known is None:
                found.unknown.append(_unknown_topic(topic))
                continue
            name = known
        for partition in topic.partitions:
            tp = TopicPartition(name, partition.partition_index)
            proposed = LeaderAndIsr(
                request.broker_id,
                partition.leader_epoch,
                _proposed_isr(partition, version),
                partition.partition_epoch,
                partition.leader_recovery_state,
            )
            found.requested.append(tp)
            found.proposals[tp] = proposed
            _note_epochs(context, tp, proposed, partition, found)
            outcome = _validate_partition(context, tp, proposed, version, found)
            if outcome is None:
                found.writes[tp] = proposed
            else:
                found.results[tp] = outcome
    return found


def _proposed_isr(partition: AlterPartitionRequest.PartitionData, version: int) -> tuple[int, ...]:
    if version >= EPOCHS_FROM:
        return tuple(b.broker_id for b in partition.new_isr_with_epochs)
    return tuple(partition.new_isr)


def _unknown_topic(topic: AlterPartitionRequest.TopicData) -> AlterPartitionResponse.TopicData:
    return AlterPartitionResponse.TopicData(
        topic_id=topic.topic_id,
        partitions=[
            AlterPartitionResponse.PartitionData(
                partition_index=p.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for p in topic.partitions
        ],
    )


def _validate_partition(
    context: Context,
    tp: TopicPartition,
    proposed: LeaderAndIsr,
    version: int,
    found: Validation,
) -> Result | None:
    """Return the response, or None where the proposal is to be written."""
    reasons = found.reasons
    ineligible_code = for_version(ErrorCode.INELIGIBLE_REPLICA, version)
    known = context.leadership.get(tp)
    if known is None:
        reasons[tp] = "no such partition"
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    current = known.leader_and_isr
    if (
        proposed.partition_epoch > current.partition_epoch
        or proposed.leader_epoch > current.leader_epoch
    ):
        reasons[tp] = "the leader knows a later epoch than this controller"
        return ErrorCode.NOT_CONTROLLER
    if proposed.leader_epoch < current.leader_epoch:
        reasons[tp] = f"leader epoch {proposed.leader_epoch} is past, it is {current.leader_epoch}"
        return ErrorCode.FENCED_LEADER_EPOCH
    if proposed.leader != current.leader:
        reasons[tp] = f"broker {proposed.leader} does not lead it, {current.leader} does"
        return ErrorCode.INVALID_REQUEST
    if _same_but_for_partition_epoch(proposed, current):
        return current
    if proposed.partition_epoch < current.partition_epoch:
        reasons[tp] = f"partition epoch {proposed.partition_epoch}, it is {current.partition_epoch}"
        return ErrorCode.INVALID_UPDATE_VERSION
    if proposed.recovery_state == RECOVERING and len(proposed.isr) > 1:
        reasons[tp] = "a recovering leader's ISR is itself alone"
        return ErrorCode.INVALID_REQUEST
    if current.recovery_state == RECOVERED and proposed.recovery_state == RECOVERING:
        reasons[tp] = "a recovered partition does not become recovering by a leader's proposal"
        return ErrorCode.INVALID_REQUEST
    replicas = context.assignment(tp).replicas
    not_replicas = sorted(r for r in set(proposed.isr) - set(current.isr) if r not in replicas)
    if not_replicas:
        reasons[tp] = f"brokers {not_replicas} are no replicas of it"
        found.renew.append(tp)
        return ineligible_code
    ineligible = sorted(r for r in set(proposed.isr) if not context.is_live(r))
    if ineligible:
        reasons[tp] = f"replicas {ineligible} are offline or shutting down"
        return ineligible_code
    if tp in found.stale:
        reasons[tp] = f"replicas {list(found.stale[tp])} have registered again since"
        return ineligible_code
    if tp in found.unsure:
        some = list(found.unsure[tp])
        reasons[tp] = f"replicas {some} died since the last change, and no broker epochs are given"
        found.renew.append(tp)
        return ineligible_code
    return None


def for_version(result: Result, version: int) -> Result:
    """Return a result as a request of this version knows it."""
    if result is ErrorCode.INELIGIBLE_REPLICA and version < TOPIC_IDS_FROM:
        return ErrorCode.OPERATION_NOT_ATTEMPTED
    return result


def _note_epochs(
    context: Context,
    tp: TopicPartition,
    proposed: LeaderAndIsr,
    partition: AlterPartitionRequest.PartitionData,
    found: Validation,
) -> None:
    """Note which members are, or may be, proposed for what they had in an earlier registration."""
    epochs = {b.broker_id: b.broker_epoch for b in partition.new_isr_with_epochs}
    stale = tuple(
        b
        for b, epoch in epochs.items()
        if epoch != UNKNOWN_BROKER_EPOCH
        and (known := context.brokers.get(b)) is not None
        and known.epoch != epoch
    )
    current = context.leadership.get(tp)
    members = () if current is None else current.leader_and_isr.isr
    unsure = tuple(
        b
        for b in proposed.isr
        if b not in members
        and epochs.get(b, UNKNOWN_BROKER_EPOCH) == UNKNOWN_BROKER_EPOCH
        and context.had_former_life(b, tp, proposed.partition_epoch)
    )
    given = {b: epoch for b, epoch in epochs.items() if epoch != UNKNOWN_BROKER_EPOCH}
    if given:
        found.epochs[tp] = given
    if stale:
        found.stale[tp] = stale
    if unsure:
        found.unsure[tp] = unsure


def rule_of(before: LeaderAndIsr | None, proposed: LeaderAndIsr) -> Rule:
    """Name what a leader asks for."""
    known = set(before.isr) if before is not None else set()
    if set(proposed.isr) - known:
        return Rule.ISR_EXPANDS
    if known - set(proposed.isr):
        return Rule.ISR_SHRINKS
    return Rule.RECOVERED


def _same_but_for_partition_epoch(a: LeaderAndIsr, b: LeaderAndIsr) -> bool:
    return (
        a.leader == b.leader
        and a.leader_epoch == b.leader_epoch
        and a.isr == b.isr
        and a.recovery_state == b.recovery_state
        and a.partition_epoch <= b.partition_epoch
    )


def respond(
    context: Context, results: dict[TopicPartition, Result], version: int, found: Validation
) -> AlterPartitionResponse:
    """Return the response for all results of one request."""
    if found.error != ErrorCode.NONE:
        return AlterPartitionResponse(error_code=found.error)
    topics: dict[str, AlterPartitionResponse.TopicData] = {}
    for tp, result in results.items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic = AlterPartitionResponse.TopicData(topic_name=tp.topic)
            if version >= TOPIC_IDS_FROM:
                topic = AlterPartitionResponse.TopicData(topic_id=context.topic_id(tp.topic))
            topics[tp.topic] = topic
        topic.partitions.append(_respond_partition(tp, result))
    return AlterPartitionResponse(topics=[*found.unknown, *topics.values()])


def _respond_partition(tp: TopicPartition, result: Result) -> AlterPartitionResponse.PartitionData:
    if isinstance(result, ErrorCode):
        return AlterPartitionResponse.PartitionData(partition_index=tp.partition, error_code=result)
    return AlterPartitionResponse.PartitionData(
        partition_index=tp.partition,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=list(result.isr),
        leader_recovery_state=result.recovery_state,
        partition_epoch=result.partition_epoch,
    )
