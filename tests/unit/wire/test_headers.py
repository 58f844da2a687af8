"""Which header a message has, what it holds, and what is refused."""

import pytest

from ottla.model.errors import WireError
from ottla.wire import headers
from ottla.wire.apis import APIS
from ottla.wire.headers import RequestHeader


@pytest.mark.parametrize(
    ("key", "version", "request_version", "response_version"),
    [
        (0, 8, 1, 0),
        (0, 9, 2, 1),
        (1, 12, 2, 1),
        (7, 0, 0, 0),  # ControlledShutdown 0 alone has no client id
        (7, 1, 1, 0),
        (7, 3, 2, 1),
        (17, 1, 1, 0),  # SaslHandshake is never flexible
        (18, 2, 1, 0),
        (18, 3, 2, 0),  # ApiVersions answers always with header 0
        (18, 4, 2, 0),
        (47, 0, 1, 0),
        (56, 0, 2, 1),
        (999, 0, 1, 0),
    ],
)
def test_header_versions(key, version, request_version, response_version):
    assert headers.request_header_version(key, version) == request_version
    assert headers.response_header_version(key, version) == response_version


def test_bytes_of_each_header():
    encode = headers.encode_request_header
    assert encode(0, 8, 7, "ab").hex() == "000000080000000700026162"
    assert encode(0, 9, 7, "ab").hex() == "00000009000000070002616200"
    assert encode(0, 9, 7, None).hex() == "0000000900000007ffff00"
    assert encode(7, 0, 7, "ab").hex() == "0007000000000007"
    assert headers.response_header(0, 8, 7).hex() == "00000007"
    assert headers.response_header(0, 9, 7).hex() == "0000000700"
    assert headers.response_header(18, 3, 7).hex() == "00000007"


@pytest.mark.parametrize("client_id", [None, "", "client", "ü" * 40])
def test_headers_of_all_keys_come_back(client_id):
    for key, spec in APIS.items():
        for version in range(spec.min_version, spec.max_version + 1):
            raw = headers.encode_request_header(key, version, 12345, client_id) + b"body"
            header, pos = headers.decode_request_header(memoryview(raw))
            known = None if (key, version) == (7, 0) else client_id
            assert header == RequestHeader(key, version, 12345, known)
            assert raw[pos:] == b"body"
            raw = headers.response_header(key, version, 12345) + b"body"
            correlation_id, pos = headers.decode_response_header(key, version, memoryview(raw))
            assert (correlation_id, raw[pos:]) == (12345, b"body")


def test_a_future_api_versions_request_can_be_read_to_be_refused():
    raw = b"\x00\x12\x00\x63\x00\x00\x00\x01\x00\x01c\x01\x05\x02zz"
    header, pos = headers.decode_request_header(memoryview(raw))
    assert header == RequestHeader(18, 99, 1, "c")
    assert pos == len(raw)


def test_tagged_fields_of_a_response_header_are_skipped():
    raw = memoryview(b"\x00\x00\x00\x09\x01\x07\x03abcrest")
    assert headers.decode_response_header(0, 9, raw) == (9, 10)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00\x00\x00\x09",
        b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x05abc",  # client id cut off
        b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff",  # tagged fields missing
        b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff\x7f",  # more of them than bytes
        b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff\xff\xff\x01",
    ],
)
def test_a_broken_request_header_is_refused(raw):
    with pytest.raises(WireError):
        headers.decode_request_header(memoryview(raw))


def test_a_client_id_that_is_no_utf8_is_taken_as_it_can_be_read():
    raw = b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x01\xff\x00"
    assert headers.decode_request_header(memoryview(raw))[0].client_id == "\ufffd"


@pytest.mark.parametrize("raw", [b"\x00\x00", b"\x00\x00\x00\x01", b"\x00\x00\x00\x01\x02\x00"])
def test_a_broken_response_header_is_refused(raw):
    with pytest.raises(WireError):
        headers.decode_response_header(0, 9, memoryview(raw))


def test_a_frame_is_preceded_by_its_size():
    parts = headers.frame(b"head", [b"body", memoryview(b"records")])
    assert b"".join(parts) == b"\x00\x00\x00\x0fheadbodyrecords"
    assert parts[-1] == b"records"
