"""CreateDelegationToken: a token has a bounded number of renewers."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.broker.requests.security.delegation_tokens import (
    MOST_RENEWER_CHARACTERS,
    MOST_RENEWERS,
    create,
)
from ottla.model.errors import ErrorCode
from ottla.security.principals import Principal
from ottla.wire.codec import decode_response
from ottla.wire.headers import RequestHeader, decode_response_header
from ottla.wire.messages.security import CreateDelegationTokenRequest as Create


def error_of(names):
    async def put(_store, token):
        kept.append(token)

    kept = []
    server = SimpleNamespace(
        authorizer=None,
        session=SimpleNamespace(store=SimpleNamespace(tokens=None)),
        config=SimpleNamespace(integer=lambda _: 1000, listeners=()),
        world=SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 0)),
        delegation_tokens=SimpleNamespace(enabled=True, key="k", put=put),
    )
    conn = SimpleNamespace(principal=Principal("User", "a"), authentication=None, listener="S")
    renewers = [Create.CreatableRenewers(principal_type="User", principal_name=n) for n in names]
    request = Create(renewers=renewers, max_lifetime_ms=-1)
    parts = asyncio.run(create(server, conn, RequestHeader(38, 3, 1, "c"), request))
    whole = memoryview(b"".join(parts))
    code = decode_response(38, 3, whole, decode_response_header(38, 3, whole)[1]).error_code
    assert len(kept) == (code == ErrorCode.NONE)
    return code


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (["u"] * MOST_RENEWERS, ErrorCode.NONE),
        (["u"] * (MOST_RENEWERS + 1), ErrorCode.INVALID_REQUEST),
        (["u" * MOST_RENEWER_CHARACTERS], ErrorCode.INVALID_REQUEST),
    ],
)
def test_renewers_are_bounded(names, error):
    assert error_of(names) == error
