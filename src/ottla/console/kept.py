"""What a preview must not show, kept until its button is pressed: passwords.

Invariants: in memory alone; each is given out once; MOST_KEPT at once, each for KEPT_S at most.
"""

import asyncio
import secrets
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT_S = 300.0
MOST_KEPT = 32


class Kept(Generic[T]):
    """Values by tokens that cannot be guessed."""

    def __init__(self) -> None:
        self._by_token: OrderedDict[str, T] = OrderedDict()

    def put(self, thing: T) -> str:
        """Keep a thing; return its token. Beyond MOST_KEPT the oldest is forgotten."""
        token = secrets.token_urlsafe(24)
        self._by_token[token] = thing
        while len(self._by_token) > MOST_KEPT:
            self._by_token.popitem(last=False)
        asyncio.get_running_loop().call_later(KEPT_S, self.take, token)
        return token

    def take(self, token: str) -> T | None:
        """Return a thing and forget it; None if it is not here any more."""
        return self._by_token.pop(token, None)
