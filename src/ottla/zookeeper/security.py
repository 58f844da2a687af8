"""Security of a session: who it says it is, and whom it gives the znodes that it creates.

Invariants: a password is in no text; with `set_acl` each znode is created with the ACL that Kafka
gives it. Kafka: `ZkData.defaultAcls`, `ZkData.SensitiveRootPaths`; ZooKeeper:
`ZooKeeperSaslClient`.
"""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.model.errors import ServerRefusedError
from ottla.zookeeper import jute
from ottla.zookeeper.errors import AuthFailedError, ConnectionLossError, ZooKeeperError, by_code

if TYPE_CHECKING:
    from ottla.security.sasl.digest_md5 import DigestMd5Client

OPEN_PATH = "/consumers"
"""Consumers older than Kafka 0.9 write below it, whoever they are."""
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""What they have beneath may be secrets, so not everybody may read it."""


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """How a session authenticates (user: empty, not at all), and whether it sets ACLs."""

    user: str = ""
    password: str = field(default="", repr=False)
    set_acl: bool = False

    def exchange(self) -> "DigestMd5Client | None":
        """Return a new SASL exchange, None where the session does not authenticate."""
        if not self.user:
            return None
        from ottla.security.sasl.digest_md5 import (  # for few brokers
            NONCE_BYTES,
            DigestMd5Client,
        )

        return DigestMd5Client(self.user, self.password, secrets.token_urlsafe(NONCE_BYTES))

    def acl_of(self, path: str) -> bytes:
        """Return the ACL with which a znode is created; `path` is without the chroot."""
        if not self.set_acl or path == OPEN_PATH:
            return jute.OPEN_ACL
        return jute.CREATOR_ACL if path.startswith(SENSITIVE) else jute.CREATOR_AND_READ_ACL


OPEN = ZooKeeperSecurity()
"""A client that does not say who it is, and znodes open to all: the default."""


async def authenticate(
    security: ZooKeeperSecurity, server: str, ask: Callable[[bytes], Awaitable[bytes]]
) -> None:
    """Prove who we are, and that the server knows the password; before anything else is asked.

    `ask` sends a frame and returns the next one. AuthFailedError.
    """
    exchange = security.exchange()
    if exchange is None:
        return
    challenge, xid = b"", 0
    try:
        while (message := exchange.respond(challenge)) is not None:
            xid += 1
            frame = await ask(jute.request(xid, jute.SASL, jute.buffer(message)))
            _, _, err = jute.REPLY_HEADER.unpack_from(frame, 0)
            if err:
                raise by_code(err)
            challenge = jute.read_buffer(frame, jute.REPLY_HEADER.size)[0] or b""
    except ConnectionLossError:
        raise
    except (ServerRefusedError, ZooKeeperError) as error:
        raise AuthFailedError(
            f"ZooKeeper at {server} and user {security.user} do not authenticate to each other: "
            f"{error}; has it SASL, and are user and password those of its JAAS file?"
        ) from error
