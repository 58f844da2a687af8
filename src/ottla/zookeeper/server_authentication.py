"""SASL at our server: who may say who they are, and whether everybody has to.

Who may call: `memory`, and who makes a server. Invariants: a connection authenticates once; without
users no one can; where it is required nothing else is done before. ZooKeeper:
`SaslServerCallbackHandler`, `AuthenticationHelper` (`zookeeper.sessionRequireClientSASLAuth`).
"""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.security.sasl.digest_md5 import NONCE_BYTES, DigestMd5Server
from ottla.security.sasl.exchange import AuthenticationRefusedError
from ottla.zookeeper import jute
from ottla.zookeeper.errors import AuthenticationRequiredError, AuthFailedError
from ottla.zookeeper.server_connection import Connection
from ottla.zookeeper.znode_acls import SASL, Identity

log = logging.getLogger(__name__)

WITHOUT = (jute.AUTH, jute.CLOSE)
"""What a client may ask for all the same: other schemes, and the end of its session."""
REQUIRED = AuthenticationRequiredError.zk_code


@dataclass(frozen=True, slots=True)
class SaslUsers:
    """The users of a server, and whether clients must be one of them."""

    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    required: bool = False

    def respond(self, connection: Connection, message: bytes) -> bytes:
        """Take a client's message and return the body of the reply; AuthFailedError."""
        if connection.sasl is None:
            if not self.passwords:
                log.warning("sasl refused, no users are set peer=%s", connection.peer)
                raise AuthFailedError
            nonce = secrets.token_urlsafe(NONCE_BYTES)
            connection.sasl = DigestMd5Server(self.passwords, nonce)
        try:
            token = connection.sasl.respond(message)
        except AuthenticationRefusedError as error:
            log.warning("client not authenticated peer=%s error=%s", connection.peer, error)
            raise AuthFailedError from None
        if connection.sasl.user is not None:
            connection.identities |= {Identity(SASL, connection.sasl.user)}
        return jute.buffer(token)

    def check(self, connection: Connection, op: int) -> None:
        """Raise AuthenticationRequiredError for a request that comes too early."""
        authenticated = connection.sasl is not None and connection.sasl.user is not None
        if self.required and not authenticated and op not in WITHOUT:
            log.warning("client refused, it did not authenticate peer=%s", connection.peer)
            raise AuthenticationRequiredError


NO_SASL = SaslUsers()
