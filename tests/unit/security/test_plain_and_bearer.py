"""PLAIN and OAUTHBEARER: what authenticates, and what is refused with which text."""

import base64
import hashlib
import hmac
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ServerRefusedError
from ottla.security.sasl.exchange import (
    AuthenticationRefusedError,
    InvalidCredentialsError,
)
from ottla.security.sasl.jwt_tokens import (
    Expected,
    Keys,
    unsigned_token,
    validate_signed,
    validate_unsigned,
)
from ottla.security.sasl.oauthbearer import (
    BearerToken,
    OAuthBearerClient,
    OAuthBearerServer,
    RefusedToken,
)
from ottla.security.sasl.plain import PlainClient, PlainServer
from support.sasl_clusters import Issuer

USERS = {"alice": "alice-secret"}
NOW_MS = 1_000_000_000_000


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(TEXTS, TEXTS)
def test_any_user_and_password(name, password):
    server, client = PlainServer({name: password}), PlainClient(name, password)
    assert client.respond(server.respond(client.respond(b""), NOW_MS)) is None
    assert client.complete
    assert server.identity.principal.name == name


OTHER_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0a\0b", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0alice\0alice-secre", "Authentication failed: Invalid username or password"),
        (b"\0alice\0\xff\xfe", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0alice-secret", OTHER_ID),
    ],
)  # fmt: skip
def test_plain_is_refused_with_kafkas_text(message, text):
    server = PlainServer(USERS)
    with pytest.raises(AuthenticationRefusedError) as refused:
        server.respond(message, NOW_MS)
    assert str(refused.value) == text
    assert server.identity is None


def bearer(token=b"token", auth=b"Bearer ", authzid=b""):
    return b"n," + authzid + b",\x01auth=" + auth + token + b"\x01\x01"


def accepting(name="alice"):
    return OAuthBearerServer(lambda token, _now: BearerToken(name, NOW_MS + 5))


def test_a_valid_token_authenticates_until_its_end():
    server = accepting()
    client = OAuthBearerClient("token")
    assert client.respond(server.respond(client.respond(b""), NOW_MS)) is None
    assert client.complete
    assert server.identity.principal.name == "alice"
    assert server.identity.expires_ms == NOW_MS + 5


def test_a_refused_token_takes_the_way_of_rfc_7628():
    server = OAuthBearerServer(lambda _t, _n: RefusedToken(scope="kafka"))
    client = OAuthBearerClient("token")
    challenge = server.respond(client.respond(b""), NOW_MS)
    assert json.loads(challenge) == {"status": "invalid_token", "scope": "kafka"}
    assert client.respond(challenge) == b"\x01"
    with pytest.raises(AuthenticationRefusedError) as refused:
        server.respond(b"\x01", NOW_MS)
    assert json.loads(str(refused.value))["status"] == "invalid_token"
    with pytest.raises(ServerRefusedError):
        client.respond(b"again")
    assert server.identity is None


def test_another_authorization_id_is_refused():
    assert accepting().respond(bearer(authzid=b"a=alice"), NOW_MS) == b""
    with pytest.raises(AuthenticationRefusedError, match="different from the token's"):
        accepting().respond(bearer(authzid=b"a=bob"), NOW_MS)


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"y,,\x01auth=Bearer t\x01\x01", bearer(auth=b"Basic "),
     bearer(token=b"a b"), bearer(token=b""), bearer() + b"x", b"n,,\x01auth=Bearer \xff\x01\x01"],
)  # fmt: skip
def test_what_is_no_bearer_message_is_refused(message):
    server = accepting()
    with pytest.raises(InvalidCredentialsError):
        server.respond(message, NOW_MS)
    assert server.identity is None


# Signed tokens.


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    return Issuer(tmp_path_factory.mktemp("issuer"))


EXPECTED = Expected(audience=("kafka",), issuer="tests")
MUCH_LATER_S = 1 << 33
"""In the year 2242: these parameters are made when tests are collected, long before they run."""


def check(issuer, token, expected=EXPECTED, now_ms=None):
    keys = Keys(issuer.path.read_bytes())
    return validate_signed(token, now_ms or int(time.time() * 1000), keys, expected)


@pytest.mark.parametrize("kid", ["rsa", "ec"])
def test_signed_tokens(issuer, kid):
    assert check(issuer, issuer.token(kid)).name == "alice"
    # PyJWT signs; that another key did not is checked by it as well as by us.
    spoiled = issuer.token(kid).rsplit(".", 1)[0] + "." + issuer.token(kid, sub="b").split(".")[2]
    assert isinstance(check(issuer, spoiled), RefusedToken)


@pytest.mark.parametrize(
    "claims",
    [{"aud": "other"}, {"aud": None}, {"iss": "other"}, {"iss": None}, {"sub": None}, {"sub": ""},
     {"sub": 5}, {"exp": None}, {"exp": "soon"}, {"exp": 5}, {"iat": None}, {"scope": 5},
     {"iat": MUCH_LATER_S, "exp": MUCH_LATER_S + 400}, {"nbf": MUCH_LATER_S},
     {"exp": True}, {"exp": 1e300}],
)  # fmt: skip
def test_claims_that_do_not_count(issuer, claims):
    assert isinstance(check(issuer, issuer.token(**claims)), RefusedToken)


def test_other_claims_for_name_and_scope(issuer):
    expected = Expected(sub_claim="client", scope_claim="scp")
    token = issuer.token(client="carol", scp=["a", "b"])
    assert check(issuer, token, expected).name == "carol"
    assert isinstance(check(issuer, issuer.token(), expected), RefusedToken)
    assert isinstance(check(issuer, issuer.token(client="c", scp=[]), expected), RefusedToken)


def test_clock_skew(issuer):
    token = issuer.token(iat=1000, exp=2000)
    for now_s, accepted in ((969, False), (971, True), (2029, True), (2031, False)):
        found = check(issuer, token, now_ms=now_s * 1000)
        assert isinstance(found, BearerToken) is accepted, now_s


def test_a_public_key_is_no_shared_secret(issuer):
    """The classic confusion: HS256 with the public key's text as the secret."""
    pem = (
        issuer.keys["rsa"][0]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )

    def part(value):
        text = json.dumps(value).encode()
        return base64.urlsafe_b64encode(text).rstrip(b"=").decode()

    now = time.time()
    claims = {"sub": "mallory", "iat": now, "exp": now + 9, "aud": "kafka", "iss": "tests"}
    for kid in ("rsa", "ec", None):
        head = f"{part({'alg': 'HS256', 'kid': kid} if kid else {'alg': 'HS256'})}.{part(claims)}"
        signature = base64.urlsafe_b64encode(hmac.digest(pem, head.encode(), hashlib.sha256))
        token = f"{head}.{signature.rstrip(b'=').decode()}"
        assert isinstance(check(issuer, token), RefusedToken)
    assert isinstance(check(issuer, unsigned_token(claims)), RefusedToken)


def test_a_key_of_another_issuer_is_refused(issuer, tmp_path):
    stranger = Issuer(tmp_path)
    for kid in ("rsa", "ec"):
        assert isinstance(check(issuer, stranger.token(kid)), RefusedToken)
    named = jwt.encode({"sub": "a"}, stranger.keys["rsa"][0], "RS256", headers={"kid": "none"})
    assert isinstance(check(issuer, named), RefusedToken)


@given(st.text(max_size=50))
def test_no_text_is_a_token(text):
    point = {
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    }
    keys = Keys(json.dumps({"keys": [{"kty": "EC", "crv": "P-256", **point}]}).encode())
    assert isinstance(validate_signed(text, NOW_MS, keys, EXPECTED), RefusedToken)
    assert isinstance(validate_unsigned(text, NOW_MS, EXPECTED), RefusedToken)


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{}", b'{"keys":[]}', b'{"keys":[{"kty":"oct"}]}', b'{"keys":[5]}'],
)
def test_what_is_no_key_set(document):
    with pytest.raises(ValueError):
        Keys(document)


HEADERS = [
    '{"alg":["RS256"]}',
    '{"alg":{}}',
    '{"alg":5,"kid":{}}',
    '{"alg":"RS256","kid":[]}',
    '"RS256"',
    "[]",
    "null",
    "[" * 20_000,
    '{"alg":"none","b64":false}',
    '{"alg":' + "9" * 5000 + "}",
]


@pytest.mark.parametrize("header", HEADERS, ids=[h[:20] for h in HEADERS])
def test_a_header_of_any_json_is_a_refused_token(issuer, header):
    """What PyJWT and the JSON reader raise over it would be a traceback in the log."""
    part = base64.urlsafe_b64encode(header.encode()).decode().rstrip("=")
    for token in (f"{part}.e30.AAAA", f"{part}.e30.", f"{part}.{part}.", f"e30.{part}.AAAA"):
        assert isinstance(check(issuer, token), RefusedToken)
        assert isinstance(validate_unsigned(token, NOW_MS, Expected()), RefusedToken)


def test_a_name_that_cannot_be_written_is_refused():
    now_s = NOW_MS / 1000
    token = unsigned_token({"sub": "\ud800", "iat": now_s, "exp": now_s + 9})
    assert isinstance(validate_unsigned(token, NOW_MS, Expected()), RefusedToken)


def test_a_message_above_the_bound_is_not_looked_at():
    server = OAuthBearerServer(accepting())
    with pytest.raises(InvalidCredentialsError, match="more than"):
        server.respond(bearer(b"t" * 40_000), NOW_MS)


def test_unsigned_tokens_for_tests():
    now_s = NOW_MS / 1000
    token = unsigned_token({"sub": "alice", "iat": now_s, "exp": now_s + 9})
    assert validate_unsigned(token, NOW_MS, Expected()).name == "alice"
    assert isinstance(validate_unsigned(token + "x", NOW_MS, Expected()), RefusedToken)
