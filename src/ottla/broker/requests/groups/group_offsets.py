"""OffsetCommit, OffsetFetch, OffsetDelete: the offsets that groups have committed.

Invariants: a commit is answered when it is in the log of all in-sync replicas; partitions that do
not exist are refused here and never reach the group. Version 0 of commit and fetch is for znodes
under /consumers, not for the group's log, as in Kafka. Kafka: the handlers of the same names in
`KafkaApis` and `GroupCoordinatorAdapter`.
"""

import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TypedDict, TypeVar

from ottla.broker.authorization.request_authorizer import allowed
from ottla.broker.requests.access import Access, Need, each_named, on_group
from ottla.broker.requests.api import Api, Later, Parts, Response
from ottla.broker.requests.responses import (
    ELEMENT_BYTES,
    STEP,
    PendingResult,
    Steps,
    by_topic,
    respond,
    respond_in_steps,
)
from ottla.broker.services import BrokerServices
from ottla.coordinators.offsets import Commit
from ottla.coordinators.requests import FetchedOffset, PartitionErrors
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_EPOCH, TopicPartition
from ottla.model.protocol import NO_TIMESTAMP, UNKNOWN_OFFSET
from ottla.net.connection import Connection
from ottla.security.acls import DELETE, DESCRIBE, GROUP, READ, TOPIC
from ottla.wire.apis import ApiKey
from ottla.wire.error_responses import by_version, error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.wire.portions import CHANGES_BY_PARTITION, in_portions, itself

DEFAULT_RETENTION = -1
"""OffsetCommit 2 to 4: keep an offset as long as the broker does."""

NO_OFFSET = Commit(UNKNOWN_OFFSET, NO_EPOCH, "", NO_TIMESTAMP)
FIRST_FETCH_OF_MANY = 8
_FETCH = ApiKey.OFFSET_FETCH
FIRST_FETCH_WITH_TOP_ERROR = 2

ItemT = TypeVar("ItemT")
TopicT = TypeVar("TopicT")


def _existing(
    server: BrokerServices, asked: Iterable[tuple[TopicPartition, ItemT]]
) -> tuple[dict[TopicPartition, ItemT], dict[TopicPartition, ErrorCode]]:
    """Sort what a request asks into that of partitions that exist and errors of the others."""
    known: dict[TopicPartition, ItemT] = {}
    results: dict[TopicPartition, ErrorCode] = {}
    for tp, item in asked:
        if server.metadata.partition(*tp) is None:
            results[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            known[tp] = item
    return known, results


# --- OffsetCommit -------------------------------------------------------------------------------


def offset_commit(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: OffsetCommitRequest
) -> Response | Later:
    asked = (
        (TopicPartition(t.name, p.partition_index), p) for t in request.topics for p in t.partitions
    )
    known, results = _existing(server, asked)
    if not known:
        return respond(header, _committed(results))
    if header.api_version == 0:
        return _commit_to_znodes(server, header, request, known, results)
    now_ms = server.world.clock.wall_ms()
    retention_ms = request.retention_time_ms
    commits = {
        tp: Commit(
            p.committed_offset,
            p.committed_leader_epoch,
            p.committed_metadata or "",
            now_ms if p.commit_timestamp == NO_TIMESTAMP else p.commit_timestamp,
            NO_TIMESTAMP if retention_ms == DEFAULT_RETENTION else now_ms + retention_ms,
        )
        for tp, p in known.items()
    }
    pending = PendingOffsetCommit(conn, header, results)
    server.groups.commit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        commits,
        pending,
    )
    return pending


class PendingOffsetCommit(PendingResult[PartitionErrors]):
    """The response when the offsets are in the log; `refused` are those that were not written."""

    __slots__ = ("_refused",)

    def __init__(self, conn: Connection, header: RequestHeader, refused: PartitionErrors) -> None:
        super().__init__(conn, header)
        self._refused = refused

    def response(self, result: PartitionErrors) -> OffsetCommitResponse:
        return _committed({**self._refused, **result})


def _committed(results: Mapping[TopicPartition, ErrorCode]) -> OffsetCommitResponse:
    r = OffsetCommitResponse
    return r(
        topics=[
            r.OffsetCommitResponseTopic(
                name=topic,
                partitions=[
                    r.OffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for topic, partitions in by_topic(results.items()).items()
        ]
    )


# --- OffsetFetch --------------------------------------------------------------------------------


def offset_fetch(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: OffsetFetchRequest
) -> Response | Later:
    if header.api_version >= FIRST_FETCH_OF_MANY:
        return respond_in_steps(server, conn, header, _fetch_of_many(server, conn, request))
    if header.api_version > 0:
        return respond_in_steps(server, conn, header, _fetch_of_one(server, conn, header, request))
    if allowed(server.authorizer, conn, _FETCH, DESCRIBE, GROUP, request.group_id):
        return _fetch_from_znodes(server, conn, header, request)
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    found = [FetchedOffset(tp, None, refused) for tp in _wanted(request.topics) or ()]
    return respond(header, _fetched(found, refused))


def _fetch_of_many(server: BrokerServices, conn: Connection, request: OffsetFetchRequest) -> Steps:
    """Respond for each group once, however often it is named."""
    r = OffsetFetchResponse
    wanted: dict[str, dict[TopicPartition, None] | None] = {}
    for group in request.groups:
        more = _wanted(group.topics)
        known = wanted.setdefault(group.group_id, {})
        if more is None:
            wanted[group.group_id] = None
        elif known is not None:
            known.update(dict.fromkeys(more))
    response = r()
    for group_id, partitions in wanted.items():
        error, found = _offsets(
            server,
            conn,
            group_id,
            None if partitions is None else list(partitions),
            require_stable=request.require_stable,
        )
        topics = yield from _by_topic(
            found, r.OffsetFetchResponseTopics, r.OffsetFetchResponsePartitions
        )
        response.groups.append(
            r.OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=error)
        )
        yield ELEMENT_BYTES + len(group_id)
    return response


def _fetch_of_one(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: OffsetFetchRequest
) -> Steps:
    r = OffsetFetchResponse
    asked = _wanted(request.topics)
    wanted = None if asked is None else list(dict.fromkeys(asked))
    error, found = _offsets(
        server, conn, request.group_id, wanted, require_stable=request.require_stable
    )
    if error is not ErrorCode.NONE and header.api_version < FIRST_FETCH_WITH_TOP_ERROR:
        found = (FetchedOffset(tp, None, error) for tp in wanted or ())
    topics = yield from _by_topic(found, r.OffsetFetchResponseTopic, r.OffsetFetchResponsePartition)
    return r(topics=topics, error_code=error)


def _by_topic(
    found: Iterable[FetchedOffset],
    topic: Callable[..., TopicT],
    partition: Callable[..., object],
) -> Generator[int, None, list[TopicT]]:
    """Return the topics of a response with their partitions, in steps."""
    topics: dict[str, list[object]] = {}
    size = 0
    for number, offset in enumerate(found, 1):
        fields = _fields(offset.tp.partition, offset)
        topics.setdefault(offset.tp.topic, []).append(partition(**fields))
        size += ELEMENT_BYTES + len(fields["metadata"] or "")
        if not number % STEP:
            yield size
            size = 0
    yield size + ELEMENT_BYTES * len(topics)
    return [topic(name=name, partitions=partitions) for name, partitions in topics.items()]


def _offsets(
    server: BrokerServices,
    conn: Connection,
    group_id: str,
    wanted: list[TopicPartition] | None,
    *,
    require_stable: bool,
) -> tuple[ErrorCode, Iterator[FetchedOffset]]:
    """Return the offsets of a group that the client may see."""
    authorizer = server.authorizer
    fetch = server.groups.fetch_offsets
    if authorizer is None:
        return fetch(group_id, wanted, require_stable=require_stable)
    if not authorizer.allows(conn, _FETCH, DESCRIBE, GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, iter(())

    @functools.cache
    def readable(topic: str) -> bool:
        return authorizer.allows(conn, _FETCH, DESCRIBE, TOPIC, topic)

    if wanted is None:
        error, found = fetch(group_id, None, require_stable=require_stable)
        return error, (f for f in found if readable(f.tp.topic))
    asked = [tp for tp in wanted if readable(tp.topic)]
    error, found = fetch(group_id, asked, require_stable=require_stable)
    if error is not ErrorCode.NONE:
        return error, found
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    unseen = (FetchedOffset(tp, None, refused) for tp in wanted if not readable(tp.topic))
    return error, itertools.chain(found, unseen)


def _wanted(
    topics: Sequence[
        OffsetFetchRequest.OffsetFetchRequestTopic | OffsetFetchRequest.OffsetFetchRequestTopics
    ]
    | None,
) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [TopicPartition(t.name, index) for t in topics for index in t.partition_indexes]


class _Fields(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


def _fields(index: int, offset: FetchedOffset) -> _Fields:
    """Return what the responses of all versions say of a partition."""
    commit = offset.commit or NO_OFFSET
    return {
        "partition_index": index,
        "committed_offset": commit.offset,
        "committed_leader_epoch": commit.leader_epoch,
        "metadata": commit.metadata,
        "error_code": offset.error,
    }


def _fetched(found: Iterable[FetchedOffset], error: ErrorCode) -> OffsetFetchResponse:
    r = OffsetFetchResponse
    topics = [
        r.OffsetFetchResponseTopic(
            name=name,
            partitions=[
                r.OffsetFetchResponsePartition(**_fields(index, offset))
                for index, offset in partitions
            ],
        )
        for name, partitions in by_topic((f.tp, f) for f in found).items()
    ]
    return r(topics=topics, error_code=error)


# --- OffsetDelete -------------------------------------------------------------------------------


def offset_delete(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: OffsetDeleteRequest
) -> Parts:
    asked = (
        (TopicPartition(t.name, p.partition_index), p) for t in request.topics for p in t.partitions
    )
    known, results = _existing(server, asked)
    error, found = server.groups.delete_offsets(request.group_id, list(known))
    r = OffsetDeleteResponse
    if error is not ErrorCode.NONE:
        return respond(header, r(error_code=error))
    topics = [
        r.OffsetDeleteResponseTopic(
            name=topic,
            partitions=[
                r.OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                for index, code in partitions
            ],
        )
        for topic, partitions in by_topic({**results, **found}.items()).items()
    ]
    return respond(header, r(topics=topics))


def _delete_refused(
    request: OffsetDeleteRequest, _version: int, code: int, _message: str | None
) -> OffsetDeleteResponse:
    """Return what the topics get that a client may not read."""
    r = OffsetDeleteResponse
    return r(
        topics=[
            r.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    r.OffsetDeleteResponsePartition(
                        partition_index=p.partition_index, error_code=code
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# --- version 0: znodes --------------------------------------------------------------------------


MAX_ZNODE_GROUP = 249
"""Characters of a group whose offsets go to ZooKeeper (version 0), which never forgets them."""


async def _commit_to_znodes(
    server: BrokerServices,
    header: RequestHeader,
    request: OffsetCommitRequest,
    known: Mapping[TopicPartition, OffsetCommitRequest.OffsetCommitRequestPartition],
    results: dict[TopicPartition, ErrorCode],
) -> Parts:
    if len(request.group_id) > MAX_ZNODE_GROUP:
        return respond(
            header, _committed({**results, **dict.fromkeys(known, ErrorCode.INVALID_GROUP_ID)})
        )
    longest = server.config.integer("offset.metadata.max.bytes")
    for tp, partition in known.items():
        if len(partition.committed_metadata or "") > longest:
            results[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        await server.session.store.consumer_offsets.set(
            request.group_id, tp, partition.committed_offset
        )
        results[tp] = ErrorCode.NONE
    return respond(header, _committed(results))


async def _fetch_from_znodes(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: OffsetFetchRequest
) -> Parts:
    found = []
    for tp in _wanted(request.topics) or ():
        if not allowed(server.authorizer, conn, _FETCH, DESCRIBE, TOPIC, tp.topic):
            found.append(FetchedOffset(tp, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        offset = None
        if server.metadata.partition(*tp) is not None:
            offset = await server.session.store.consumer_offsets.get(request.group_id, tp)
        if offset is None:
            found.append(FetchedOffset(tp, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            found.append(FetchedOffset(tp, NO_OFFSET._replace(offset=offset)))
    return respond(header, _fetched(found, ErrorCode.NONE))


# --- how they are served ------------------------------------------------------------------------

OFFSET_COMMIT = Api(
    OffsetCommitRequest,
    offset_commit,
    access=on_group(READ, each_named(Need(READ, TOPIC, "name"))),
    error=error_response(OffsetCommitResponse, "topics.partitions"),
    large=CHANGES_BY_PARTITION,
)
OFFSET_FETCH = Api(
    OffsetFetchRequest,
    offset_fetch,
    access=Access(handler=(Need(DESCRIBE, GROUP, "group_id"), Need(DESCRIBE, TOPIC, "name"))),
    error=by_version(
        FIRST_FETCH_OF_MANY,
        error_response(OffsetFetchResponse, "groups"),
        by_version(
            FIRST_FETCH_WITH_TOP_ERROR,
            error_response(OffsetFetchResponse),
            error_response(
                OffsetFetchResponse,
                "topics.partition_indexes",
                "topics.partitions",
                committed_offset=UNKNOWN_OFFSET,
                metadata="",
            ),
        ),
    ),
    large=in_portions(
        "groups.topics.partition_indexes",
        "groups.topics.partitions",
        once=itself,
        since=FIRST_FETCH_OF_MANY,
        older=in_portions("topics.partition_indexes", "topics.partitions", once=itself),
    ),
    large_response=True,
)
OFFSET_DELETE = Api(
    OffsetDeleteRequest,
    offset_delete,
    access=on_group(
        DELETE, each_named(Need(READ, TOPIC, "name"), error=_delete_refused, handles_none=True)
    ),
    error=error_response(OffsetDeleteResponse),
    large=CHANGES_BY_PARTITION,
)
