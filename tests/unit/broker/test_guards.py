"""Guards: what a handler sees and what its client is answered, by the ACLs; and what they cost."""

import asyncio
import contextlib
import random
import struct
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from ottla.broker.authorization.request_authorizer import RequestAuthorizer, client_host
from ottla.broker.requests.guards import guarded, guarded_in_slices
from ottla.broker.requests.responses import respond
from ottla.broker.requests.router import Router
from ottla.broker.requests.routes import ROUTES
from ottla.broker.tasks import Tasks
from ottla.model.errors import ErrorCode, OttlaError
from ottla.net.connection import CloseConnection
from ottla.security.acls import (
    ALLOW,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    DENY,
    DESCRIBE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Entry,
    Pattern,
)
from ottla.security.authorizer import AclAuthorizer
from ottla.security.principals import Principal
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.wire.messages.control import LeaderAndIsrRequest
from ottla.wire.messages.records import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from ottla.wire.records import Record, build_batch

APP = Principal("User", "app")
HOST = "10.0.0.7"


class Clock:
    slice_s = 0.008

    def monotonic(self):
        return 1.0


def acls(*rules):
    """Rules are (operation, resource type, name) or the same with DENY."""
    authorizer = AclAuthorizer()
    entries = {}
    for operation, kind, name, *permission in rules:
        entry = Entry(str(APP), "*", operation, permission[0] if permission else ALLOW)
        entries.setdefault(Pattern(kind, name), []).append(entry)
    authorizer.replace(entries)
    return RequestAuthorizer(authorizer, Clock())


def connection(principal=APP):
    return SimpleNamespace(
        peer=(HOST, 1), listener="PLAINTEXT", principal=principal, closed=False,
        pending=lambda pipelined: None,
    )  # fmt: skip


def make(key, handle, authorizer):
    server = SimpleNamespace(
        served=(), tasks=Tasks(), quotas=SimpleNamespace(active=False), authorizer=authorizer
    )
    return Router(server, [replace(ROUTES[key], handle=handle)])


def frame(message, version):
    header = encode_request_header(message.API_KEY, version, 7, "test")
    return memoryview(header + b"".join(encode_request(message, version)))


def answer(message, version, parts):
    whole = memoryview(b"".join(parts))
    _, position = decode_response_header(message.API_KEY, version, whole)
    return decode_response(message.API_KEY, version, whole, position)


def offsets(*topics):
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=t, partitions=[part]) for t in topics],
    )


def test_without_an_authorizer_there_is_no_guard():
    for api in ROUTES.values():
        assert guarded(api, None) is api.handle


def test_a_handler_sees_only_what_is_allowed_and_the_client_both():
    seen = []

    def handle(server, conn, header, request):
        seen.append([t.name for t in request.topics])
        r = ListOffsetsResponse
        part = r.ListOffsetsPartitionResponse(partition_index=0, offset=5)
        topics = [
            r.ListOffsetsTopicResponse(name=t.name, partitions=[part]) for t in request.topics
        ]
        return respond(header, r(topics=topics))

    async def run():
        router = make(2, handle, acls((READ, TOPIC, "a")))
        done = asyncio.get_running_loop().create_future()
        conn = connection()

        class Pending:
            timed = None

            def complete(self, parts):
                done.set_result(parts)

        conn.pending = lambda pipelined: Pending()
        router.dispatch(conn, frame(offsets("a", "b"), 5))
        return answer(offsets(), 5, await done), list(router.errors.counts())

    found, errors = asyncio.run(run())
    assert seen == [["a"]]
    assert errors == [
        (2, ErrorCode.NONE, 1),
        (2, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1),
    ]
    assert [(t.name, t.partitions[0].error_code, t.partitions[0].offset) for t in found.topics] == [
        ("a", 0, 5),
        ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1),
    ]
    # All refused: the handler is not called at all.
    router = make(2, never, acls((READ, TOPIC, "a")))
    parts = router.dispatch(connection(), frame(offsets("b", "c"), 5))
    assert {t.name for t in answer(offsets(), 5, parts).topics} == {"b", "c"}


def produce(acks=1, transactional=False, named="t"):
    options = (
        {"is_transactional": True, "producer_id": 3, "producer_epoch": 0, "base_sequence": 0}
        if transactional
        else {}
    )
    records = build_batch([Record(timestamp=1, key=None, value=b"v")], **options)
    part = ProduceRequest.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        transactional_id=named if transactional else None,
        acks=acks,
        timeout_ms=100,
        topic_data=[ProduceRequest.TopicProduceData(name="a", partition_data=[part])],
    )


class HandledError(BaseException):
    """A handler was called."""


def never(server, conn, header, request):
    raise HandledError


def stored(server, conn, header, request):
    return respond(header, ProduceResponse()) if request.acks else None


@pytest.mark.parametrize("named", ["t", "other", None])
def test_it_is_the_batch_that_says_whether_a_transactional_id_is_needed(named):
    """CVE-2018-17196: a transactional batch in a request that names no id, or another one."""
    may = acls((WRITE, TOPIC, "a"), (WRITE, TRANSACTIONAL_ID, "t"))
    router = make(0, stored if named == "t" else never, may)
    request = produce(transactional=True, named=named)
    parts = router.dispatch(connection(), frame(request, 8))
    found = answer(request, 8, parts)
    codes = {p.error_code for t in found.responses for p in t.partition_responses}
    denied = {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert codes == (set() if named == "t" else denied)


def test_a_producer_that_wants_no_answer_is_told_by_the_end_of_its_connection():
    for may in (acls(), acls((WRITE, TOPIC, "b"))):
        router = make(0, never, may)
        with pytest.raises(CloseConnection):
            router.dispatch(connection(), frame(produce(acks=0), 8))
    router = make(0, never, acls((WRITE, TOPIC, "a")))
    with pytest.raises(CloseConnection):
        router.dispatch(connection(), frame(produce(acks=0, transactional=True), 8))
    router = make(0, stored, acls((WRITE, TOPIC, "a")))
    assert router.dispatch(connection(), frame(produce(acks=0), 8)) is None


def test_orders_of_a_controller_need_cluster_action_however_large_they_are():
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1)
    for may in (acls(), acls((CLUSTER_ACTION, CLUSTER, CLUSTER_NAME, DENY))):
        parts = make(4, never, may).dispatch(connection(), frame(request, 3))
        assert answer(request, 3, parts).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        handle = guarded_in_slices(ROUTES[4], never, may)
        with pytest.raises(OttlaError) as caught:
            asyncio.run(handle(None, connection(), None, request))
        assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    other = acls((CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    stranger = connection(Principal("User", "other"))
    parts = make(4, never, other).dispatch(stranger, frame(request, 3))
    assert answer(request, 3, parts).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_every_api_says_what_it_needs():
    """A new one has to say it, and nothing at all only with a reason."""
    for api in ROUTES.values():
        assert bool(api.access.needs) != bool(api.access.open), api.key.name
        for where, need in api.access.needs:
            assert (need.resource_type == CLUSTER) == (not need.name) or where != "whole", api.key


def test_addresses_are_written_as_java_does():
    assert client_host("10.0.0.1") == "10.0.0.1"
    assert client_host("::1") == "0:0:0:0:0:0:0:1"
    assert client_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert client_host("fe80::1%eth0") == "fe80:0:0:0:0:0:0:1"


def test_random_requests_without_permissions_reach_no_handler():
    """Whatever bytes: nothing is handled for a client that may do nothing."""
    chance = random.Random(4)
    for key, api in ROUTES.items():
        if api.access.handler or api.access.open:
            continue
        router = make(key, never, acls((DESCRIBE, TOPIC, "unrelated")))
        for _ in range(30):
            version = chance.randint(api.min_version, api.max_version)
            raw = struct.pack(">hhih", key, version, 1, -1) + chance.randbytes(40)
            with contextlib.suppress(OttlaError):
                try:
                    router.dispatch(connection(), memoryview(raw))
                except HandledError:
                    # Nothing in it that anything is needed for: an empty list.
                    assert not api.access.whole
