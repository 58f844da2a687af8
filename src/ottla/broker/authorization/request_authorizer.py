"""The request authorizer: asks the ACLs for whoever sent a request, and keeps the audit log.

Who may call: the guards in front of the handlers, and handlers that have to choose among what they
name. Invariants: who a client is comes from its connection alone, never from what it sends.
Kafka: `AuthHelper`.
"""

from collections.abc import Iterable
from functools import lru_cache

from ottla.broker.authorization.audit import Audit
from ottla.model.ports import Clock
from ottla.net.connection import Connection
from ottla.security.acls import (
    CLUSTER,
    CLUSTER_NAME,
    OPERATIONS,
    RESOURCE_TYPES,
    SUPPORTED,
)
from ottla.security.authorizer import AclAuthorizer
from ottla.wire.apis import APIS


@lru_cache(maxsize=4096)
def client_host(address: str) -> str:
    """Return an address as ACLs have it: IPv6 written out, an IPv4 address within it as such."""
    if ":" not in address:
        return address
    from ipaddress import IPv6Address  # noqa: PLC0415 - only where a client has such an address

    parsed = IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))


class RequestAuthorizer:
    """What the clients of one broker may do."""

    def __init__(self, acls: AclAuthorizer, clock: Clock) -> None:
        self.acls = acls
        self.audit = Audit()
        self._clock = clock

    def allows(
        self,
        conn: Connection,
        api_key: int,
        operation: int,
        resource_type: int,
        name: str,
        *,
        log_denied: bool = True,
    ) -> bool:
        """Return whether the sender of a request may do this; log it if not.

        Not `log_denied`: where it only leaves out what a client may not see.
        """
        host = client_host(conn.peer[0])
        allowed = self.acls.allows(conn.principal, host, operation, resource_type, name)
        if not allowed and log_denied:
            self.audit.denied(
                self._clock.monotonic(),
                str(conn.principal),
                OPERATIONS[operation],
                host,
                f"{RESOURCE_TYPES[resource_type]}:LITERAL:{name}",
                APIS[api_key].name,
            )
        elif allowed and self.audit.logs_allowed:
            self.audit.allowed(
                str(conn.principal),
                OPERATIONS[operation],
                host,
                f"{RESOURCE_TYPES[resource_type]}:LITERAL:{name}",
                APIS[api_key].name,
            )
        return allowed

    def allows_any(
        self, conn: Connection, api_key: int, operation: int, resource_type: int
    ) -> bool:
        """Return whether the sender may do this with any resource of a type."""
        host = client_host(conn.peer[0])
        allowed = self.acls.allows_any(conn.principal, host, operation, resource_type)
        if not allowed:
            self.audit.denied(
                self._clock.monotonic(),
                str(conn.principal),
                OPERATIONS[operation],
                host,
                f"{RESOURCE_TYPES[resource_type]}:any",
                APIS[api_key].name,
            )
        return allowed

    def operations(self, conn: Connection, resource_type: int, name: str) -> int:
        """Return what the sender may do with a resource, as the bit field of responses."""
        host = client_host(conn.peer[0])
        return bits(
            operation
            for operation in SUPPORTED[resource_type]
            if self.acls.allows(conn.principal, host, operation, resource_type, name)
        )

    def statistics(self) -> dict[str, int]:
        return {"acls": len(self.acls), "denied_total": self.audit.denied_total}


def bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


def authorized_operations(
    authorizer: RequestAuthorizer | None,
    conn: Connection,
    resource_type: int,
    name: str = CLUSTER_NAME,
) -> int:
    """Return what a client may do with a resource; without an authorizer all that it supports."""
    if authorizer is None:
        return bits(SUPPORTED[resource_type])
    return authorizer.operations(conn, resource_type, name)


def allowed(
    authorizer: RequestAuthorizer | None,
    conn: Connection,
    api_key: int,
    operation: int,
    resource_type: int = CLUSTER,
    name: str = CLUSTER_NAME,
    *,
    log_denied: bool = True,
) -> bool:
    """Return whether the sender of a request may do this; without an authorizer it may."""
    return authorizer is None or authorizer.allows(
        conn, api_key, operation, resource_type, name, log_denied=log_denied
    )
