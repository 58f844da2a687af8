"""Handshakes: the connections of a TLS listener whose client is not known yet.

Invariants: each connection counts against the quotas from its first moment, not from its handshake
on; a handshake that does not end in time is closed, however slowly its bytes come; the time for
which we did not read, since connections came too fast, is not the client's.
"""

import ssl
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.net.connection import CloseConnection, Connection
from ottla.net.tls import TlsTransport

LONGEST_HANDSHAKE_S = 9.0
"""With the sweep's own second, below ten (fault F39)."""


class ListenerTls(Protocol):
    """What a listener with TLS knows besides."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection: certificates change meanwhile."""
        ...

    def authenticate(self, connection: Connection, tls: ssl.SSLObject) -> None:
        """Set the principal after a handshake; CloseConnection for who is not let in."""
        ...


class Handshakes:
    """Those under way of one listener, each with the moment it began, by the monotonic clock."""

    def __init__(self, tls: ListenerTls, monotonic: Callable[[], float]) -> None:
        self._tls = tls
        self._monotonic = monotonic
        self._under_way: dict[Connection, float] = {}
        self.established_count = 0
        self.failed_count = 0

    def __len__(self) -> int:
        return len(self._under_way)

    def transport(self, connection: Connection) -> TlsTransport:
        """Return the TLS side of a new connection."""
        self._under_way[connection] = self._monotonic()
        return TlsTransport(
            connection,
            self._tls.context,
            established=partial(self._established, connection),
            failed=partial(self._failed, connection),
        )

    def overdue(self, now: float) -> list[tuple[Connection, str]]:
        """Return the connections to be closed, and why. The server's sweep calls it."""
        found = []
        for connection, since in list(self._under_way.items()):
            if connection.closed:
                del self._under_way[connection]
            elif connection.muted:
                self._under_way[connection] = now
            elif now - since >= LONGEST_HANDSHAKE_S:
                del self._under_way[connection]
                self.failed_count += 1
                found.append((connection, f"no TLS handshake after {now - since:.0f} s"))
        return found

    def _established(self, connection: Connection, tls: ssl.SSLObject) -> None:
        self._under_way.pop(connection, None)
        connection.began = True
        try:
            self._tls.authenticate(connection, tls)
            self.established_count += 1
        except CloseConnection as error:
            self.failed_count += 1
            connection.refuse(str(error))

    def _failed(self, connection: Connection, reason: str) -> None:
        self._under_way.pop(connection, None)
        connection.began = True
        self.failed_count += 1
        connection.refuse(f"TLS handshake failed: {reason}")
