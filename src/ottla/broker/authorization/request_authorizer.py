"""The authorizer of a broker: its settings, what it asks the ACLs for each client, its audit log.

The guards in front of the handlers ask it, and handlers that choose among what they name.
Invariants: who a client is comes from its connection alone, never from what it sends.
Kafka: `AuthHelper`, `AclAuthorizer.configure` and the logger `kafka.authorizer.logger`.
"""

import logging
from collections.abc import Iterable
from functools import lru_cache

from ottla.model.config import BrokerConfig
from ottla.model.config_keys import AUTHORIZER_KEYS
from ottla.model.errors import ConfigError
from ottla.model.ports import Clock
from ottla.net.connection import Connection
from ottla.security.acls import (
    CLUSTER,
    CLUSTER_NAME,
    OPERATIONS,
    RESOURCE_TYPES,
    SUPPORTED,
    parse_principal,
)
from ottla.security.authorizer import AclAuthorizer
from ottla.security.principals import Principal
from ottla.wire.apis import APIS


@lru_cache(maxsize=4096)
def client_host(address: str) -> str:
    """Return an address as ACLs have it: IPv6 written out, an IPv4 address within it as such."""
    if ":" not in address:
        return address
    from ipaddress import IPv6Address  # only where a client has such an address

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


logger = logging.getLogger("ottla.authorizer")

MOST_OF_ONE = 10
"""lines in a second for a principal from a host"""
MOST = 100
"""lines in a second for all together"""
LONGEST_NAME = 255


def printable(name: str) -> str:
    """Return a name of a client's as it may stand in a log line."""
    short = name[:LONGEST_NAME]
    return short if short.isprintable() and " " not in short else ascii(short)


class Audit:
    """Writes one line for each denial, a bounded number of them in a second.

    At level DEBUG also what was allowed. Time is an argument, in seconds of a clock that never goes
    back. A client that is denied again and again neither fills the log nor hides others' lines; how
    many lines were left out is said. A name that a client sent cannot make a line of its own.
    Kafka's has no bound.
    """

    def __init__(self) -> None:
        self.denied_total = 0
        self._second = -1
        self._lines = 0
        self._lines_of: dict[tuple[str, str], int] = {}
        self._left_out = 0

    @property
    def logs_allowed(self) -> bool:
        return logger.isEnabledFor(logging.DEBUG)

    def allowed(
        self, principal: str, operation: str, host: str, resource: str, request: str
    ) -> None:
        logger.debug(
            "allowed principal=%s operation=%s host=%s resource=%s request=%s",
            printable(principal),
            operation,
            host,
            printable(resource),
            request,
        )

    def denied(
        self, now_s: float, principal: str, operation: str, host: str, resource: str, request: str
    ) -> None:
        """Log a denial, unless there were too many in this second."""
        self.denied_total += 1
        if int(now_s) != self._second:
            self._begin(int(now_s))
        key = (principal, host)
        of_one = self._lines_of.get(key, 0)
        if of_one >= MOST_OF_ONE or self._lines >= MOST:
            self._left_out += 1
            return
        self._lines_of[key] = of_one + 1
        self._lines += 1
        logger.info(
            "denied principal=%s operation=%s host=%s resource=%s request=%s",
            printable(principal),
            operation,
            host,
            printable(resource),
            request,
        )

    def _begin(self, second: int) -> None:
        self._second = second
        self._lines = 0
        self._lines_of.clear()
        if self._left_out:
            logger.info("denials not logged count=%d", self._left_out)
            self._left_out = 0


AUTHORIZER = "authorizer.class.name"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
SUPER_USERS, ALLOW_IF_NO_ACL = AUTHORIZER_KEYS


def configured_authorizer(config: BrokerConfig) -> AclAuthorizer | None:
    """Return the authorizer that the settings ask for, without ACLs yet; None: all is allowed.

    ConfigError with the key's name for one that is not served, and for settings that promise what
    is not kept: half of it never starts (F40).
    """
    name = config.text(AUTHORIZER).strip()
    properties = config.properties
    if not name:
        for key in AUTHORIZER_KEYS:
            if properties.get(key, "").strip():
                raise ConfigError(
                    f"{key} is set, but {AUTHORIZER} is not: everyone may do everything. Set "
                    f"{AUTHORIZER}={ACL_AUTHORIZER} or remove {key}"
                )
        return None
    if name != ACL_AUTHORIZER:
        raise ConfigError(
            f"{AUTHORIZER}={name} is not served: the one authorizer here is {ACL_AUTHORIZER}. Any "
            "other class cannot run here; what it forbids would be allowed"
        )
    for key in properties:
        if key.startswith("authorizer.zookeeper.") and properties[key].strip():
            raise ConfigError(
                f"{key} is not served: ACLs are read from zookeeper.connect. Remove the key"
            )
    return AclAuthorizer(_super_users(properties), allow_if_no_acl=_flag(properties))


def _super_users(properties: dict[str, str]) -> set[Principal]:
    found = set()
    for text in filter(None, (t.strip() for t in properties.get(SUPER_USERS, "").split(";"))):
        principal = parse_principal(text)
        if principal is None:
            raise ConfigError(
                f"{SUPER_USERS}: {text} is no principal; write type:name, as in User:admin, "
                "several with ; between them"
            )
        found.add(principal)
    return found


def _flag(properties: dict[str, str]) -> bool:
    text = properties.get(ALLOW_IF_NO_ACL, "false").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{ALLOW_IF_NO_ACL}={text} must be true or false")
    return text == "true"
