"""Whatever a message holds, in every version, it comes back the same; rubbish never crashes."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.model.errors import OttlaError
from ottla.wire import codec
from ottla.wire.apis import APIS

INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = {
    **{name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in INTS.items()},
    "bool": st.booleans(),
    "uint16": st.integers(0, 65535),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": TEXT | st.text("x", min_size=120, max_size=140),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}
FEW = settings(
    max_examples=4,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def values(layout, owner, version):
    """Return a strategy for objects that hold values in the fields of `version` only."""
    fields = {
        item.name: one(item, owner, version) for item in layout.fields if item.present(version)
    }
    return st.fixed_dictionaries(fields).map(lambda given: layout.made(**given))


def one(item, owner, version):
    base = values(item.struct, owner, version) if item.struct is not None else SCALARS[item.type]
    if item.array:
        base = st.lists(base, max_size=2)
    return st.none() | base if item.null_allowed(version) else base


def cases():
    for key, spec in sorted(APIS.items()):
        for version in range(spec.min_version, spec.max_version + 1):
            yield key, version


def comes_back(message, version, encode, decode):
    raw = b"".join(encode(message, version))
    back = decode(message.API_KEY, version, raw)
    assert back == message
    assert b"".join(encode(back, version)) == raw


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_message_comes_back_in_every_version(key):
    requests, responses = codec.request_class(key), codec.response_class(key)

    for version in range(APIS[key].min_version, APIS[key].max_version + 1):

        @FEW
        @given(
            st.just(version),
            values(requests.LAYOUT, requests, version),
            values(responses.LAYOUT, responses, version),
        )
        def both_come_back(version, request, response):
            comes_back(request, version, codec.encode_request, codec.decode_request)
            comes_back(response, version, codec.encode_response, codec.decode_response)

        both_come_back()


@settings(database=None, derandomize=True)
@given(st.sampled_from(list(cases())), st.binary(max_size=80))
def test_rubbish_is_a_message_or_an_error_of_ours(case, raw):
    key, version = case
    for decode in (codec.decode_request, codec.decode_response):
        with suppress(OttlaError):
            decode(key, version, raw)
