"""JWKS: the public keys that sign tokens, read from a file or an allowed address, kept current.

Invariants: an address is asked only if the settings list it, and is not followed elsewhere; a
document that cannot be read leaves the keys of before; a token with an unknown key has them read
again, but not more often than every ten seconds. Kafka: `RefreshingHttpsJwks`; the list of
addresses is Kafka 3.9.1's (CVE-2025-27817).
"""

import asyncio
import logging
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from ottla.model.config import BrokerConfig
from ottla.model.ports import Clock, Workers
from ottla.security.sasl.jwt_tokens import Expected, Keys, validate_signed
from ottla.security.sasl.oauthbearer import BearerToken, RefusedToken

logger = logging.getLogger(__name__)

MAX_DOCUMENT_BYTES = 1_048_576
REQUEST_TIMEOUT_S = 10.0
LEAST_REFRESH_S = 10.0
CHECK_S = 1.0


class JwksSource:
    """The keys of one document. `keys` is None until it was read."""

    def __init__(self, url: str, refresh_ms: int, expected: Expected) -> None:
        self.url = url
        self.keys: Keys | None = None
        self._refresh_s = max(refresh_ms / 1000, LEAST_REFRESH_S)
        self._expected = expected
        self._missed = False

    @property
    def is_file(self) -> bool:
        return urllib.parse.urlsplit(self.url).scheme == "file"

    def load(self) -> None:
        """Read the document; OSError or ValueError. It may wait: call it in a worker."""
        self.keys = Keys(read_url(self.url))

    def validate(self, token: str, now_ms: int) -> BearerToken | RefusedToken:
        """Return what a token says, or why it is refused."""
        if self.keys is None:
            self._missed = True
            return RefusedToken()
        found: BearerToken | RefusedToken = validate_signed(
            token, now_ms, self.keys, self._expected
        )
        if isinstance(found, RefusedToken):
            self._missed = True
        return found

    async def run(self, clock: Clock, workers: Workers) -> None:
        """Keep the keys current, forever."""
        read_s = clock.monotonic() if self.keys is not None else None
        while True:
            now_s = clock.monotonic()
            age_s = self._refresh_s if read_s is None else now_s - read_s
            if age_s >= self._refresh_s or (self._missed and age_s >= LEAST_REFRESH_S):
                self._missed = False
                read_s = now_s
                try:
                    await workers.run(self.load)
                except (OSError, ValueError) as error:
                    logger.warning("signature keys not read path=%s error=%s", self.url, error)
            await asyncio.sleep(CHECK_S)


def _own(config: BrokerConfig, listener: str, key: str) -> str | None:
    """Return a listener's setting as text, or that of all listeners."""
    found = config.listener_text(listener, key)
    return found or (str(value) if isinstance(value := config[key], int) else None)


def jwks_source(config: BrokerConfig, listener: str) -> JwksSource:
    """Return where a listener's keys come from, and what its tokens must say."""
    refresh_ms = int(_own(config, listener, "sasl.oauthbearer.jwks.endpoint.refresh.ms") or 0)
    url = _own(config, listener, "sasl.oauthbearer.jwks.endpoint.url") or ""
    return JwksSource(url, refresh_ms, expected_of(config, listener))


def expected_of(config: BrokerConfig, listener: str) -> Expected:
    """Return what a listener's tokens must say."""
    audience = config["sasl.oauthbearer.expected.audience"]
    own_audience = _own(config, listener, "sasl.oauthbearer.expected.audience")
    if own_audience is not None:
        audience = [part.strip() for part in own_audience.split(",")]
    return Expected(
        audience=audience if isinstance(audience, list) else (),
        issuer=_own(config, listener, "sasl.oauthbearer.expected.issuer"),
        clock_skew_s=int(_own(config, listener, "sasl.oauthbearer.clock.skew.seconds") or 0),
        scope_claim=_own(config, listener, "sasl.oauthbearer.scope.claim.name") or "scope",
        sub_claim=_own(config, listener, "sasl.oauthbearer.sub.claim.name") or "sub",
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs


def read_url(url: str) -> bytes:
    """Return a document of a mebibyte at most; OSError or ValueError."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        with Path(urllib.parse.unquote(parts.path)).open("rb") as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
    elif parts.scheme in ("http", "https"):
        opener = urllib.request.build_opener(_NoRedirects)
        with opener.open(url, timeout=REQUEST_TIMEOUT_S) as response:
            data = response.read(MAX_DOCUMENT_BYTES + 1)
    else:
        raise ValueError(f"{parts.scheme}: is no file:, http: or https: address")
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"more than {MAX_DOCUMENT_BYTES} bytes")
    return bytes(data)
