"""DIGEST-MD5: how clients and servers of ZooKeeper authenticate to each other (RFC 2831).

Invariants: nonces are arguments; a name that is not known costs what a wrong password costs; proofs
are compared in constant time; no password is in an error; only the quality of protection `auth` is
spoken, so nothing is encrypted after. A decider. ZooKeeper: `ZooKeeperSaslClient`,
`SaslServerCallbackHandler`; Java: `DigestMD5Client`, `DigestMD5Server`.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping

from ottla.model.errors import ServerRefusedError
from ottla.security.sasl.exchange import AuthenticationRefusedError

REALM = "zk-sasl-md5"
DIGEST_URI = f"zookeeper/{REALM}"
"""What ZooKeeper's clients and servers call the service and its host, whatever their names."""
NONCE_BYTES = 24
MAX_CHALLENGE_BYTES, MAX_RESPONSE_BYTES = 2048, 4096
_FIRST = "00000001"
"""The count of uses of a nonce; each is used once."""
_DIRECTIVE = re.compile(
    r'[\s,]*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))[\s,]*', re.DOTALL
)


class DigestMd5Client:
    """The client's side. `nonce`: random text of this exchange."""

    def __init__(self, user: str, password: str, nonce: str) -> None:
        self.complete = False
        self._user, self._password, self._nonce = user, password, nonce
        self._expected = b""
        self._asked = False

    def respond(self, challenge: bytes) -> bytes | None:
        """Take a server's message, at first an empty one; None when there is none to send."""
        if not self._asked:
            self._asked = True
            return b""
        if not challenge:
            raise ServerRefusedError("DIGEST-MD5: the server sent no challenge: has it SASL?")
        if len(challenge) > MAX_CHALLENGE_BYTES:
            raise ServerRefusedError("DIGEST-MD5: the server's challenge is too long")
        try:
            said = _parse(challenge)
        except ValueError as error:
            raise ServerRefusedError(f"DIGEST-MD5: the server's challenge: {error}") from None
        if self._expected:
            if not hmac.compare_digest(_sent(said, "rspauth"), self._expected):
                raise ServerRefusedError("DIGEST-MD5: the server does not know the password")
            self.complete = True
            return None
        nonce, realm = said.get("nonce", ""), said.get("realm", "")
        if not nonce or said.get("algorithm") != "md5-sess":
            raise ServerRefusedError("DIGEST-MD5: the server's challenge lacks nonce or algorithm")
        if "auth" not in said.get("qop", "auth").replace(" ", "").split(","):
            raise ServerRefusedError("DIGEST-MD5: the server wants more than authentication")
        secret = _secret(self._user, realm, self._password, nonce, self._nonce, self._user)
        self._expected = _proof(secret, nonce, self._nonce, "", DIGEST_URI)
        return ",".join(
            (
                "charset=utf-8",
                f"username={_quoted(self._user)}",
                f"realm={_quoted(realm)}",
                f"nonce={_quoted(nonce)}",
                f"nc={_FIRST}",
                f"cnonce={_quoted(self._nonce)}",
                f"digest-uri={_quoted(DIGEST_URI)}",
                "maxbuf=65536",
                "response="
                + _proof(secret, nonce, self._nonce, "AUTHENTICATE", DIGEST_URI).decode(),
                "qop=auth",
                f"authzid={_quoted(self._user)}",
            )
        ).encode()


class DigestMd5Server:
    """The server's side. `passwords`: by user; `nonce`: random text of this exchange."""

    def __init__(self, passwords: Mapping[str, str], nonce: str) -> None:
        self.user: str | None = None
        """set when the exchange is complete"""
        self._passwords, self._nonce = passwords, nonce
        self._asked = self._over = False

    def respond(self, message: bytes) -> bytes:
        """Take a client's message, at first an empty one; AuthenticationRefusedError."""
        if self._over:
            raise AuthenticationRefusedError("DIGEST-MD5: the exchange is over")
        if not self._asked:
            self._asked = True
            return (
                f'realm="{REALM}",nonce="{self._nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'
            ).encode()
        self._over = True
        if len(message) > MAX_RESPONSE_BYTES:
            raise AuthenticationRefusedError("DIGEST-MD5: the response is too long")
        try:
            said = _parse(message)
        except ValueError as error:
            raise AuthenticationRefusedError(f"DIGEST-MD5: the response: {error}") from None
        wanted = {
            "nonce": self._nonce,
            "realm": REALM,
            "nc": _FIRST,
            "digest-uri": DIGEST_URI,
            "qop": "auth",
        }
        for name, value in wanted.items():
            if said.get(name, "auth" if name == "qop" else "") != value:
                raise AuthenticationRefusedError(f"DIGEST-MD5: the response has another {name}")
        name, nonce = said.get("username", ""), said.get("cnonce", "")
        on_behalf_of = said.get("authzid", "")
        secret = _secret(
            name, REALM, self._passwords.get(name, ""), self._nonce, nonce, on_behalf_of
        )
        proof = _proof(secret, self._nonce, nonce, "AUTHENTICATE", DIGEST_URI)
        same = hmac.compare_digest(proof, _sent(said, "response"))
        if not (same and nonce and name in self._passwords):
            raise AuthenticationRefusedError("DIGEST-MD5: unknown user, or wrong password")
        if on_behalf_of not in ("", name):
            raise AuthenticationRefusedError("DIGEST-MD5: no one may act for another user")
        self.user = name
        return b"rspauth=" + _proof(secret, self._nonce, nonce, "", DIGEST_URI)


def _parse(message: bytes) -> dict[str, str]:
    """Return the directives of a message; ValueError, without values."""
    text = message.decode("utf-8", errors="surrogateescape")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise ValueError("it is no list of name=value")
        name, quoted, word = match.groups()
        if name in found:
            raise ValueError(f"{name} stands twice")
        found[name] = word if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        position = match.end()
    return found


def _sent(said: Mapping[str, str], name: str) -> bytes:
    """Return a directive's bytes as they came: they may be no UTF-8."""
    return said.get(name, "").encode("utf-8", errors="surrogateescape")


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _hashed(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _bytes(text: str) -> bytes:
    """Return a text's bytes, in ISO 8859-1 where it has all of them, as the RFC wants it."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", errors="surrogateescape")


def _secret(
    user: str, realm: str, password: str, nonce: str, client_nonce: str, on_behalf_of: str
) -> bytes:
    """Return H(A1) in hexadecimal digits."""
    own = _hashed(b":".join(map(_bytes, (user, realm, password))))
    parts = [nonce, client_nonce, *([on_behalf_of] if on_behalf_of else [])]
    rest = (part.encode("utf-8", errors="surrogateescape") for part in parts)
    return _hashed(b":".join([own, *rest])).hex().encode()


def _proof(secret: bytes, nonce: str, client_nonce: str, method: str, uri: str) -> bytes:
    """Return the response's value, 32 hexadecimal digits; without a method: the server's."""
    a2 = _hashed(f"{method}:{uri}".encode()).hex().encode()
    rest = (
        part.encode("utf-8", errors="surrogateescape")
        for part in (nonce, _FIRST, client_nonce, "auth")
    )
    return _hashed(b":".join([secret, *rest, a2])).hex().encode()
