"""Delegation tokens: lifetimes, who may renew, their znode, their secret."""

import base64
import hashlib
import hmac
import json

import pytest

from ottla.security.delegation_tokens import new_token, token_hmac, token_password
from ottla.security.principals import Principal
from ottla.zookeeper.errors import MalformedZnodeError
from ottla.zookeeper.tokens import decode_token, encode_token

ALICE, BOB, CAROL, DAVE = (Principal("User", n) for n in ("alice", "bob", "carol, *", "dave"))
NOW = 1_000_000
MOST, RENEWED = 7_000, 1_000


def token(asked=-1, renewed=RENEWED):
    return new_token("id", ALICE, BOB, [CAROL], NOW, (asked, MOST, renewed))


@pytest.mark.parametrize(
    ("asked", "renewed", "max_ms", "expires_ms"),
    [(-1, 1000, 7000, 1000), (0, 1000, 7000, 1000), (500, 1000, 500, 500),
     (9000, 9000, 7000, 7000)],
)  # fmt: skip
def test_lifetimes(asked, renewed, max_ms, expires_ms):
    made = token(asked, renewed)
    assert (made.max_ms - NOW, made.expires_ms - NOW) == (max_ms, expires_ms)


def test_renewal_ends_at_the_longest_life():
    assert token().until(NOW + 500, 1000).expires_ms == NOW + 1500
    assert token().until(NOW + 6500, 1000).expires_ms == NOW + MOST


def test_expired_is_after_its_end():
    made = token()
    assert [made.expired(NOW + ms) for ms in (0, 1000, 1001, 7001)] == [False, False, True, True]


def test_who_may_renew_and_whose_it_is():
    made = token()
    assert [made.may_renew(p) for p in (ALICE, BOB, CAROL, DAVE)] == [True, True, True, False]
    assert [made.owner_or_renewer(p) for p in (ALICE, BOB, CAROL, DAVE)] == [True, False, True,
                                                                            False]  # fmt: skip


def test_the_secret_is_an_hmac_of_the_id():
    expected = hmac.new(b"key", b"id", hashlib.sha512).digest()
    assert token_hmac("key", "id") == expected
    assert base64.b64decode(token_password(expected)) == expected


def test_the_znode_is_kafkas_and_has_no_secret():
    data = encode_token(token())
    found = json.loads(data)
    assert found == {
        "version": 3, "owner": "User%3Aalice", "tokenRequester": "User%3Abob",
        "renewers": ["User%3Acarol%2C%20%2A"], "issueTimestamp": NOW, "maxTimestamp": NOW + MOST,
        "expiryTimestamp": NOW + RENEWED, "tokenId": "id",
    }  # fmt: skip
    assert decode_token("/x", data) == token()
    first = {k: v for k, v in found.items() if k != "tokenRequester"} | {"version": 1}
    assert decode_token("/x", json.dumps(first).encode()).requester == ALICE


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version":4}'])
def test_what_is_no_token(data):
    with pytest.raises(MalformedZnodeError):
        decode_token("/x", data)


def test_another_version_and_a_principal_without_type_are_malformed():
    found = json.loads(encode_token(token()))
    for change in ({"version": 4}, {"version": 0}, {"owner": "alice"}, {"renewers": ["x"]}):
        with pytest.raises(MalformedZnodeError):
            decode_token("/x", json.dumps(found | change).encode())
