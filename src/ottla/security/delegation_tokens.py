"""Delegation tokens: what one is, who may do what with it, and until when it counts (KIP-48).

Invariants: a token's secret is made of its id and the cluster's key, so it is stored nowhere; times
are wall clock in ms and arguments. A decider. Kafka: `TokenInformation`, `DelegationTokenManager`.
"""

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla.security.principals import Principal


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token without its secret."""

    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def owner_or_renewer(self, principal: Principal) -> bool:
        return principal == self.owner or principal in self.renewers

    def may_renew(self, principal: Principal) -> bool:
        """Return whether a principal may renew it and end it."""
        return principal == self.requester or self.owner_or_renewer(principal)

    def until(self, now_ms: int, period_ms: int) -> "Token":
        """Return the token with an end so long from now, and not after its last."""
        return replace(self, expires_ms=min(self.max_ms, now_ms + period_ms))


def new_token(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Sequence[Principal],
    now_ms: int,
    lifetimes_ms: tuple[int, int, int],
) -> Token:
    """Return a token. `lifetimes_ms`: asked for (0 or less: the most), the most, until renewed."""
    asked_ms, most_ms, renewed_ms = lifetimes_ms
    max_ms = now_ms + (most_ms if asked_ms <= 0 else min(asked_ms, most_ms))
    expires_ms = min(max_ms, now_ms + renewed_ms)
    return Token(token_id, owner, requester, tuple(renewers), now_ms, max_ms, expires_ms)


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """Return a token's secret, 64 bytes."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(secret: bytes) -> str:
    """Return what a client gives SCRAM as the password."""
    return base64.b64encode(secret).decode()
