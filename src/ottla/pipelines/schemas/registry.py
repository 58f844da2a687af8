"""A client of a schema registry: schemas by their ids, asked once each.

Invariants: a request ends within its timeout, a response has a bound; what a registry says of an id
never changes and is kept, but that it does not know one is asked again after a while; a registry
that does not respond is an error of the job, not of a record. Confluent:
`CachedSchemaRegistryClient`; its settings' names.
"""

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from ottla.model.errors import ConfigError, ConnectionLostError

MAX_RESPONSE_BYTES = 8 * 1024 * 1024
MOST_KEPT = 1000
ASK_AGAIN_S = 30.0
"""After so long, an id that was not known may be."""
NAMES = ("schema.registry.url", "basic.auth.user.info", "schema.registry.timeout.ms")
SCHEMES = ("http://", "https://")


class UnknownSchemaError(Exception):
    """The registry does not know a schema: an error of the record that names it."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry is: addresses tried in turn, `user:password`, seconds for a request."""

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)
    timeout_s: float = 10.0

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "RegistrySettings":
        """Return the settings by Confluent's names (NAMES); ConfigError for what is wrong.

        `schema.registry.url` may have several addresses, separated by commas.
        """
        unknown = sorted(set(settings) - set(NAMES))
        if unknown:
            raise ConfigError(
                f"{unknown[0]} is not a setting of a registry; the settings are {', '.join(NAMES)}"
            )
        urls = [part.strip().rstrip("/") for part in settings.get(NAMES[0], "").split(",")]
        if not all(url.startswith(SCHEMES) for url in urls):
            raise ConfigError(f"{NAMES[0]}={settings.get(NAMES[0], '')}: write http://host:port")
        user_info = settings.get(NAMES[1], "")
        if user_info and ":" not in user_info:
            raise ConfigError(f"{NAMES[1]}: write user:password")
        timeout = settings.get(NAMES[2], "10000")
        if not timeout.isdigit() or not 0 < int(timeout) <= 3_600_000:
            raise ConfigError(f"{NAMES[2]}={timeout}: write milliseconds, 1 or more")
        return cls(tuple(urls), user_info, int(timeout) / 1000)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema; `references` are the names and schemas it refers to, the deepest first."""

    kind: str
    text: str
    references: tuple[tuple[str, "RegisteredSchema"], ...] = ()


class RegistryClient:
    """Asks for schemas, and keeps them."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._kept: dict[int, RegisteredSchema] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return a schema; UnknownSchemaError, or ConnectionLostError if nobody responds."""
        if schema_id in self._kept:
            return self._kept[schema_id]
        asked_s, why = self._unknown.get(schema_id, (0.0, ""))
        if why and time.monotonic() < asked_s + ASK_AGAIN_S:
            raise UnknownSchemaError(why)
        try:
            found = self._resolved(self.get(f"/schemas/ids/{schema_id}?format=serialized"), depth=0)
        except UnknownSchemaError as error:
            self._unknown[schema_id] = time.monotonic(), str(error)
            _bound(self._unknown)
            raise
        self._kept[schema_id] = found
        _bound(self._kept)
        return found

    def _resolved(self, told: Mapping[str, Any], depth: int) -> RegisteredSchema:
        """Return a schema with all that it refers to."""
        if depth > 20:  # as deep as no schema is
            raise UnknownSchemaError("a schema refers to others without an end")
        found: dict[str, RegisteredSchema] = {}
        for one in told.get("references") or ():
            path = f"/subjects/{quote(one['subject'], safe='')}/versions/{int(one['version'])}"
            other = self._resolved(self.get(f"{path}?format=serialized&deleted=true"), depth + 1)
            found |= dict(other.references) | {one["name"]: other}
        return RegisteredSchema(
            told.get("schemaType") or "AVRO", told["schema"], tuple(found.items())
        )

    def get(self, path: str) -> Any:
        """Return what the registry responds with, as JSON; tries each address once."""
        why = ""
        for url in self._settings.urls:
            try:
                return self._ask(url + path)
            except urllib.error.HTTPError as error:
                message = _message(error)
                if error.code == 404:
                    raise UnknownSchemaError(f"{url}: {message}") from None
                if error.code in (401, 403):
                    raise ConfigError(
                        f"{url} refuses access: {message} (basic.auth.user.info)"
                    ) from None
                why = f"{url} responds with {error.code}: {message}"
            except (OSError, ValueError, HTTPException) as error:
                reason = getattr(error, "reason", None) or error
                why = f"{url} does not respond: {reason}"
        raise ConnectionLostError(f"schema registry: {why}")

    def _ask(self, url: str) -> Any:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._settings.user_info:
            token = base64.b64encode(self._settings.user_info.encode()).decode("ascii")
            headers["Authorization"] = f"Basic {token}"
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - SCHEMES only
        with urllib.request.urlopen(request, timeout=self._settings.timeout_s) as response:  # noqa: S310 # nosec B310
            body = response.read(MAX_RESPONSE_BYTES + 1)
        if len(body) > MAX_RESPONSE_BYTES:
            raise ValueError(f"a response of more than {MAX_RESPONSE_BYTES} bytes")
        return json.loads(body)


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(65536))["message"])
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return str(error.reason)


def _bound(kept: dict[int, Any]) -> None:
    """Forget what was learnt first, where there is too much."""
    while len(kept) > MOST_KEPT:
        kept.pop(next(iter(kept)))
