"""DIGEST-MD5: the RFC's own example, both sides against each other, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ServerRefusedError
from ottla.security.sasl import digest_md5
from ottla.security.sasl.digest_md5 import DigestMd5Client, DigestMd5Server
from ottla.security.sasl.exchange import AuthenticationRefusedError

USERS = {"kafka": "secret", "eve": "e"}


def test_the_example_of_rfc_2831():
    nonce, client_nonce, uri = "OA6MG9tEQGm2hh", "OA6MHXh6VqTrRk", "imap/elwood.innosoft.com"
    secret = digest_md5._secret("chris", "elwood.innosoft.com", "secret", nonce, client_nonce, "")
    of_client = digest_md5._proof(secret, nonce, client_nonce, "AUTHENTICATE", uri)
    assert of_client == b"d388dad90d4bbd760a152321f2143af7"
    of_server = digest_md5._proof(secret, nonce, client_nonce, "", uri)
    assert of_server == b"ea40f60335c427b5527b84dbabcdfffd"


def exchanged(user, password, users=USERS):
    client, server = DigestMd5Client(user, password, "cn"), DigestMd5Server(users, "sn")
    challenge = server.respond(client.respond(b""))
    assert client.respond(server.respond(client.respond(challenge))) is None
    assert client.complete
    return server.user


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("kafka", "secret"),
        ('a"b\\c, d=e', '"\\'),
        ("bücher", "pässe"),
        ("日本", "パス"),
        ("é", "日"),
    ],
)
def test_both_sides_agree(user, password):
    assert exchanged(user, password, {user: password}) == user


@pytest.mark.parametrize(("user", "password"), [("kafka", "other"), ("nobody", ""), ("eve", "")])
def test_no_one_is_authenticated_without_the_password(user, password):
    with pytest.raises(AuthenticationRefusedError, match="unknown user, or wrong password"):
        exchanged(user, password)


def response(**changes):
    """Return a good response with some directives replaced, to a server with the nonce sn."""
    client = DigestMd5Client("kafka", "secret", "cn")
    client.respond(b"")
    good = client.respond(DigestMd5Server(USERS, "sn").respond(b"")).decode()
    for name, value in changes.items():
        before = next(p for p in good.split(",") if p.startswith(name.replace("_", "-") + "="))
        good = good.replace(before, f"{name.replace('_', '-')}={value}")
    return good.encode()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nonce": '"old"'}, "another nonce"),
        ({"nc": "00000002"}, "another nc"),
        ({"digest_uri": '"ldap/zk-sasl-md5"'}, "another digest-uri"),
        ({"qop": "auth-conf"}, "another qop"),
        ({"realm": '"elsewhere"'}, "another realm"),
        ({"authzid": '"eve"'}, "wrong password"),
        ({"cnonce": '"b"'}, "wrong password"),
        ({"response": "0" * 32}, "wrong password"),
        ({"charset": "utf-8,charset=utf-8"}, "charset stands twice"),
    ],
)
def test_a_changed_response_is_refused(changes, words):
    server = DigestMd5Server(USERS, "sn")
    server.respond(b"")
    with pytest.raises(AuthenticationRefusedError, match=words):
        server.respond(response(**changes))
    assert server.user is None
    with pytest.raises(AuthenticationRefusedError, match="is over"):
        server.respond(response())


def test_no_one_acts_for_another_user():
    client, server = DigestMd5Client("kafka", "secret", "cn"), DigestMd5Server(USERS, "sn")
    challenge = server.respond(client.respond(b""))
    secret = digest_md5._secret("kafka", digest_md5.REALM, "secret", "sn", "cn", "eve")
    proof = digest_md5._proof(secret, "sn", "cn", "AUTHENTICATE", digest_md5.DIGEST_URI).decode()
    own = client.respond(challenge).decode()
    begin, _, _ = own.partition("response=")
    with pytest.raises(AuthenticationRefusedError, match="another user"):
        server.respond(f'{begin}response={proof},qop=auth,authzid="eve"'.encode())
    assert server.user is None


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"nonsense",
        b'nonce="a",algorithm=md5',
        b'nonce="a",algorithm=md5-sess,qop="auth-int"',
        b'nonce="' + b"a" * 3000,
    ],
)
def test_a_server_that_is_none_is_refused(challenge):
    client = DigestMd5Client("kafka", "secret", "cn")
    client.respond(b"")
    with pytest.raises(ServerRefusedError):
        client.respond(challenge)


def test_a_server_that_does_not_know_the_password_is_refused():
    client = DigestMd5Client("kafka", "secret", "cn")
    client.respond(b"")
    client.respond(DigestMd5Server(USERS, "sn").respond(b""))
    with pytest.raises(ServerRefusedError, match="does not know the password"):
        client.respond(b"rspauth=" + b"0" * 32)


@pytest.mark.parametrize("name", ["response", "username", "cnonce", "authzid", "realm", "nonce"])
def test_a_response_that_is_no_text_is_refused(name):
    server = DigestMd5Server(USERS, "sn")
    server.respond(b"")
    message = response(**{name: "BAD"}).replace(b"=BAD", b'="\xff\xc0"')
    with pytest.raises(AuthenticationRefusedError):
        server.respond(message)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(message):
    server = DigestMd5Server(USERS, "sn")
    server.respond(b"")
    with pytest.raises(AuthenticationRefusedError):
        server.respond(message)
