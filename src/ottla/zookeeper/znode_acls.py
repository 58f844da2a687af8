"""Who may do what with a znode: ACLs in ZooKeeper's encoding, checked and expanded.

Invariants: plain values, no clock, no socket; schemes are `world`, `ip`, `digest`, `sasl`, and
`auth` in what clients send; there is no super user. ZooKeeper: `PrepRequestProcessor.fixupACL`,
`ZooKeeperServer.checkACL`, `DigestAuthenticationProvider`.
"""

import base64
import hashlib
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import NamedTuple, Protocol

from ottla.zookeeper import jute
from ottla.zookeeper.errors import AuthFailedError, InvalidAclError, NoAuthError

MAX_ACL_BYTES = 8192
"""Of an ACL that a client sends; of all different ones of a multi together."""
_ENTRY_BYTES = 12
MAX_IDENTITIES = 16
"""Of a connection."""
MAX_AUTH_BYTES = 1024
READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16


class Identity(NamedTuple):
    """Who a client is, by one scheme."""

    scheme: str
    id: str


SASL = "sasl"
ANYONE = Identity("world", "anyone")
Identities = frozenset[Identity]


class Client(Protocol):
    identities: Identities


def add(client: Client, identity: Identity) -> None:
    """Add what a client authenticated as; AuthFailedError for too many."""
    if identity not in client.identities:
        if len(client.identities) >= MAX_IDENTITIES:
            raise AuthFailedError
        client.identities |= {identity}


def entries(acl: bytes) -> list[tuple[int, Identity]]:
    """Return permissions (bits) and identity of each entry of an encoded ACL."""
    (count,) = jute.INT.unpack_from(acl, 0)
    pos, found = 4, []
    for _ in range(max(count, 0)):
        (permissions,) = jute.INT.unpack_from(acl, pos)
        scheme, pos = jute.read_string(acl, pos + 4)
        name, pos = jute.read_string(acl, pos)
        found.append((permissions, Identity(scheme, name)))
    return found


def read(frame: bytes, pos: int) -> tuple[bytes, int]:
    """Return an ACL that a client sends, and the position after it; InvalidAclError if too long."""
    if frame[pos : pos + len(jute.OPEN_ACL)] != jute.OPEN_ACL:
        (count,) = jute.INT.unpack_from(frame, pos)
        if count > MAX_ACL_BYTES // _ENTRY_BYTES:
            raise InvalidAclError
    return jute.read_acl(frame, pos)


def encode(found: Iterable[tuple[int, Identity]]) -> bytes:
    parts = [jute.INT.pack(p) + jute.string(i.scheme) + jute.string(i.id) for p, i in found]
    return jute.INT.pack(len(parts)) + b"".join(parts)


def check(acl: bytes, permissions: int, identities: Identities, path: str) -> None:
    """Raise NoAuthError unless one of `permissions` is given to one of the identities."""
    if not allows(acl, permissions, identities):
        raise NoAuthError(path=path)


def allows(acl: bytes, permissions: int, identities: Identities) -> bool:
    if acl == jute.OPEN_ACL:
        return True
    if len(acl) > MAX_ACL_BYTES:  # of an earlier version, or of a real ZooKeeper
        return _allows(acl, permissions, identities)
    return _remembered(acl, permissions, identities)


def _allows(acl: bytes, permissions: int, identities: Identities) -> bool:
    return any(
        given & permissions and (wanted == ANYONE or any(_matches(i, wanted) for i in identities))
        for given, wanted in entries(acl)
    )


_remembered = lru_cache(maxsize=1024)(_allows)


def _matches(identity: Identity, wanted: Identity) -> bool:
    if identity.scheme == wanted.scheme == "ip":
        try:
            return ip_address(identity.id) in ip_network(wanted.id, strict=False)
        except ValueError:  # of another kind of server
            return False
    return identity == wanted


def fixed_up(acl: bytes, identities: Identities, path: str) -> bytes:
    """Return what is kept of an ACL that a client sent: `auth` stands for its own identities."""
    if acl == jute.OPEN_ACL:
        return acl
    fixed = _fixed(acl, identities) if len(acl) <= MAX_ACL_BYTES else None
    if fixed is None:
        raise InvalidAclError(path=path)
    return fixed


@lru_cache(maxsize=256)
def _fixed(acl: bytes, identities: Identities) -> bytes | None:
    kept: list[tuple[int, Identity]] = []
    for permissions, identity in dict.fromkeys(entries(acl)):
        if identity.scheme == "auth":
            own = [(permissions, i) for i in sorted(identities) if i.scheme != "ip"]
            if not own:
                return None
            kept += own
        elif identity == ANYONE or _is_valid(identity):
            kept.append((permissions, identity))
        else:
            return None
    if not kept:
        return None
    fixed = encode(kept)
    return fixed if len(fixed) <= MAX_ACL_BYTES else None  # `auth` stands for many


def _is_valid(identity: Identity) -> bool:
    if identity.scheme == "digest":
        return identity.id.count(":") == 1
    if identity.scheme == SASL:
        return bool(identity.id)
    if identity.scheme != "ip":
        return False
    try:
        ip_network(identity.id, strict=False)
    except ValueError:
        return False
    return True


def authenticated(scheme: str, auth: bytes) -> Identity | None:
    """Return the identity that credentials prove, None if the scheme needs none.

    AuthFailedError for a scheme that is not known.
    """
    if scheme == "ip":
        return None  # every connection has it
    if scheme != "digest" or len(auth) > MAX_AUTH_BYTES:
        raise AuthFailedError
    user = auth.partition(b":")[0].decode(errors="replace")
    hashed = base64.b64encode(hashlib.sha1(auth).digest()).decode()  # noqa: S324 - ZooKeeper's # nosec B324
    return Identity("digest", f"{user}:{hashed}")


def masked(acl: bytes) -> bytes:
    """Return an ACL for a reader who may not administer it: without hashes of passwords."""
    return encode(
        (p, Identity(i.scheme, f"{i.id.partition(':')[0]}:x") if i.scheme == "digest" else i)
        for p, i in entries(acl)
    )
