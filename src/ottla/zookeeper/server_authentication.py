"""SASL at our server: who may say who they are, and whether everybody has to.

Invariants: a connection authenticates once; without users no one can; where it is required nothing
else is done before. ZooKeeper: `SaslServerCallbackHandler`, `AuthenticationHelper`
(`zookeeper.sessionRequireClientSASLAuth`).
"""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from ottla.security.sasl.digest_md5 import NONCE_BYTES, DigestMd5Server
from ottla.security.sasl.exchange import AuthenticationRefusedError
from ottla.zookeeper import jute, znode_acls
from ottla.zookeeper.errors import AuthenticationRequiredError, AuthFailedError
from ottla.zookeeper.server_connection import Connection
from ottla.zookeeper.znode_acls import SASL, Identity

log = logging.getLogger(__name__)

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
                if connection.may_log():
                    log.warning("sasl refused, no users are set peer=%s", connection.peer)
                raise AuthFailedError
            nonce = secrets.token_urlsafe(NONCE_BYTES)
            connection.sasl = DigestMd5Server(self.passwords, nonce)
        try:
            token = connection.sasl.respond(message)
        except AuthenticationRefusedError as error:
            if connection.may_log():
                log.warning("client not authenticated peer=%s error=%s", connection.peer, error)
            raise AuthFailedError from None
        if connection.sasl.user is not None:
            znode_acls.add(connection, Identity(SASL, connection.sasl.user))
        return jute.buffer(token)

    def refuse(self, connection: Connection) -> NoReturn:
        """Raise AuthenticationRequiredError for a request that comes too early."""
        if connection.may_log():
            log.warning("client refused, it did not authenticate peer=%s", connection.peer)
        raise AuthenticationRequiredError


NO_SASL = SaslUsers()
