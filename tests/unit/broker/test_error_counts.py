"""Errors in responses are counted as they are sent: each once, also of a response in parts."""

from collections import Counter

import pytest

from ottla.broker.requests.error_counts import ErrorCounts
from ottla.broker.requests.large_requests import decoded
from ottla.broker.requests.responses import respond
from ottla.broker.requests.routes import ROUTES
from ottla.model.errors import ErrorCode, OttlaError
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode_response, request_class
from ottla.wire.headers import RequestHeader, decode_response_header
from ottla.wire.messages.records import FetchResponse, ProduceResponse
from ottla.wire.messages.security import DeleteAclsResponse
from unit.broker.test_error_responses import BrokenError, fill, versions

PRODUCE = int(ApiKey.PRODUCE)


def header_of(key, version):
    return RequestHeader(key, version, 7, "c", errors=ErrorCounts())


def found(header):
    """Return what was counted, by (api key, error)."""
    return {(key, error): count for key, error, count in header.errors.counts()}


def sent(header, parts):
    """Return the error codes in an encoded response, with a reader that knows nothing of counts."""
    whole = memoryview(b"".join(parts))
    _, at = decode_response_header(header.api_key, header.api_version, whole)
    response = decode_response(header.api_key, header.api_version, whole, at)
    return Counter(codes(response, header.api_version))


def codes(struct, version):
    for field in type(struct).LAYOUT.fields:
        value = getattr(struct, field.name)
        if not field.present(version) or value is None or field.name == "matching_acls":
            continue
        if field.name in ("error_code", "partition_error_code"):
            yield ErrorCode(value)
        elif field.struct is not None:
            for entry in value if field.array else [value]:
                yield from codes(entry, version)


@pytest.mark.parametrize("key", ROUTES)
def test_what_is_counted_is_what_is_sent(key):
    for version in versions(key):
        request = fill(request_class(key)(), version)
        header = header_of(key, version)
        response = ROUTES[key].error_response(request, version, BrokenError("no disk"))
        parts = respond(header, response)
        expected = {(key, error): count for error, count in sent(header, parts).items()}
        assert found(header) == expected, version

        respond(header, response)
        assert found(header) == {error: 2 * count for error, count in expected.items()}, version
        decoded(header, parts)  # as part of another response, which counts as a whole
        assert found(header) == expected, version


def test_an_unexpected_error_is_counted_as_unknown():
    header = header_of(PRODUCE, 9)
    request = fill(request_class(PRODUCE)(), 9)
    respond(header, ROUTES[PRODUCE].error_response(request, 9, OttlaError("?")))
    assert found(header) == {(PRODUCE, ErrorCode.UNKNOWN_SERVER_ERROR): 1}


def test_each_partition_counts_and_a_field_that_a_version_lacks_does_not():
    header = header_of(PRODUCE, 9)
    p = ProduceResponse.PartitionProduceResponse
    bad = ErrorCode.NOT_LEADER_OR_FOLLOWER
    partitions = [p(index=0, error_code=bad), p(index=1), p(index=2)]
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=partitions)
    respond(header, ProduceResponse(responses=[topic, topic]))
    assert found(header) == {(PRODUCE, ErrorCode.NONE): 4, (PRODUCE, bad): 2}
    fetch = int(ApiKey.FETCH)
    header = header_of(fetch, 6)  # FetchResponse has an error code of its own from 7 on
    respond(header, FetchResponse())
    assert found(header) == {}
    header.api_version = 7
    respond(header, FetchResponse())
    assert found(header) == {(fetch, ErrorCode.NONE): 1}


def test_acls_that_were_deleted_do_not_count_but_their_filter_does():
    header = header_of(int(ApiKey.DELETE_ACLS), 3)
    r = DeleteAclsResponse
    acls = [r.DeleteAclsMatchingAcl() for _ in range(3)]
    respond(header, r(filter_results=[r.DeleteAclsFilterResult(matching_acls=acls)]))
    assert found(header) == {(int(ApiKey.DELETE_ACLS), ErrorCode.NONE): 1}
