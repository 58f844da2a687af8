"""The router: who is answered, who is closed, and how errors leave."""

import asyncio
import random
import struct
from types import SimpleNamespace

import pytest
from msgspec import structs

from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.requests.router import Router
from ottla.broker.requests.routes import ROUTES
from ottla.broker.tasks import Tasks
from ottla.model.errors import ErrorCode, OttlaError, WireError
from ottla.net.connection import CloseConnection
from ottla.security.principals import ANONYMOUS
from ottla.wire.codec import APIS, decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.wire.messages.cluster import ApiVersionsRequest, DescribeClusterRequest
from ottla.wire.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from ottla.wire.messages.transactions import InitProducerIdRequest

CONN = SimpleNamespace(peer=("127.0.0.1", 1), listener="PLAINTEXT", state=None, principal=ANONYMOUS)


class NoSuchLuckError(OttlaError):
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def refuse(server, conn, header, request):
    raise NoSuchLuckError("later")


def break_down(server, conn, header, request):
    raise ZeroDivisionError


def make(**handlers):
    server = SimpleNamespace(
        served=(),
        authorizer=None,
        features_epoch=-1,
        metadata=MetadataCache(),
        cluster_id="c",
        config=None,
        quotas=SimpleNamespace(active=False),
        tasks=Tasks(),
    )
    table = {22: refuse} | {int(k[1:]): v for k, v in handlers.items()}
    apis = [structs.replace(ROUTES[key], handle=handle) for key, handle in table.items()]
    return Router(server, [ROUTES[18], ROUTES[60], *apis])


def frame(message, version, correlation_id=7):
    header = encode_request_header(message.API_KEY, version, correlation_id, "test")
    return memoryview(header + b"".join(encode_request(message, version)))


def call(router, message, version):
    parts = router.dispatch(CONN, frame(message, version))
    whole = memoryview(b"".join(parts))
    correlation_id, pos = decode_response_header(message.API_KEY, version, whole)
    assert correlation_id == 7
    return decode_response(message.API_KEY, version, whole, pos)


SOFTWARE = {"client_software_name": "test", "client_software_version": "1.0"}


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_registered(version):
    message = ApiVersionsRequest(**(SOFTWARE if version >= 3 else {}))
    response = call(make(), message, version)
    assert response.error_code == 0
    entries = [(e.api_key, e.min_version, e.max_version) for e in response.api_keys]
    assert entries == [(18, 0, 4), (22, 0, APIS[22].max_version), (60, 0, 1)]


@pytest.mark.parametrize("version", [5, 9, 32767, -1])
def test_an_unknown_version_of_api_versions_gets_the_range_in_version_0(version):
    raw = struct.pack(">hhi", 18, version, 99) + b"\x00\x01x\x00\x01\x02\x03"
    whole = memoryview(b"".join(make().dispatch(CONN, memoryview(raw))))
    assert bytes(whole) == struct.pack(">ihihhh", 99, 35, 1, 18, 0, 4)


@pytest.mark.parametrize("name", ["", "-x", "x ", "ä", "a\nb"])
def test_a_bad_software_name_is_refused(name):
    message = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert call(make(), message, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [-1, 1000, 32767])
def test_whatever_else_is_unknown_is_closed(version):
    for key in {*range(90), -1, 32767} - {18}:
        raw = struct.pack(">hhi", key, version, 1) + b"\xff\xff"
        with pytest.raises(CloseConnection):
            make().dispatch(CONN, memoryview(raw))


def test_a_key_that_is_not_registered_is_closed():
    raw = struct.pack(">hhi", 68, 0, 1) + b"\xff\xff"
    with pytest.raises(CloseConnection, match="not served"):
        make().dispatch(CONN, memoryview(raw))


def test_a_frame_too_short_for_a_header():
    with pytest.raises(WireError):
        make().dispatch(CONN, memoryview(b"\x00\x12\x00"))


def test_random_bytes_are_a_wire_error_or_a_response():
    chance = random.Random(1)
    router = make()
    for _ in range(2000):
        key = chance.choice([18, 60, 22])
        head = struct.pack(">hhi", key, chance.randrange(5), 1)
        raw = bytearray(head + chance.randbytes(chance.randrange(40)))
        try:
            assert router.dispatch(CONN, memoryview(raw))
        except (WireError, CloseConnection):
            continue


def test_bytes_behind_a_request_are_ignored_as_the_jvm_does():
    raw = memoryview(bytes(frame(DescribeClusterRequest(), 1)) + b"\x00\x01\x02")
    assert make().dispatch(CONN, raw)


def test_an_error_becomes_the_response_of_its_api():
    response = call(make(), InitProducerIdRequest(), 2)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


def test_a_bug_costs_one_connection(caplog):
    router = make(k22=break_down)
    with pytest.raises(CloseConnection):
        call(router, InitProducerIdRequest(), 0)
    assert "handler failed" in caplog.text


class Waiting:
    """Stands for a connection, and for the answer it is to get."""

    peer, listener = ("127.0.0.1", 1), "PLAINTEXT"
    parts = reason = None

    def pending(self, pipelined):
        assert not pipelined, "nothing of this connection may pass a request that waits"
        return self

    def complete(self, parts):
        self.parts = parts

    def fail(self, reason):
        self.reason = reason


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (NoSuchLuckError("later"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (CloseConnection("enough"), None),
    ],
    ids=["an error", "a bug", "a decision"],
)
def test_a_handler_that_waits_is_a_coroutine_whose_errors_become_responses(raised, code):
    async def wait(server, conn, header, request):
        await asyncio.sleep(0)
        raise raised

    async def scenario():
        router, conn = make(k22=wait), Waiting()
        assert router.dispatch(conn, frame(InitProducerIdRequest(), 2)) is conn
        for _ in range(4):
            await asyncio.sleep(0)
        return conn

    conn = asyncio.run(scenario())
    if code is None:
        assert (conn.parts, conn.reason) == (None, "enough")
        return
    whole = memoryview(b"".join(conn.parts))
    _, pos = decode_response_header(22, 2, whole)
    assert decode_response(22, 2, whole, pos).error_code == code


@pytest.mark.parametrize(
    ("request_", "version"),
    [(LeaderAndIsrRequest(), 7), (StopReplicaRequest(), 4), (UpdateMetadataRequest(), 8)],
    ids=["LeaderAndIsr", "StopReplica", "UpdateMetadata"],
)
def test_f15_a_bug_in_a_control_request_becomes_a_response(request_, version, caplog):
    """C5: a closed connection shows the controller nothing; it would send again for ever."""
    router = make(k4=break_down, k5=break_down, k6=break_down)
    response = call(router, request_, version)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "handler failed" in caplog.text


@pytest.mark.parametrize(
    ("version", "kind", "code"),
    [
        (0, 1, ErrorCode.NONE),
        (1, 1, ErrorCode.NONE),
        (1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (1, 9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_describe_cluster_is_for_brokers(version, kind, code):
    message = DescribeClusterRequest(endpoint_type=kind)
    response = call(make(), message, version)
    assert response.error_code == code
    if code == ErrorCode.NONE:
        assert (response.cluster_id, response.controller_id) == ("c", -1)
