"""A job's settings: one TOML file, checked against the job's struct before anything starts.

Invariants: what is not known, missing or of the wrong type is one line that names the file and the
key; nothing has started then. A job derives its own `msgspec.Struct` with
`forbid_unknown_fields=True, frozen=True, kw_only=True`, and takes `Cluster` and `Spark` below as
its tables `[cluster]` and `[spark]`. Secrets of a properties file stay in it: what is handed to
Spark has the file's path (Spark shows options in plans, logs and its web pages).
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ottla.model.errors import ConfigError
from ottla.security.client_properties import KEYS, LOCATIONS, SECRETS
from ottla.security.config_providers import client_settings

if TYPE_CHECKING:
    from ottla.security.client import ClientSecurity

T = TypeVar("T")
CLIENT_SETTINGS = (
    "client.id", "default.api.timeout.ms", "fetch.max.wait.ms", "max.partition.fetch.bytes",
    "request.timeout.ms",
)  # fmt: skip
"""Settings of Kafka's clients that our own client takes, too."""


class Cluster(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[cluster]`: where the brokers are, and how to be let in.

    `options` are settings of Kafka's clients by their own names ("security.protocol", "sasl.…",
    "ssl.…", …); `properties` is a file of such settings, for what should stand in no TOML file.
    """

    bootstrap_servers: str
    options: dict[str, str] = {}
    properties: str | None = None

    def client_options(self) -> dict[str, str]:
        """Return the settings of `properties` and `options`; the latter win.

        Files that they name belong to the folder that the job was started in.
        """
        found: dict[str, str] = {}
        if self.properties is not None:
            found = read_properties(Path(self.properties))
        return with_whole_paths({**found, **self.options})

    def source_options(self, *, every: bool = False) -> dict[str, str]:
        """Return what our own client takes of them, as options of `format("ottla")`.

        With `every` all of `options`, so that one which it does not take is refused there.
        """
        given = self.client_options()
        names = [n for n in CLIENT_SETTINGS if n in given]
        names += [n for n in self.options if n in KEYS]
        names += [n for n in self.options if every and n not in names]
        found = {f"kafka.{name}": given[name] for name in names}
        if self.properties is not None:
            found["properties"] = os.path.abspath(self.properties)  # noqa: PTH100 - a text
        return {**found, "kafka.bootstrap.servers": self.bootstrap_servers}

    def security(self) -> "ClientSecurity | None":
        """Return how our own client connects; None: in the clear. ConfigError if it cannot."""
        from ottla.security.client_properties import client_security

        try:
            return client_security(self.client_options())
        except ConfigError as error:
            raise ConfigError(f"[cluster]: {error}") from None


class Spark(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[spark]`: where to run. What spark-submit, --master or --conf say goes before it."""

    master: str | None = None
    conf: dict[str, str] = {}


def read_properties(path: Path) -> dict[str, str]:
    """Read Java properties, as Kafka's tools take them with --command-config."""
    try:
        return client_settings(path.read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def with_whole_paths(settings: Mapping[str, str]) -> dict[str, str]:
    """Return client settings that name the same files from any other folder, too."""
    named = {n: text for n in LOCATIONS if (text := settings.get(n, "").strip())}
    return {**settings, **{n: os.path.abspath(text) for n, text in named.items()}}  # noqa: PTH100


def read_config(path: Path | None, sets: Iterable[str], kind: type[T]) -> T:
    """Read a file of settings, then `--set table.key=value`; ConfigError if it does not fit.

    `table.key=` with nothing behind it leaves the key at its default.
    """
    found: dict[str, Any] = {}
    where = "--config" if path is None else str(path)
    if path is not None:
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from None
    for text in sets:
        _refuse_secrets(text)
        _put(found, text)
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_in_words(str(error))}") from None


def _put(found: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    *tables, last = key.strip().split(".", 1) if key.strip() else ("",)
    if not equals or not last:
        raise ConfigError(f"--set {text}: write table.key=value")
    inner = found
    for name in tables:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {text}: {name} is no table")
    if value:
        inner[last] = _value(value)
    else:
        inner.pop(last, None)  # as if the file did not have it


def _refuse_secrets(text: str) -> None:
    for name in SECRETS:
        if name in text:
            raise ConfigError(
                f"--set with {name}: everyone on this machine can read the arguments of a "
                "process; write it into a file, and name that by cluster.properties"
            )


def _value(text: str) -> Any:
    """Parse a value as TOML does; what is none is a string, so that no one must quote twice."""
    try:
        parsed: Mapping[str, Any] = tomllib.loads(f"v = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["v"] if len(parsed) == 1 else text


def _in_words(problem: str) -> str:
    """Turn msgspec's "Object contains unknown field `x` - at `$.lake`" into "[lake]: …"."""
    what, _, place = problem.partition(" - at ")
    what = what.replace("Object contains unknown field", "there is no setting").replace(
        "Object missing required field", "missing setting"
    )
    table = place.strip("`").removeprefix("$").removeprefix(".")
    return f"[{table}]: {what}" if table else what
