"""CreatePartitions: more partitions for a topic, by the broker that is the controller.

Invariants: existing partitions keep their replicas; a topic that is being reassigned or deleted is
left alone. Kafka: `KafkaApis.handleCreatePartitionsRequest`, `ZkAdminManager.createPartitions` and
`AdminZkClient.addPartitions` (KIP-195).
"""

from collections import Counter
from collections.abc import Sequence

from ottla.broker.authorization.request_authorizer import allowed
from ottla.broker.quotas.controller_mutation_quota import Charge
from ottla.broker.requests.access import Access, Need
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import hold_back, respond
from ottla.broker.services import BrokerServices
from ottla.broker.topic_creation import check_number
from ottla.model.cluster import ReplicaAssignment, TopicInfo
from ottla.model.errors import (
    ErrorCode,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    InvalidTopicError,
    OttlaError,
    ReassignmentInProgressError,
    UnknownTopicError,
)
from ottla.model.ports import Buffer
from ottla.net.connection import Connection
from ottla.placement.assignment import BrokerRack, assign_added
from ottla.security.acls import ALTER, TOPIC
from ottla.wire.apis import ApiKey
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from ottla.wire.portions import MANY_CHANGES, in_portions

STRICT_QUOTA = 3
"""From this version on clients know THROTTLING_QUOTA_EXCEEDED."""

_KEY = ApiKey.CREATE_PARTITIONS
Result = CreatePartitionsResponse.CreatePartitionsTopicResult
Wanted = CreatePartitionsRequest.CreatePartitionsTopic


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: CreatePartitionsRequest,
) -> Parts | Later:
    if not server.controller.is_active:
        results = [Result(name=t.name, error_code=ErrorCode.NOT_CONTROLLER) for t in request.topics]
        return respond(header, CreatePartitionsResponse(results=results))

    quota = server.mutation_quotas.quota(conn.principal.name, header, strict_since=STRICT_QUOTA)

    async def work() -> list[Buffer]:
        results = await _add_all(server, conn, request, quota.charge)
        hold_back(conn, header, quota.wait_ms())
        return respond(header, CreatePartitionsResponse(results=results))

    return work()


async def _add_all(
    server: BrokerServices, conn: Connection, request: CreatePartitionsRequest, charge: Charge
) -> list[Result]:
    results: dict[str, Result] = {}
    added: dict[str, int] = {}
    times = Counter(t.name for t in request.topics)
    for wanted in request.topics:
        name = wanted.name
        result = results.setdefault(name, Result(name=name))
        try:
            if times[name] > 1:
                raise InvalidRequestError("Duplicate topic in request.")
            if not allowed(server.authorizer, conn, _KEY, ALTER, TOPIC, name):
                raise OttlaError(
                    "The topic authorization is failed.", ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
            await _add(server, wanted, charge, validate_only=request.validate_only)
        except OttlaError as error:
            result.error_code, result.error_message = error.code, str(error) or None
        else:
            added[name] = wanted.count
    if added and not request.validate_only:
        creation = server.topic_creation
        late = await creation.wait_for_leaders(added, max(0, request.timeout_ms))
        for name in late if request.timeout_ms > 0 else added:
            results[name].error_code = ErrorCode.REQUEST_TIMED_OUT
    return list(results.values())


async def _add(
    server: BrokerServices, wanted: Wanted, charge: Charge, *, validate_only: bool
) -> None:
    store = server.session.store
    name = wanted.name
    if await store.topics.is_deletion_requested(name):
        raise InvalidTopicError("The topic is queued for deletion.")
    info = (await store.topics.get_many([name]))[name]
    if info is None:
        raise UnknownTopicError(f"The topic '{name}' does not exist.")
    if any(a.being_reassigned for a in info.assignment.values()):
        raise ReassignmentInProgressError(
            f"A partition reassignment is in progress for the topic '{name}'."
        )
    count = len(info.assignment)
    if wanted.count < count:
        raise InvalidPartitionsError(
            f"Topic currently has {count} partitions, which is higher than the requested "
            f"{wanted.count}."
        )
    if wanted.count == count:
        raise InvalidPartitionsError(f"Topic already has {count} partitions.")
    check_number(wanted.count - count)
    existing = {p: a.replicas for p, a in info.assignment.items()}
    brokers = server.metadata.snapshot.brokers
    if wanted.assignments is None:
        racks = [BrokerRack(b.id, b.rack) for b in brokers.values()]
        new = assign_added(racks, existing, wanted.count - count, random=server.world.random)
    else:
        given = [tuple(a.broker_ids) for a in wanted.assignments]
        _check(given, count, wanted.count - count, existing[0], set(brokers))
        new = dict(enumerate(given, count))
    if validate_only:
        return
    charge(wanted.count - count)
    everything = dict(info.assignment) | {p: ReplicaAssignment(r) for p, r in new.items()}

    def grow(found: TopicInfo | None) -> TopicInfo:
        if found != info:
            raise ReassignmentInProgressError(
                f"The topic '{name}' was changed by another client meanwhile."
            )
        return TopicInfo(name, info.topic_id, everything)

    await store.topics.update(name, grow)


def _check(
    given: Sequence[tuple[int, ...]],
    count: int,
    added: int,
    first: tuple[int, ...],
    live: set[int],
) -> None:
    """Raise InvalidReplicaAssignmentError unless the assignments fit the topic and the brokers."""
    if len(given) != added:
        raise InvalidReplicaAssignmentError(
            f"Increasing the number of partitions by {added} but {len(given)} assignments provided."
        )
    for number, replicas in enumerate(given, count):
        if len(set(replicas)) != len(replicas):
            named = ", ".join(map(str, replicas))
            raise InvalidReplicaAssignmentError(
                "Duplicate brokers not allowed in replica assignment: "
                f"{named} for partition id {number}."
            )
        if not replicas:
            raise InvalidReplicaAssignmentError(
                f"Cannot have replication factor of 0 for partition id {number}."
            )
        unknown = sorted(set(replicas) - live)
        if unknown:
            named = ", ".join(map(str, unknown))
            raise InvalidReplicaAssignmentError(
                f"Unknown broker(s) in replica assignment: {named}."
            )
        if len(replicas) != len(first):
            raise InvalidReplicaAssignmentError(
                f"Inconsistent replication factor: the topic has {len(first)} replicas per "
                f"partition, the assignment {list(replicas)} does not"
            )


CREATE_PARTITIONS = Api(
    CreatePartitionsRequest,
    handle,
    access=Access(handler=(Need(ALTER, TOPIC, "name"),)),
    error=error_response(CreatePartitionsResponse, "topics", "results"),
    large=in_portions("topics", "results", unique=1, many=MANY_CHANGES),
)
