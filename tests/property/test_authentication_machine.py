"""Authentication as a state machine: any frames in any order, whole, damaged or replayed.

What must hold whatever comes is said here without looking at the states of the code: who sent what
decides who may be authenticated. `tests/fuzz/auth_fuzz.py` runs the same machine for long.
"""

import base64
import json
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
import sasl_scripts  # tests are no package

from ottla.model.errors import WireError
from ottla.security.sasl.authentication import (
    Authentication,
    Close,
    Forward,
    Refuse,
    RefuseRequest,
    Respond,
    SaslPolicy,
)
from ottla.security.sasl.jwt_tokens import Expected, Keys, validate_signed, validate_unsigned
from ottla.security.sasl.oauthbearer import OAuthBearerServer
from ottla.security.sasl.plain import PlainServer
from ottla.security.sasl.scram import (
    ScramClient,
    ScramLookup,
    ScramMechanism,
    ScramServer,
    credential_of,
)
from support.sasl_clusters import USERS

SHA256 = ScramMechanism.SCRAM_SHA_256
SALT, ITERATIONS = b"salt of the tests", 4096
CREDENTIALS = {
    name: credential_of(
        SHA256, SHA256.salted_password(password, SALT, ITERATIONS), SALT, ITERATIONS
    )
    for name, password in USERS.items()
}
API_VERSIONS, SASL_HANDSHAKE = 18, 17
POINT = {
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}
KEYS = Keys(json.dumps({"keys": [{"kty": "EC", "crv": "P-256", **POINT}]}).encode())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["RS256"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
HEADERS = st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64"]), JSON)


def no_token(token, now_ms):
    """Read a bearer token in both ways; it never counts."""
    validate_unsigned(token, now_ms, Expected(issuer="nobody"))
    return validate_signed(token, now_ms, KEYS, Expected())


def encoded(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


REAUTH_MS = 2_000
NAMES = sorted(sasl_scripts.FRAMES)
PROOFS = {name: f"\0{name}\0{password}".encode() for name, password in USERS.items()}


class AuthenticationMachine(RuleBasedStateMachine):
    """One connection; `captured` are frames of others, which the adversary saw."""

    @initialize(sessions=st.booleans())
    def begin(self, sessions):
        self.now_s = 1000.0
        self.nonces = 0
        self.captured = []
        self.sessions = sessions
        self.connect()

    def connect(self):
        lookup = ScramLookup(lambda _m, name: CREDENTIALS.get(name), lambda _m, _i: None, b"s" * 32)

        def scram():
            self.nonces += 1
            return ScramServer(SHA256, lookup, f"server{self.nonces}")

        policy = SaslPolicy(
            {
                "PLAIN": lambda: PlainServer(USERS),
                "SCRAM-SHA-256": scram,
                "OAUTHBEARER": lambda: OAuthBearerServer(no_token),
            },
            {"PLAIN": REAUTH_MS if self.sessions else 0, "SCRAM-SHA-256": 0},
            524_288,
            30.0,
        )
        self.connection = Authentication(policy, self.now_s)
        self.over = False
        self.listed = False
        self.who = None
        self.ends_s = None
        self.client = None
        self.proven = None
        self.last = b""

    def send(self, frame, proven=None):
        """Send a frame. `proven`: of whom it holds a proof that counts in this exchange."""
        before = self.connection.identity
        try:
            outcome = self.connection.receive(
                memoryview(bytearray(frame)), self.now_s, int(self.now_s * 1000)
            )
        except WireError:
            self.over = True
            return None
        key = int.from_bytes(frame[:2], "big", signed=True)
        if self.over:
            assert isinstance(outcome, Close), "something was done after the end"
        if isinstance(outcome, Forward):
            if self.who is None:
                assert key == API_VERSIONS, "a request passed before authentication"
                assert not self.listed, "ApiVersions passed twice"
                if frame == sasl_scripts.FRAMES["versions"]:
                    self.connection.versions_listed()
                    self.listed = True
            assert self.ends_s is None or self.now_s <= self.ends_s, "the session was over"
        elif isinstance(outcome, Respond):
            done = outcome.authenticated
            if done is not None:
                assert done.principal.name == proven, "authenticated without a proof"
                assert self.who in (None, proven), "the principal changed"
                self.who = proven
                self.ends_s = self.connection.expires_s
        else:
            assert isinstance(outcome, Refuse | RefuseRequest | Close)
            self.over = True
        if not isinstance(outcome, Respond) or outcome.authenticated is None:
            assert self.connection.identity == before
        return outcome

    @rule(name=st.sampled_from(NAMES))
    def whole_frame(self, name):
        frame = sasl_scripts.FRAMES[name]
        self.send(frame, self.plain_proof(frame))

    @rule(
        mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]),
        version=st.sampled_from([0, 1]),
    )
    def handshake(self, mechanism, version):
        self.client = None
        self.send(sasl_scripts.handshake(mechanism, version))

    @rule(name=st.sampled_from(NAMES), at=st.integers(0, 80), value=st.integers(0, 255))
    def damaged_frame(self, name, at, value):
        frame = bytearray(sasl_scripts.FRAMES[name])
        if frame:
            frame[at % len(frame)] = value
        self.send(bytes(frame), self.plain_proof(frame))

    @rule(frame=st.binary(max_size=60))
    def any_bytes(self, frame):
        self.send(frame, self.plain_proof(frame))

    @rule(header=HEADERS | JSON, claims=HEADERS | JSON, signature=st.sampled_from(["", "AAAA"]))
    def bearer(self, header, claims, signature):
        """Send a token that nobody signed, of any JSON."""
        token = f"{encoded(header)}.{encoded(claims)}.{signature}".encode()
        self.send(sasl_scripts.token(b"n,,\x01auth=Bearer " + token + b"\x01\x01"))

    @rule(
        mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]),
        begins=st.sampled_from(
            [b"n,,n=", b"n,,n=a,r=b", b"c=biws,r=", b"n,,\x01auth=Bearer ", b""]
        ),
        repeated=st.sampled_from([b"a", b"=2C", b",a=b", b"[", b"W1tb", b"\xff", b"\0"]),
        count=st.sampled_from([1000, 20_000, 100_000]),
    )
    def long_message(self, mechanism, begins, repeated, count):
        """Send what is very long, in an exchange of its own; it is looked at in no time."""
        self.connect()
        self.send(sasl_scripts.handshake(mechanism, 1))
        started_s = time.process_time()
        self.send(sasl_scripts.token(begins + repeated * count))
        assert time.process_time() - started_s < 0.05, "a message keeps the event loop busy"

    @rule(user=st.sampled_from(["alice", "bob", "nobody"]), right=st.booleans(), raw=st.booleans())
    def plain(self, user, right, raw):
        password = USERS.get(user, "x") if right else "wrong"
        token = sasl_scripts.plain(user, password)
        frame = token if raw else sasl_scripts.token(token)
        self.captured.append(frame)
        self.send(frame, self.plain_proof(frame))

    def plain_proof(self, frame):
        """Return whose name and password a frame holds, as PLAIN sends them."""
        return next((name for name, proof in PROOFS.items() if proof in bytes(frame)), None)

    @rule(user=st.sampled_from(["alice", "bob", "nobody"]), right=st.booleans())
    def scram_first(self, user, right):
        self.nonces += 1
        password = USERS.get(user, "x") if right else "wrong"
        self.client = ScramClient(SHA256, user, password, f"client{self.nonces}")
        self.proven = user if right and user in USERS else None
        outcome = self.send(sasl_scripts.token(self.client.respond(b"")))
        self.last = self.token_of(outcome)

    @precondition(lambda self: self.client is not None and self.last)
    @rule(spoil=st.booleans())
    def scram_final(self, spoil):
        client, self.client = self.client, None
        if b",s=" not in self.last:
            return
        final = client.respond(self.last)
        if spoil:
            final = final[:-2] + bytes([final[-2] ^ 1]) + final[-1:]
        frame = sasl_scripts.token(final)
        self.captured.append(frame)
        self.send(frame, None if spoil else self.proven)

    @precondition(lambda self: any(b"p=" in frame for frame in self.captured))
    @rule(data=st.data())
    def replayed(self, data):
        """Send a proof of SCRAM that was seen: it never counts again."""
        proofs = [frame for frame in self.captured if b"c=biws" in frame]
        if proofs:
            self.send(data.draw(st.sampled_from(proofs)))

    @rule(seconds=st.sampled_from([0.1, 0.9, 1.1, 2.5]))
    def time_passes(self, seconds):
        self.now_s += seconds

    @rule()
    def connect_anew(self):
        self.connect()

    @staticmethod
    def token_of(outcome):
        if not isinstance(outcome, Respond):
            return b""
        whole = b"".join(bytes(part) for part in outcome.parts)
        at = whole.find(b"r=client")
        return b"" if at < 0 else whole[at : whole.index(b",i=") + 7]


TestAuthentication = AuthenticationMachine.TestCase
TestAuthentication.settings = settings(stateful_step_count=40)


def test_the_machine_finds_a_planted_error(monkeypatch):
    """The check itself: a listener that takes any password is found at once."""
    monkeypatch.setattr("hmac.compare_digest", lambda _a, _b: True)
    with pytest.raises(AssertionError, match=r"without a proof|principal changed"):
        run_state_machine_as_test(
            AuthenticationMachine,
            settings=settings(
                derandomize=True, phases=[Phase.generate],  # to shrink it takes ten seconds
                max_examples=300, stateful_step_count=30, database=None,
                suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
            ),
        )  # fmt: skip
