"""A job's settings: one TOML file, checked against the job's struct before anything starts.

Who may call: the jobs of this room. Invariants: what is not known, missing or of the wrong type is
one line that names the file and the key; nothing has started then. A job derives its own
`msgspec.Struct` with `forbid_unknown_fields=True, frozen=True, kw_only=True`, and takes `Cluster`
and `Spark` below as its tables `[cluster]` and `[spark]`.
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ottla.model.config import parse_properties
from ottla.model.errors import ConfigError

T = TypeVar("T")
PLAINTEXT = "PLAINTEXT"
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
        """Return the settings of `properties` and `options`; the latter win."""
        found: dict[str, str] = {}
        if self.properties is not None:
            found = read_properties(Path(self.properties))
        return {**found, **self.options}

    def connector_options(self) -> dict[str, str]:
        """Return them as options of Spark's Kafka connector: `kafka.` before each name."""
        options = {f"kafka.{name}": value for name, value in self.client_options().items()}
        return {**options, "kafka.bootstrap.servers": self.bootstrap_servers}

    def source_options(self) -> dict[str, str]:
        """Return what our own client takes of them, as options of `format("ottla")`."""
        given = self.client_options()
        found = {f"kafka.{name}": given[name] for name in CLIENT_SETTINGS if name in given}
        return {**found, "kafka.bootstrap.servers": self.bootstrap_servers}

    @property
    def secured(self) -> bool:
        """Return whether the brokers want TLS or SASL, which our own client does not speak."""
        return self.client_options().get("security.protocol", PLAINTEXT) != PLAINTEXT


class Spark(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[spark]`: where to run. What spark-submit, --master or --conf say goes before it."""

    master: str | None = None
    conf: dict[str, str] = {}


def read_properties(path: Path) -> dict[str, str]:
    """Read Java properties, as Kafka's tools take them with --command-config."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # no UTF-8, or no number behind a \u
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


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
