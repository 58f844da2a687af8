"""Signed JSON Web Tokens: checked against a set of public keys (RFC 7515, RFC 7517, RFC 7519).

Invariants: the algorithm is the key's own, never the token's choice alone, and only RSA and ECDSA
signatures count, so no public key is ever taken for a shared secret; a token without an end, an
issue time or a name is refused; the clock is an argument. PyJWT reads keys and checks signatures:
it is kept, has no parts of its own beside `cryptography`, and lets the times be checked here.
Kafka: `ValidatorAccessTokenValidator` and, for unsigned tokens,
`OAuthBearerUnsecuredValidatorCallbackHandler`.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.model.errors import StartupError
from ottla.security.sasl.oauthbearer import MAX_TOKEN_CHARACTERS, BearerToken, RefusedToken

try:
    import cryptography  # noqa: F401 - without it PyJWT checks no signature of a public key
    import jwt
    from jwt.exceptions import PyJWTError
except ModuleNotFoundError as error:
    raise StartupError(
        f"OAUTHBEARER needs {error.name}, not installed here: pip install 'ottla[secure]'"
    ) from error

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
                        "ES256", "ES384", "ES512"})  # fmt: skip
_NO_TOKEN = (PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError,
             OverflowError)  # fmt: skip
"""What reading a token that anybody can send may raise: PyJWT takes its JSON as it comes."""
_TIMES_ARE_CHECKED_HERE = {
    "verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False,
    "verify_iss": False, "verify_sub": False, "verify_jti": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token must say (Kafka's `sasl.oauthbearer.*`). Empty audience: any."""

    audience: Sequence[str] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


class Keys:
    """The public keys of a JWKS document, by key id."""

    def __init__(self, document: bytes) -> None:
        """Read a document; ValueError if there is no usable key in it."""
        try:
            listed = json.loads(document)["keys"]
            entries = [entry for entry in listed if isinstance(entry, Mapping)]
        except (ValueError, KeyError, TypeError):
            raise ValueError("no JSON Web Key Set") from None
        self._keys: list[tuple[str | None, jwt.PyJWK]] = []
        for entry in entries:
            if entry.get("use", "sig") != "sig" or entry.get("kty") not in ("RSA", "EC"):
                continue
            try:
                key = jwt.PyJWK(dict(entry))
            except (PyJWTError, ValueError, TypeError, KeyError):
                continue  # of a kind this library does not know: others may do
            kid = entry.get("kid")
            self._keys.append((kid if isinstance(kid, str) else None, key))
        if not self._keys:
            raise ValueError("no RSA or EC signature key in the JSON Web Key Set")

    def __len__(self) -> int:
        return len(self._keys)

    def candidates(self, kid: object) -> list[jwt.PyJWK]:
        """Return the keys that may have signed: the one of that id, or all for none."""
        return [key for known, key in self._keys if kid is None or known == kid]


def validate_signed(token: str, now_ms: int, keys: Keys, expected: Expected) -> Any:
    """Return a `BearerToken`, or a `RefusedToken`."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        return RefusedToken()
    try:
        header = jwt.get_unverified_header(token)
    except _NO_TOKEN:
        return RefusedToken()
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or "crit" in header:
        return RefusedToken()
    for key in keys.candidates(header.get("kid")):
        if not _fits(key, algorithm):
            continue
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                options=_TIMES_ARE_CHECKED_HERE,  # type: ignore[arg-type]
            )
        except _NO_TOKEN:
            continue
        return accept_claims(claims, now_ms, expected)
    return RefusedToken()


def _fits(key: jwt.PyJWK, algorithm: str) -> bool:
    """Return whether a key is one for this algorithm; a key may name its own."""
    if key.key_type == "EC":
        return key.algorithm_name == algorithm
    return key.key_type == "RSA" and algorithm[:2] in ("RS", "PS")


def validate_unsigned(token: str, now_ms: int, expected: Expected) -> Any:
    """Return what an unsigned token says: for tests, anybody can write one."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2] or len(token) > MAX_TOKEN_CHARACTERS:
        return RefusedToken()
    try:
        header, claims = (json.loads(_decode(part)) for part in parts[:2])
    except (ValueError, RecursionError):
        return RefusedToken()
    if not isinstance(header, dict) or header.get("alg") != "none":
        return RefusedToken()
    return accept_claims(claims, now_ms, expected)


def unsigned_token(claims: Mapping[str, object]) -> str:
    """Return an unsigned token, which only brokers set for tests take."""
    parts = ({"alg": "none"}, dict(claims))
    texts = (base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts)
    return ".".join(texts) + "."


def accept_claims(claims: object, now_ms: int, expected: Expected) -> BearerToken | RefusedToken:
    """Check what a token says; its signature was checked before."""
    if not isinstance(claims, Mapping):
        return RefusedToken()
    skew_ms = expected.clock_skew_s * 1000
    ends_ms, issued_ms = _ms(claims.get("exp")), _ms(claims.get("iat"))
    if ends_ms is None or issued_ms is None or ends_ms < issued_ms:
        return RefusedToken()
    begins_ms = _ms(claims["nbf"]) if "nbf" in claims else issued_ms
    if begins_ms is None or now_ms >= ends_ms + skew_ms or begins_ms > now_ms + skew_ms:
        return RefusedToken()
    if issued_ms > now_ms + skew_ms:
        return RefusedToken()
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        return RefusedToken()
    if expected.audience and not set(expected.audience) & set(_texts(claims.get("aud"))):
        return RefusedToken()
    scope = claims.get(expected.scope_claim)
    if scope is not None and not _texts(scope):
        return RefusedToken()
    name = claims.get(expected.sub_claim)
    if not isinstance(name, str) or not name.strip() or not _is_unicode(name):
        return RefusedToken()
    return BearerToken(name.strip(), ends_ms)


def _decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _ms(value: object) -> int | None:
    """Return a NumericDate in milliseconds; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        return None
    return int(value * 1000)


def _is_unicode(text: str) -> bool:
    """Return whether a text of JSON can be written at all: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split() or []
    if isinstance(value, list) and all(isinstance(part, str) and part for part in value):
        return value
    return []
