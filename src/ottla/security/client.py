"""Client security: how a client connects to one listener.

Plain values; `net.peer` does what they say, TLS first, then SASL.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from ottla.security.sasl.exchange import SaslClient


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS of a client. `context` returns the one in force: certificates change meanwhile."""

    context: Callable[[], ssl.SSLContext]
    tls13_ciphers: tuple[str, ...] = ()
    """the suites of TLS 1.3 that are allowed; none: all"""

    def allows(self, cipher: str) -> bool:
        """Return whether a suite that was agreed on may be used: ssl cannot limit those of 1.3."""
        return (
            not self.tls13_ciphers or not cipher.startswith("TLS_") or cipher in self.tls13_ciphers
        )


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How a client connects to one listener: None where the listener has no such thing."""

    tls: ClientTls | None = None
    sasl: SaslClient | None = None
