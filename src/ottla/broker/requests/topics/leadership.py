"""Reassignments and elections on request: AlterPartitionReassignments, its listing, ElectLeaders.

All three are the controller's business; another broker responds with NOT_CONTROLLER. Kafka: the
handlers of the same names in `KafkaApis` and `ReplicaManager.electLeaders` (KIP-455, KIP-183,
KIP-460).
"""

from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import by_topic, respond
from ottla.broker.services import BrokerServices
from ottla.controller.elections import ElectionKind
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.connection import Connection
from ottla.security.acls import ALTER, DESCRIBE
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.wire.portions import MANY_CHANGES, in_portions

PREFERRED, UNCLEAN = 0, 1
_MESSAGES = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "No partition reassignment is in progress.",
}
"""Kafka's message where there is no other."""

Outcome = tuple[ErrorCode, str | None]


async def alter_reassignments(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: AlterPartitionReassignmentsRequest,
) -> Parts:
    wanted = {
        TopicPartition(t.name, p.partition_index): None if p.replicas is None else tuple(p.replicas)
        for t in request.topics
        for p in t.partitions
    }
    outcomes = await server.controller.alter_reassignments(wanted)
    r = AlterPartitionReassignmentsResponse
    responses = [
        r.ReassignableTopicResponse(
            name=topic,
            partitions=[
                r.ReassignablePartitionResponse(
                    partition_index=index,
                    error_code=code,
                    error_message=message or _MESSAGES.get(code),
                )
                for index, (code, message) in partitions
            ],
        )
        for topic, partitions in by_topic(outcomes.items()).items()
    ]
    return respond(header, r(error_message="", responses=responses))


async def list_reassignments(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: ListPartitionReassignmentsRequest,
) -> Parts:
    wanted = None
    if request.topics is not None:
        wanted = [TopicPartition(t.name, p) for t in request.topics for p in t.partition_indexes]
    found = await server.controller.list_reassignments(wanted)
    r = ListPartitionReassignmentsResponse
    topics = [
        r.OngoingTopicReassignment(
            name=topic,
            partitions=[
                r.OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(assignment.replicas),
                    adding_replicas=list(assignment.adding),
                    removing_replicas=list(assignment.removing),
                )
                for index, assignment in partitions
            ],
        )
        for topic, partitions in by_topic(found.items()).items()
    ]
    return respond(header, r(error_message="", topics=topics))


async def elect_leaders(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: ElectLeadersRequest
) -> Parts:
    wanted = None
    if request.topic_partitions is not None:
        wanted = [
            TopicPartition(t.topic, p) for t in request.topic_partitions for p in t.partitions
        ]
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise OttlaError("", ErrorCode.UNKNOWN_SERVER_ERROR)
    preferred = request.election_type == PREFERRED
    kind = ElectionKind.PREFERRED if preferred else ElectionKind.UNCLEAN
    try:
        outcomes = await server.controller.elect_leaders(kind, wanted)
    except OttlaError as error:
        outcomes = _refusals(server, wanted, error)
    if wanted is None:
        # Of all partitions only those are named where something happened.
        outcomes = {
            tp: outcome
            for tp, outcome in outcomes.items()
            if outcome[0] != ErrorCode.ELECTION_NOT_NEEDED
        }
    elected = [tp for tp, outcome in outcomes.items() if outcome[0] == ErrorCode.NONE]
    for tp in await _await_leaders(server, elected, preferred, request.timeout_ms):
        outcomes[tp] = (ErrorCode.REQUEST_TIMED_OUT, None)
    return respond(header, _elections(outcomes))


def _refusals(
    server: BrokerServices, wanted: list[TopicPartition] | None, error: OttlaError
) -> dict[TopicPartition, Outcome]:
    """Return NOT_CONTROLLER for each partition asked for: the whole response has no error then."""
    if error.code != ErrorCode.NOT_CONTROLLER:
        raise error
    if wanted is None:
        topics = server.metadata.snapshot.topics.items()
        wanted = [TopicPartition(name, p) for name, topic in topics for p in topic.partitions]
    return dict.fromkeys(wanted, (error.code, None))


async def _await_leaders(
    server: BrokerServices, elected: list[TopicPartition], preferred: bool, timeout_ms: int
) -> list[TopicPartition]:
    """Wait until the metadata show the new leaders; return the partitions where they do not."""

    def missing() -> list[TopicPartition]:
        late = []
        for tp in elected:
            state = server.metadata.partition(*tp)
            if (
                state is None
                or state.leader < 0
                or (preferred and state.leader != state.replicas[0])
            ):
                late.append(tp)
        return late

    await server.metadata.wait_until(lambda: not missing(), max(0, timeout_ms) / 1000)
    return missing()


def _elections(outcomes: dict[TopicPartition, Outcome]) -> ElectLeadersResponse:
    r = ElectLeadersResponse
    return r(
        replica_election_results=[
            r.ReplicaElectionResult(
                topic=topic,
                partition_result=[
                    r.PartitionResult(
                        partition_id=index,
                        error_code=code,
                        error_message=message or _MESSAGES.get(code),
                    )
                    for index, (code, message) in partitions
                ],
            )
            for topic, partitions in by_topic(outcomes.items()).items()
        ]
    )


def _election_error(
    request: ElectLeadersRequest, version: int, code: int, message: str | None
) -> ElectLeadersResponse:
    r = ElectLeadersResponse
    return r(
        error_code=code if version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            r.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    r.PartitionResult(partition_id=p, error_code=code, error_message=message)
                    for p in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


ELECT_LEADERS = Api(
    ElectLeadersRequest,
    elect_leaders,
    access=on_cluster(ALTER),
    error=_election_error,
    large=in_portions(
        "topic_partitions.partitions",
        "replica_election_results.partition_result",
        many=MANY_CHANGES,
    ),
)
ALTER_PARTITION_REASSIGNMENTS = Api(
    AlterPartitionReassignmentsRequest,
    alter_reassignments,
    access=on_cluster(ALTER),
    error=error_response(AlterPartitionReassignmentsResponse),
    large=in_portions("topics.partitions", "responses.partitions", many=MANY_CHANGES),
)
LIST_PARTITION_REASSIGNMENTS = Api(
    ListPartitionReassignmentsRequest,
    list_reassignments,
    access=on_cluster(DESCRIBE),
    error=error_response(ListPartitionReassignmentsResponse),
    large=in_portions("topics.partition_indexes", "topics.partitions"),
)
