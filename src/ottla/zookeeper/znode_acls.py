"""Who may do what with a znode: ACLs in ZooKeeper's encoding, checked and expanded.

Who may call: the server and its tree. Invariants: plain values, no clock, no socket; schemes are
`world`, `ip`, `digest`, `sasl`, and `auth` in what clients send; there is no super user.
ZooKeeper: `PrepRequestProcessor.fixupACL`, `ZooKeeperServer.checkACL`,
`DigestAuthenticationProvider`.
"""

import base64
import hashlib
from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from ottla.zookeeper import jute
from ottla.zookeeper.errors import AuthFailedError, InvalidAclError, NoAuthError

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16


class Identity(NamedTuple):
    """Who a client is, by one scheme."""

    scheme: str
    id: str


SASL = "sasl"
ANYONE = Identity("world", "anyone")
Identities = frozenset[Identity]


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
    return any(
        given & permissions and (wanted == ANYONE or any(_matches(i, wanted) for i in identities))
        for given, wanted in entries(acl)
    )


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
    kept: list[tuple[int, Identity]] = []
    for permissions, identity in dict.fromkeys(entries(acl)):
        if identity.scheme == "auth":
            own = [(permissions, i) for i in sorted(identities) if i.scheme != "ip"]
            if not own:
                raise InvalidAclError(path=path)
            kept += own
        elif identity == ANYONE or _is_valid(identity):
            kept.append((permissions, identity))
        else:
            raise InvalidAclError(path=path)
    if not kept:
        raise InvalidAclError(path=path)
    return encode(kept)


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
    if scheme != "digest":
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
